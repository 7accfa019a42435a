"""API keys open the service to who holds them, until they end."""

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.database import Database
from store.errors import NotFound
from store.keys import Scope, create_key, find_key, list_keys, note_use, revoke_key, use_is_noted
from store.projects import create_project
from store.tables import ApiKey, JobEvent


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.transaction() as session:
        yield session


def test_a_key_is_known_by_its_text_of_which_only_a_hash_is_kept(session: Session) -> None:
    key, text = create_key(session, "default", "ci", [Scope.write, Scope.read], actor="local")
    assert text.startswith(f"rgt_{key.prefix}_")
    found = find_key(session, text)
    assert found is not None
    assert (found.id, found.project, found.scopes) == (key.id, "default", ["read", "write"])
    stored = [str(value) for row in session.execute(select(ApiKey.__table__)) for value in row]
    assert not any(text in value or text.rpartition("_")[2] in value for value in stored)


def test_no_other_text_is_let_in(session: Session) -> None:
    _, text = create_key(session, "default", "ci", [Scope.read])
    for wrong in (
        "",
        "rgt",
        text[:-1],
        text + "A",
        text.upper(),
        text[:-1] + "\n",
        f"{text[:13]}{'A' * 43}",
        "é",
    ):
        assert find_key(session, wrong) is None


def test_two_keys_of_one_prefix_are_told_apart(session: Session) -> None:
    (one, text), (two, _) = (create_key(session, "default", name, [Scope.read]) for name in ("one", "two"))
    session.execute(update(ApiKey).where(ApiKey.id == two.id).values(prefix=one.prefix))
    found = find_key(session, text)
    assert found is not None
    assert found.name == "one"


def test_a_revoked_key_is_refused_and_stays_in_the_list(session: Session) -> None:
    key, text = create_key(session, "default", "ci", [Scope.read])
    revoked_at = revoke_key(session, key.id, actor="boss").revoked_at
    assert find_key(session, text) is None
    assert revoke_key(session, key.id).revoked_at == revoked_at
    assert [row.id for row in list_keys(session, limit=10).items] == [key.id]
    with pytest.raises(NotFound):
        revoke_key(session, "nobody's")


def test_a_key_ends_with_its_lifetime(session: Session) -> None:
    _, lasting = create_key(session, "default", "lasting", [Scope.read], lifetime_s=60)
    _, over = create_key(session, "default", "over", [Scope.read], lifetime_s=-1)
    assert find_key(session, lasting) is not None
    assert find_key(session, over) is None


def test_its_use_is_noted_once_a_minute(session: Session) -> None:
    key, _ = create_key(session, "default", "ci", [Scope.read])
    assert not use_is_noted(key, time.time())

    def last_used() -> float:
        return session.execute(select(ApiKey.last_used_at)).scalar_one() or 0.0

    note_use(session, key.id)
    first = last_used()
    note_use(session, key.id)
    assert last_used() == first
    session.execute(update(ApiKey).values(last_used_at=first - 61))
    note_use(session, key.id)
    assert last_used() >= first


def test_the_list_is_paged_and_of_one_project_if_wanted(session: Session) -> None:
    create_project(session, "other")
    for project, name in (("default", "a"), ("other", "b"), ("default", "c")):
        create_key(session, project, name, [Scope.read])
    first = list_keys(session, limit=2)
    rest = list_keys(session, limit=2, cursor=first.next_cursor)
    assert [key.name for key in (*first.items, *rest.items)] == ["c", "b", "a"]
    assert rest.next_cursor is None
    assert [key.name for key in list_keys(session, limit=9, project="default").items] == ["c", "a"]


def test_a_key_belongs_to_a_project_that_is_there(session: Session) -> None:
    with pytest.raises(NotFound, match="no project 'nowhere'"):
        create_key(session, "nowhere", "ci", [Scope.read])


def test_making_and_revoking_are_written_down_without_the_key(session: Session) -> None:
    key, text = create_key(session, "default", "ci", [Scope.read], actor="local")
    revoke_key(session, key.id, actor="boss")
    events = list(session.execute(select(JobEvent).order_by(JobEvent.id)).scalars())
    assert [(event.type, event.actor, event.project, event.job_id) for event in events] == [
        ("key_created", "local", "default", None),
        ("key_revoked", "boss", "default", None),
    ]
    assert all(event.data["key_id"] == key.id and text not in str(event.data) for event in events)
