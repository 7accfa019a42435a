"""The keys that this process has seen lately, so that not every request asks the database."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

from sqlalchemy.exc import DBAPIError

from api.principal import Principal
from store import tables
from store.clock import database_now
from store.database import Database
from store.keys import Scope, find_key, note_use, use_is_noted

logger = logging.getLogger(__name__)

REMEMBERED_S = 5.0
"""How long a key is believed without being looked up: a revoked one works no longer than that."""
MOST_REMEMBERED = 1000


class Keyring:
    """Looks keys up and remembers the good ones for a few seconds. Safe to use from several threads."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()

    def remembered(self, text: str) -> Principal | None:
        """Whose key this is, if that was looked up within the last seconds."""
        with self._lock:
            until, principal = self._known.get(_name(text), (0.0, None))
        return principal if self._clock() < until else None

    def look_up(self, text: str) -> Principal | None:
        """Whose key this is by the database; None for one that may not be used."""
        asked_at = self._clock()
        with self._database.reading() as session:
            key = find_key(session, text)
            now = database_now(session)
        if key is None:
            return None
        if not use_is_noted(key, now):
            self._note_use(key.id)
        principal = principal_of(key)
        lasts = REMEMBERED_S if key.expires_at is None else min(REMEMBERED_S, key.expires_at - now)
        self._remember(_name(text), asked_at + lasts, principal)
        return principal

    def forget(self) -> None:
        """Look every key up again: one of them was revoked here."""
        with self._lock:
            self._known.clear()

    def _remember(self, name: bytes, until: float, principal: Principal) -> None:
        with self._lock:
            self._known[name] = until, principal
            self._known.move_to_end(name)
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)

    def _note_use(self, key_id: str) -> None:
        try:
            with self._database.transaction() as session:
                note_use(session, key_id)
        except DBAPIError as error:  # the request itself may well succeed
            logger.warning("the use of a key was not noted: %s", error)


def principal_of(key: tables.ApiKey) -> Principal:
    """The client that shows this key."""
    return Principal(key.project, frozenset(map(Scope, key.scopes)), f"{key.name} ({key.prefix})")


def _name(text: str) -> bytes:
    """What stands for a key in memory: not the key itself."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
