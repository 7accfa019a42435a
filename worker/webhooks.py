"""Sends the announcements of webhooks, beside the scheduler and never in its way.

Any number may run; the one that holds the lease "webhooks" works, so that a job's announcements leave in
their order. Each try is written down before it is sent: whoever dies between sending and mark leaves a
delivery that is sent again, under the same id.
"""

import base64
import hashlib
import hmac
import logging
import os
import threading
import time
from urllib.parse import urlsplit

from store.database import Database
from store.errors import StoreError
from store.leases import acquire_lease, release_lease
from store.secretbox import open_box
from store.settings import Settings
from store.webhooks import Answer, Try, begin_try, due_deliveries, end_try, secret_key
from worker.posting import post

ROLE = "webhooks"
ROLE_TTL_S = 15.0
THREADS = 8
MOST_PER_HOST = 2
"""Tries at the same time of one receiver, so that a slow one leaves threads for the others."""
LOOK = 1000
RETRY_S = 1.0
CLOSING_S = 2.0
"""Tries that take longer are begun anew by whoever delivers next."""

log = logging.getLogger(__name__)


class Deliverer:
    """Sends what is due, in threads. `tick` begins all that can be begun now."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._owner = f"{settings.host_name}/{os.getpid()}/{time.time_ns()}"
        self._lock = threading.Lock()
        self._at_work: dict[str, tuple[str, str]] = {}
        self._leading_until = 0.0
        self.freed = threading.Event()

    def tick(self) -> int:
        """Begin tries of what is due, and return how many; none while another process has the role."""
        if not self._leads():
            return 0
        begun = 0
        with self._database.reading() as session:
            due = due_deliveries(session, LOOK)
        for delivery_id, job_id, url in due:
            if self._take(delivery_id, job_id, urlsplit(url).netloc):
                threading.Thread(target=self._deliver, args=(delivery_id,), daemon=True).start()
                begun += 1
        return begun

    def _leads(self) -> bool:
        """Take or keep the role; a third of its time is enough to ask again."""
        if time.monotonic() < self._leading_until:
            return True
        asked = time.monotonic()
        with self._database.transaction() as session:
            leads = acquire_lease(session, ROLE, self._owner, ttl_s=ROLE_TTL_S)
        self._leading_until = asked + ROLE_TTL_S / 3 if leads else 0.0
        return leads

    def _take(self, delivery_id: str, job_id: str, host: str) -> bool:
        with self._lock:
            jobs = {job for job, _ in self._at_work.values()}
            same_host = sum(1 for _, busy in self._at_work.values() if busy == host)
            if len(self._at_work) >= THREADS or job_id in jobs or same_host >= MOST_PER_HOST:
                return False
            self._at_work[delivery_id] = (job_id, host)
            return True

    def _deliver(self, delivery_id: str) -> None:
        try:
            with self._database.transaction() as session:
                tried = begin_try(session, delivery_id)
            if tried is None:
                return
            answer = self._send(tried)
            with self._database.transaction() as session:
                end_try(session, tried, answer)
            log.info(
                "job %s, announcement %s, try %d: %s",
                tried.job_id,
                tried.id,
                tried.attempt,
                answer.error or answer.code,
            )
        except Exception as error:
            log.warning("announcement %s was interrupted, it is tried again later: %s", delivery_id, error)
        finally:
            with self._lock:
                del self._at_work[delivery_id]
            self.freed.set()

    def _send(self, tried: Try) -> Answer:
        try:
            key = secret_key(open_box(self._settings).decrypt(tried.secret)) or b""
        except StoreError as error:
            log.error("announcement %s cannot be signed: %s", tried.id, error)
            return Answer(error="the service could not read the signing secret")
        body = tried.payload.encode()
        headers = signed(tried.id, int(tried.time), body, key) | {
            "Content-Type": "application/json",
            "User-Agent": "regatta-webhooks",
        }
        return post(tried.url, body, headers, self._settings.webhook_allowed_networks)

    @property
    def busy(self) -> bool:
        """Whether a try is on its way."""
        return bool(self._at_work)

    def close(self, patience_s: float) -> None:
        """Wait so long for the tries that have begun, and leave the role to another."""
        until = time.monotonic() + patience_s
        while self.busy and time.monotonic() < until:
            self.freed.clear()
            self.freed.wait(0.1)
        with self._database.transaction() as session:
            release_lease(session, ROLE, self._owner)


def signed(delivery_id: str, timestamp: int, body: bytes, key: bytes) -> dict[str, str]:
    """The headers that prove who sends what when, by Standard Webhooks."""
    content = f"{delivery_id}.{timestamp}.".encode() + body
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }


class WebhookThread(threading.Thread):
    """Delivers until `stop` is called."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="webhooks", daemon=True)
        self._settings = settings
        self._stopping = threading.Event()

    def run(self) -> None:
        database = Database(self._settings.database_url)
        deliverer = Deliverer(self._settings, database)
        while not self._stopping.is_set():
            deliverer.freed.clear()
            pause = self._settings.poll_s
            try:
                deliverer.tick()
            except Exception as error:
                log.warning("announcements wait: %s", error)
                pause = max(pause, RETRY_S)
            deliverer.freed.wait(pause)
        try:
            deliverer.close(CLOSING_S)
        except Exception as error:
            log.warning("the role could not be given back, it ends by itself: %s", error)
        database.dispose()

    def stop(self) -> None:
        """Begin no further try, and wait a moment for those that have begun."""
        self._stopping.set()
        self.join(2 * CLOSING_S)
