"""Announcements arrive: signed, at least once, in order, from one sender, and nowhere they must not go."""

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest
from sqlalchemy import make_url, update
from standardwebhooks import Webhook as StandardWebhook

import worker.posting
from store.database import Database
from store.jobs import NewJob, create_job, delete_job, request_cancel
from store.secretbox import ensure_key_file, open_box
from store.settings import Settings
from store.states import Status
from store.tables import WebhookDelivery
from store.webhooks import NewWebhook, event_type, list_deliveries, new_secret
from tests.worker.cable import Cable
from tests.worker.receiver import Receiver, receiving
from tests.worker.waiting import wait_until
from worker.runners import settings_environment
from worker.webhooks import MOST_PER_HOST, Deliverer, WebhookThread

SECRET = new_secret()
ALL = tuple(event_type(status) for status in Status)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    settings = settings.model_copy(update={"webhook_allowed_networks": (ip_network("127.0.0.0/8"),)})
    ensure_key_file(settings)
    return settings


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


class Desk:
    """Submits and cancels jobs that announce themselves, and delivers."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings = settings
        self.database = database
        self.deliverer = Deliverer(settings, database)

    def submit(self, url: str) -> str:
        hook = NewWebhook(url, open_box(self.settings).encrypt(SECRET), ALL)
        with self.database.transaction() as session:
            return create_job(session, NewJob("finetune", {}, {}, webhook=hook)).id

    def cancel(self, job_id: str) -> None:
        with self.database.transaction() as session:
            request_cancel(session, job_id)

    def deliveries(self, job_id: str) -> list[WebhookDelivery]:
        with self.database.reading() as session:
            return list_deliveries(session, job_id, 0, 100)

    def let_time_pass(self) -> None:
        with self.database.transaction() as session:
            session.execute(update(WebhookDelivery).values(due_at=WebhookDelivery.due_at - 200_000))

    def deliver(self, job_id: str, tries: int = 1) -> WebhookDelivery:
        """Deliver until the job's only announcement was tried so often; how it stands then."""

        def tried() -> bool:
            self.deliverer.tick()
            (row,) = self.deliveries(job_id)
            return row.attempts >= tries and bool(row.error or row.delivered_at)

        wait_until(tried)
        return self.deliveries(job_id)[0]


@pytest.fixture
def desk(settings: Settings, database: Database) -> Desk:
    return Desk(settings, database)


def test_what_arrives_is_signed_by_standard_webhooks(desk: Desk, receiver: Receiver):
    job_id = desk.submit(receiver.url)
    row = desk.deliver(job_id)
    assert (row.status, row.answer_code) == ("delivered", 204)
    ((path, headers, body),) = receiver.received
    verified = StandardWebhook(SECRET).verify(body, headers)
    assert verified["type"] == "job.queued"
    assert verified["data"]["id"] == job_id
    assert (path, headers["webhook-id"], headers["content-type"]) == ("/hook", row.id, "application/json")
    assert body == row.payload.encode()


def test_a_job_is_announced_in_the_order_of_its_history(desk: Desk, receiver: Receiver):
    job_id = desk.submit(receiver.url)
    desk.cancel(job_id)
    wait_until(lambda: desk.deliverer.tick() == 0 and len(receiver.received) == 2)
    assert [json.loads(body)["type"] for _, _, body in receiver.received] == ["job.queued", "job.cancelled"]


def test_a_receiver_that_was_down_gets_what_it_missed_under_the_same_id(desk: Desk):
    with receiving() as receiver:
        port, url = receiver.port, receiver.url
    job_id = desk.submit(url)
    missed = desk.deliver(job_id)
    assert (missed.status, missed.error) == ("waiting", "the connection was refused")
    assert missed.due_at > (missed.tried_at or 0) + 4
    with receiving(port) as receiver:
        receiver.code = 503
        desk.let_time_pass()
        wait_until(lambda: desk.deliver(job_id, 2).error == "answered 503")
        receiver.code = 200
        desk.let_time_pass()
        wait_until(lambda: desk.deliver(job_id, 3).status == "delivered")
        assert receiver.ids() == [missed.id] * 2


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_no_redirect_is_followed(desk: Desk, receiver: Receiver, code: int):
    receiver.code, receiver.headers = code, {"Location": "/elsewhere"}
    row = desk.deliver(desk.submit(receiver.url))
    assert (row.status, row.answer_code, row.error) == ("waiting", code, f"answered {code}")
    assert [path for path, _, _ in receiver.received] == ["/hook"]


def test_a_huge_answer_is_not_read(desk: Desk, receiver: Receiver):
    receiver.code, receiver.body = 200, b"x" * (64 << 20)
    assert desk.deliver(desk.submit(receiver.url)).status == "delivered"


def test_a_receiver_that_is_gone_is_left_alone(desk: Desk, receiver: Receiver):
    receiver.code = 410
    job_id = desk.submit(receiver.url)
    assert desk.deliver(job_id).status == "given_up"
    desk.cancel(job_id)
    assert len(desk.deliveries(job_id)) == 1


