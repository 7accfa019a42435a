"""Secrets go in, reach nobody but the trainer, and are never repeated."""

from typing import Any

import httpx
import pytest

from store.database import Database
from store.keys import Scope
from store.secretbox import ensure_key_file, open_box
from store.secrets import secrets_of_job
from store.settings import Settings
from tests.api.keyed import Keyed
from tests.api.parts import on_both_databases, places

VALUE = "hf_abcdefghijklmnop"
RIGHT = {"value": VALUE}


@pytest.fixture(autouse=True)
def _key(settings: Settings) -> None:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    ensure_key_file(settings)


@on_both_databases
def test_a_secret_is_set_replaced_and_deleted_and_never_shown(client: httpx.Client) -> None:
    made = client.put("/secrets/HF_TOKEN", json=RIGHT)
    assert made.status_code == 200
    changed = client.put("/secrets/HF_TOKEN", json={"value": "hf_other_value"})
    assert changed.json()["created_at"] == made.json()["created_at"]
    listed = client.get("/secrets")
    assert [secret["name"] for secret in listed.json()["items"]] == ["HF_TOKEN"]
    shown = client.get("/secrets/HF_TOKEN")
    assert shown.json() == listed.json()["items"][0] == changed.json()
    assert client.delete("/secrets/HF_TOKEN").status_code == 204
    assert client.delete("/secrets/HF_TOKEN").status_code == 404
    assert client.get("/secrets/HF_TOKEN").status_code == 404
    for answer in (made, changed, listed, shown):
        assert "hf_" not in answer.text


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "PYTHONSTARTUP", "REGATTA_EVENTS", "hf_token"])
def test_a_name_that_would_change_the_trainer_is_refused(client: httpx.Client, name: str) -> None:
    answer = client.put(f"/secrets/{name}", json=RIGHT)
    assert places(answer) == [("path", "name")]
    assert VALUE not in answer.text


@pytest.mark.parametrize("value", ["short", "two\nlines of text", 12345678, None, ["abcdefgh"]])
def test_a_value_that_cannot_be_masked_is_refused_and_not_repeated(client: httpx.Client, value: Any) -> None:
    answer = client.put("/secrets/HF_TOKEN", json={"value": value})
    assert places(answer) == [("body", "value")]
    assert str(value) not in answer.text or value is None


@on_both_databases
def test_a_job_keeps_its_own_secrets_encrypted(
    client: httpx.Client, config: dict[str, Any], database: Database, settings: Settings
) -> None:
    body = {"task": "finetune", "config": config, "secrets": {"HF_TOKEN": VALUE}}
    answer = client.post("/jobs", json=body)
    assert answer.status_code == 201, answer.text
    job_id = answer.json()["id"]
    assert VALUE not in answer.text + client.get(f"/jobs/{job_id}").text
    assert VALUE not in client.get(f"/jobs/{job_id}/events").text
    with database.reading() as session:
        stored = secrets_of_job(session, job_id)
    assert VALUE not in str(stored)
    assert open_box(settings).decrypt(stored["HF_TOKEN"]) == VALUE


@pytest.mark.parametrize(
    ("secrets", "place"),
    [
        ({"PATH": VALUE}, ("body", "secrets")),
        ({"HF_TOKEN": "short"}, ("body", "secrets", "HF_TOKEN")),
        ({"HF_TOKEN": 1}, ("body", "secrets", "HF_TOKEN")),
        ([VALUE], ("body", "secrets")),
        ({f"A{n}": VALUE for n in range(65)}, ("body", "secrets")),
    ],
)
def test_wrong_secrets_of_a_job_are_refused_and_not_repeated(
    client: httpx.Client, config: dict[str, Any], secrets: Any, place: tuple[str, ...]
) -> None:
    answer = client.post("/jobs/validate", json={"task": "finetune", "config": config, "secrets": secrets})
    assert places(answer) == [place]
    assert VALUE not in answer.text


def test_a_secret_may_not_stand_in_what_is_shown(client: httpx.Client, config: dict[str, Any]) -> None:
    client.put("/secrets/HF_TOKEN", json=RIGHT).raise_for_status()
    own = "another-secret-value"
    body = {
        "task": "finetune",
        "config": config | {"output_dir": f"out-{VALUE}"},
        "name": own,
        "secrets": {"OWN_TOKEN": own},
    }
    answer = client.post("/jobs", json=body)
    assert places(answer) == [("body", "config", "output_dir"), ("body", "name")]
    assert VALUE not in answer.text
    assert own not in answer.text


def test_without_a_key_nothing_is_kept(
    client: httpx.Client, settings: Settings, config: dict[str, Any]
) -> None:
    (settings.data_dir / "secret.key").unlink()
    for answer in (
        client.put("/secrets/HF_TOKEN", json=RIGHT),
        client.post("/jobs", json={"task": "finetune", "config": config, "secrets": {"HF_TOKEN": VALUE}}),
    ):
        assert answer.status_code == 409
        assert answer.json()["type"] == "urn:regatta:problem:no-secret-key"
        assert "REGATTA_SECRET_KEY" in answer.json()["detail"]
        assert VALUE not in answer.text


@on_both_databases
def test_projects_have_secrets_of_their_own(keyed: Keyed) -> None:
    keyed.project("fleet")
    with keyed.client(scopes=[Scope.admin]) as boss, keyed.client("fleet") as member, keyed.client() as other:
        assert boss.put("/secrets/HF_TOKEN?project=fleet", json=RIGHT).status_code == 200
        assert boss.put("/secrets/HF_TOKEN?project=nowhere", json=RIGHT).status_code == 404
        assert [secret["name"] for secret in member.get("/secrets").json()["items"]] == ["HF_TOKEN"]
        assert other.get("/secrets").json()["items"] == []
        assert other.get("/secrets", params={"project": "fleet"}).status_code == 404
        assert member.put("/secrets/HF_TOKEN", json=RIGHT).status_code == 403
