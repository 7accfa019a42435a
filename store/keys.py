"""API keys: who may call the service, for which project, and how far.

A key reads `rgt_<prefix>_<random>`. The prefix is no secret: lists and histories show it. Of the whole only a
SHA-256 hash is kept: 256 random bits cannot be guessed, so no slow hash is needed.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from enum import StrEnum

import uuid_utils
from sqlalchemy import or_, select, tuple_, update
from sqlalchemy.orm import Session

from store.audit import add_action
from store.clock import database_now
from store.errors import NotFound
from store.pages import Page, cut_page, decode_cursor
from store.projects import get_project
from store.tables import ApiKey

USE_IS_NOTED_EVERY_S = 60.0
BEGINNING = "rgt_"
"""How every key begins."""
_SHAPE = re.compile(rf"{BEGINNING}([a-z0-9]{{8}})_([A-Za-z0-9_-]{{43}})", re.ASCII)
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


class Scope(StrEnum):
    """What a key allows."""

    read = "read"
    write = "write"
    admin = "admin"


def create_key(
    session: Session,
    project: str,
    name: str,
    scopes: Iterable[Scope],
    *,
    lifetime_s: float | None = None,
    actor: str = "",
) -> tuple[ApiKey, str]:
    """A new key of a project, and its text, which cannot be had again.

    Args:
        lifetime_s: after so many seconds the key is refused; None: never.

    Raises: NotFound without such a project.
    """
    get_project(session, project)
    now = database_now(session)
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    text = f"{BEGINNING}{prefix}_{secrets.token_urlsafe(32)}"
    key = ApiKey(
        id=str(uuid_utils.uuid7()),
        project=project,
        name=name,
        prefix=prefix,
        hash=_hash(text),
        scopes=sorted(set(scopes)),
        created_at=now,
        created_by=actor,
        expires_at=None if lifetime_s is None else now + lifetime_s,
    )
    session.add(key)
    session.flush()
    add_action(
        session, "key_created", f"key {name} ({prefix})", project=project, actor=actor, data=_data(key)
    )
    return key, text


def find_key(session: Session, text: str) -> ApiKey | None:
    """The key of this text while it may be used; None for one that is unknown, expired or revoked."""
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        return None
    presented = _hash(text)
    found = session.execute(select(ApiKey).where(ApiKey.prefix == shape[1])).scalars()
    now = database_now(session)
    return next((key for key in found if hmac.compare_digest(key.hash, presented) and _valid(key, now)), None)


def note_use(session: Session, key_id: str) -> None:
    """Remember that the key is in use, at most once a minute."""
    now = database_now(session)
    stale = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at <= now - USE_IS_NOTED_EVERY_S)
    session.execute(update(ApiKey).where(ApiKey.id == key_id, stale).values(last_used_at=now))


def use_is_noted(key: ApiKey, now: float) -> bool:
    """Whether `note_use` would change nothing now (unix seconds)."""
    return key.last_used_at is not None and key.last_used_at > now - USE_IS_NOTED_EVERY_S


def revoke_key(session: Session, key_id: str, *, actor: str = "") -> ApiKey:
    """Let the key be refused from now on. Revoking it again changes nothing. Raises: NotFound."""
    key = session.execute(
        select(ApiKey).where(ApiKey.id == key_id).with_for_update(),
        execution_options={"populate_existing": True},
    ).scalar_one_or_none()
    if key is None:
        raise NotFound(f"there is no key {key_id!r}")
    if key.revoked_at is None:
        key.revoked_at = database_now(session)
        session.flush()
        message = f"key {key.name} ({key.prefix})"
        add_action(session, "key_revoked", message, project=key.project, actor=actor, data=_data(key))
    return key


def list_keys(
    session: Session, *, limit: int, project: str | None = None, cursor: str | None = None
) -> Page[ApiKey]:
    """Keys of a project or of all, newest first, the revoked ones too. Raises: InvalidCursor."""
    query = select(ApiKey).order_by(ApiKey.created_at.desc(), ApiKey.id.desc()).limit(limit + 1)
    if project is not None:
        query = query.where(ApiKey.project == project)
    if cursor is not None:
        query = query.where(tuple_(ApiKey.created_at, ApiKey.id) < tuple_(*decode_cursor(cursor)))
    return cut_page(session.execute(query).scalars().all(), limit)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _valid(key: ApiKey, now: float) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def _data(key: ApiKey) -> dict[str, object]:
    return {"key_id": key.id, "prefix": key.prefix, "name": key.name, "scopes": key.scopes}