@pytest.mark.parametrize("drips", [False, True])
def test_a_receiver_that_does_not_end_its_answer_holds_up_nobody_for_long(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, drips: bool
):
    monkeypatch.setattr(worker.posting, "TOTAL_S", 1.0)
    receiver.drips = drips
    receiver.gate.clear()
    slow = [desk.submit(receiver.url) for _ in range(4)]
    with receiving() as other:
        quick = desk.submit(other.url)
        assert desk.deliver(quick).status == "delivered"
    assert len(receiver.received) <= MOST_PER_HOST
    assert desk.deliver(slow[0]).error == "no answer within 1 seconds"


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:{}/hook", "http://localhost:{}/hook", "http://[::1]:{}/hook"]
)
def test_an_address_outside_the_allowed_networks_is_not_connected_to(
    settings: Settings, database: Database, receiver: Receiver, url: str
):
    strict = settings.model_copy(update={"webhook_allowed_networks": (ip_network("10.0.0.0/8"),)})
    desk = Desk(strict, database)
    row = desk.deliver(desk.submit(url.format(receiver.port)))
    assert "REGATTA_WEBHOOK_ALLOWED_NETWORKS" in row.error
    assert receiver.received == []


def test_a_receiver_whose_certificate_nobody_vouches_for_gets_nothing(desk: Desk, receiver: Receiver):
    row = desk.deliver(desk.submit(receiver.url.replace("http:", "https:")))
    assert row.error.startswith("TLS failed")
    assert receiver.received == []


def test_one_of_many_deliverers_is_at_work(desk: Desk, receiver: Receiver):
    job_id = desk.submit(receiver.url)
    desk.deliver(job_id)
    idle = Deliverer(desk.settings, desk.database)
    desk.cancel(job_id)
    assert idle.tick() == 0
    desk.deliverer.close(1)
    assert idle.tick() == 1
    wait_until(lambda: len(receiver.received) == 2)


def test_a_secret_that_cannot_be_read_is_told_and_nothing_is_sent(desk: Desk, receiver: Receiver):
    job_id = desk.submit(receiver.url)
    (desk.settings.data_dir / "secret.key").unlink()
    assert "signing secret" in desk.deliver(job_id).error
    assert receiver.received == []


def test_a_job_that_is_deleted_while_its_announcement_is_on_its_way_leaves_nothing(
    desk: Desk, receiver: Receiver
):
    job_id = desk.submit(receiver.url)
    desk.cancel(job_id)
    receiver.gate.clear()
    desk.deliverer.tick()
    wait_until(lambda: len(receiver.received) == 1)
    with desk.database.transaction() as session:
        delete_job(session, job_id)
    receiver.gate.set()
    wait_until(lambda: not desk.deliverer.busy)
    assert desk.deliverer.tick() == 0


def test_a_deliverer_that_is_killed_before_it_can_say_so_leaves_the_delivery_to_another(
    desk: Desk, receiver: Receiver
):
    program = """
        from store.settings import Settings
        from worker.webhooks import WebhookThread
        thread = WebhookThread(Settings())
        thread.start()
        thread.join()
    """
    receiver.gate.clear()
    job_id = desk.submit(receiver.url)
    environment = dict(settings_environment(desk.settings)) | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], env=environment) as process:
        try:
            wait_until(lambda: len(receiver.received) == 1)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(10)
    receiver.gate.set()
    (row,) = desk.deliveries(job_id)
    assert (row.status, row.attempts) == ("waiting", 1)
    desk.let_time_pass()
    wait_until(lambda: desk.deliverer.tick() == 1, 30)
    wait_until(lambda: desk.deliveries(job_id)[0].status == "delivered")
    assert receiver.ids() == [row.id] * 2


class TestWithoutTheDatabase:
    @pytest.fixture
    def direct_url(self, postgres: Callable[..., str], migrated_postgres: str) -> str:
        return postgres(migrated_postgres)

    @pytest.fixture
    def cable(self, direct_url: str, tmp_path: Path) -> Iterator[Cable]:
        target = Path(str(make_url(direct_url).query["host"])) / ".s.PGSQL.5432"
        cable = Cable(tmp_path / ".s.PGSQL.5432", target)
        yield cable
        cable.cut()

    def test_announcements_wait_and_what_was_sent_meanwhile_is_sent_again(
        self, settings: Settings, receiver: Receiver, direct_url: str, cable: Cable, tmp_path: Path
    ):
        cabled = make_url(direct_url).set(drivername="postgresql").update_query_dict({"host": str(tmp_path)})
        database = Database(direct_url)
        desk = Desk(settings, database)
        far = settings.model_copy(update={"database_url": cabled.render_as_string(hide_password=False)})
        thread = WebhookThread(far)
        receiver.gate.clear()
        job_id = desk.submit(receiver.url)
        thread.start()
        wait_until(lambda: len(receiver.received) == 1)
        cable.cut()
        receiver.gate.set()
        desk.cancel(job_id)
        cable.mend()
        desk.let_time_pass()
        wait_until(lambda: all(row.status == "delivered" for row in desk.deliveries(job_id)), 30)
        first, second = desk.deliveries(job_id)
        assert receiver.ids().count(first.id) == 2
        assert second.id in receiver.ids()
        thread.stop()
        database.dispose()
