"""GET /datasets/{dataset_id}/statistics."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from api.datasets import token_lengths
from tests.api.datasets.conftest import sft_lines
from tests.api.parts import Job, places
from tests.service import build_tiny_gemma

LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
def model(roots: Path) -> Path:
    return build_tiny_gemma(roots / "models" / "tiny")


def upload(client: httpx.Client, lines: bytes) -> str:
    return f"/datasets/{client.post('/datasets', content=lines, headers=LINES).json()['id']}/statistics"


def ask(client: httpx.Client, path: str, **params: Any) -> httpx.Response:
    return client.get(path, params=params)


def test_tokens_are_counted_once_for_a_model(
    client: httpx.Client, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = upload(client, sft_lines(40))
    answer = ask(client, path, model="tiny", max_length=8)
    assert answer.status_code == 200, answer.text
    counted = answer.json()
    assert (counted["examples"], counted["counted"], counted["max_length"]) == (40, 40, 8)
    assert 0 < counted["percentiles"]["50"] <= counted["max"]
    assert counted["over_max_length"] in (0.0, 1.0) or 0 < counted["over_max_length"] < 1
    monkeypatch.setattr(token_lengths, "_output", lambda *_: pytest.fail("it was counted again"))
    assert ask(client, path, model="tiny", max_length=8).json() == counted


def test_another_tokenizer_in_the_same_place_is_counted_anew(client: httpx.Client, model: Path) -> None:
    path = upload(client, sft_lines())
    before = ask(client, path, model="tiny").json()
    template = "{% for message in messages %}<start_of_turn>{{ message['content'] }}<eos>{% endfor %}"
    (model / "chat_template.jinja").write_text(template)
    after = ask(client, path, model="tiny").json()
    assert (before["template"], after["template"]) == (None, "chat_template.jinja")
    assert after["total"] > before["total"]


def test_of_many_records_evenly_spread_ones_are_counted(
    client: httpx.Client, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_lengths, "MOST_RECORDS", 10)
    counted = ask(client, upload(client, sft_lines(35)), model="tiny").json()
    assert (counted["examples"], counted["counted"]) == (35, 9)


def test_the_result_of_a_job_has_a_tokenizer(
    client: httpx.Client, model: Path, job: Job, tmp_path: Path
) -> None:
    path = upload(client, sft_lines())
    assert ask(client, path, model=f"job:{job.id}").status_code == 404
    job.start()
    job.publish("result", model)
    by_job = ask(client, path, model=f"job:{job.id}").json()
    by_folder = ask(client, path, model="tiny").json()
    assert by_job | {"model": "tiny"} == by_folder


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("unknown", "does not exist"),
        ("../data", "expected a path without .."),
        ("/etc", "outside the allowed model folders"),
        ("google/gemma-2b", "is not on the server's machine"),
        ("gemma", ""),
    ],
)
def test_a_model_without_a_tokenizer_here_is_a_problem(client: httpx.Client, name: str, told: str) -> None:
    answer = ask(client, upload(client, sft_lines()), model=name)
    assert places(answer) == [("query", "model")]
    assert told in answer.json()["errors"][0]["msg"]


def test_a_template_that_never_ends_is_given_up(
    client: httpx.Client, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_lengths, "TIMEOUT_S", 4)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (model / "chat_template.jinja").write_text(loop)
    answer = ask(client, upload(client, sft_lines()), model="tiny")
    assert answer.status_code == 503
    assert "could not be counted in time" in answer.json()["detail"]


def test_secrets_of_the_service_are_nothing_for_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_SECRET_KEY", "hidden")
    shown = token_lengths._output(["env"], iter([b"x" * 1_000_000] * 3))
    assert b"PATH=" in shown
    assert b"REGATTA" not in shown
