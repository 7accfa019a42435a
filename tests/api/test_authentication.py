"""A server that wants keys lets in who shows one, as far as its scopes go."""

from typing import Any

import httpx
import pytest

from api.keyring import REMEMBERED_S, Keyring
from store.database import Database
from store.keys import Scope, create_key, revoke_key
from store.settings import Settings
from tests.api.keyed import Keyed
from tests.api.parts import on_both_databases, serving


@pytest.mark.parametrize(
    "path", ["/jobs", "/jobs/nope", "/hosts", "/openapi.json", "/nope", "/metrics", "/keys"]
)
def test_without_a_key_nothing_is_told(keyed: Keyed, path: str) -> None:
    with keyed.without() as client:
        answer = client.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="regatta"'
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:regatta:problem:unauthenticated"


@pytest.mark.parametrize("path", ["/healthz", "/docs", "/docs/static/swagger-ui.css"])
def test_what_holds_nothing_of_a_user_needs_no_key(keyed: Keyed, path: str) -> None:
    with keyed.without() as client:
        assert client.get(path).status_code == 200
        assert client.get("/readyz").status_code in (200, 503)


@pytest.mark.parametrize(
    "value", ["Bearer", "Bearer rgt_aaaaaaaa_x", "bearer nonsense", "Basic dXNlcjpwYXNz", "Béarer"]
)
def test_a_wrong_key_is_refused(keyed: Keyed, value: str) -> None:
    with keyed.without() as client:
        answer = client.get("/jobs", headers=[(b"authorization", value.encode())])
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")


@on_both_databases
def test_a_revoked_or_expired_key_is_refused(keyed: Keyed) -> None:
    with keyed.client(scopes=[Scope.admin]) as boss, keyed.client() as client:
        assert client.get("/jobs").status_code == 200
        (key_id,) = (
            key["id"] for key in boss.get("/keys").json()["items"] if key["scopes"] == ["read", "write"]
        )
        assert boss.delete(f"/keys/{key_id}").status_code == 204
        answer = client.get("/jobs")
        assert answer.status_code == 401
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    with keyed.with_key(keyed.key(lifetime_s=-1)) as client:
        assert client.get("/jobs").status_code == 401


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        ([Scope.read], {"read"}),
        ([Scope.write], {"write"}),
        ([Scope.read, Scope.write], {"read", "write"}),
        ([Scope.admin], {"read", "write", "admin"}),
    ],
)
def test_a_scope_allows_what_its_name_says(
    keyed: Keyed, config: dict[str, Any], scopes: list[Scope], allowed: set[str]
) -> None:
    with keyed.client(scopes=scopes) as client:
        calls = {
            "read": client.get("/jobs"),
            "write": client.post("/jobs/validate", json={"task": "finetune", "config": config}),
            "admin": client.get("/keys"),
        }
    for scope, answer in calls.items():
        if scope in allowed:
            assert answer.status_code == 200
        else:
            assert answer.status_code == 403
            assert answer.json()["missing_scope"] == scope
            assert f"scope {scope}" in answer.json()["detail"]
            assert f'error="insufficient_scope", scope="{scope}"' in answer.headers["www-authenticate"]


def test_where_no_key_is_wanted_a_shown_one_has_to_be_right_and_counts(
    client: httpx.Client, database: Database
) -> None:
    with database.transaction() as session:
        _, key = create_key(session, "default", "reader", [Scope.read])
    assert client.get("/keys").status_code == 200
    assert client.get("/keys", headers={"authorization": f"Bearer {key}"}).status_code == 403
    assert client.get("/jobs", headers={"authorization": "Bearer rgt_wrong"}).status_code == 401


def test_where_no_key_is_wanted_a_text_that_is_none_of_ours_says_nothing(client: httpx.Client) -> None:
    assert client.get("/v1/models", headers={"authorization": "Bearer none"}).status_code == 200


def test_the_history_knows_who_it_was(keyed: Keyed, config: dict[str, Any]) -> None:
    key = keyed.key()
    with keyed.with_key(key) as client:
        job = client.post("/jobs", json={"task": "finetune", "config": config}).json()
        assert job["submitted_by"] == f"tests ({key.split('_')[1]})"


def test_the_body_of_a_stranger_is_not_read(keyed: Keyed) -> None:
    with keyed.without() as client:
        answer = client.post("/jobs", content=b"{" * 100, headers={"content-type": "application/json"})
    assert answer.status_code == 401


class TestKeyring:
    """What is remembered of keys."""

    def test_a_revoked_key_works_for_a_few_seconds_at_most(self, database: Database) -> None:
        now = [0.0]
        keyring = Keyring(database, clock=lambda: now[0])
        with database.transaction() as session:
            row, key = create_key(session, "default", "ci", [Scope.read])
        assert keyring.look_up(key) is not None
        with database.transaction() as session:
            revoke_key(session, row.id)
        assert keyring.remembered(key) is not None
        now[0] = REMEMBERED_S
        assert keyring.remembered(key) is None
        assert keyring.look_up(key) is None

    def test_no_key_outlives_its_end_there(self, database: Database) -> None:
        now = [0.0]
        keyring = Keyring(database, clock=lambda: now[0])
        with database.transaction() as session:
            _, key = create_key(session, "default", "ci", [Scope.read], lifetime_s=2)
        assert keyring.look_up(key) is not None
        now[0] = 2.0
        assert keyring.remembered(key) is None

    def test_unknown_keys_are_not_remembered(self, database: Database) -> None:
        keyring = Keyring(database)
        assert keyring.look_up("rgt_aaaaaaaa_" + "x" * 43) is None
        assert keyring.remembered("rgt_aaaaaaaa_" + "x" * 43) is None


@on_both_databases
def test_the_use_of_a_key_is_shown(keyed: Keyed) -> None:
    with keyed.client(scopes=[Scope.admin]) as boss:
        (key,) = boss.get("/keys").json()["items"]
    assert key["last_used_at"] is not None


def test_the_settings_decide(settings: Settings) -> None:
    with serving(settings) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/jobs").status_code == 200
