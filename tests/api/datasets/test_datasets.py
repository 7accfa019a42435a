"""Data sets from their upload to their end."""

import gzip
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from api.datasets.workspace import YOUNG_S, note_key
from store.artifacts import artifacts_for
from store.database import Database
from store.datasets import new_dataset_id
from store.settings import Settings
from store.tables import JobEvent, JobInput
from tests.api.datasets.conftest import dpo_lines, kto_lines, sft_lines, stored_files
from tests.api.parts import places

LINES = {"content-type": "application/x-ndjson"}


def upload(client: httpx.Client, lines: bytes | None = None, **params: str) -> dict[str, Any]:
    content = sft_lines() if lines is None else lines
    answer = client.post("/datasets", content=content, params=params, headers=LINES)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/datasets/{answer.json()['id']}"
    return answer.json()


def test_json_lines_are_stored_counted_and_given_back(client: httpx.Client) -> None:
    made = upload(client, name="berths", split="dev")
    assert made["kind"] == "sft"
    assert (made["name"], made["project"], made["created_by"]) == ("berths", "default", "local")
    assert made["reference"] == f"dataset:{made['id']}"
    dev = made["splits"]["dev"]
    assert (dev["examples"], dev["turns"], dev["bytes"]) == (3, 3, len(sft_lines()))
    assert dev["characters"] == {
        "total": 54,
        "mean": 18.0,
        "max": 18,
        "histogram": [{"up_to": 16, "examples": 0}, {"up_to": 32, "examples": 3}],
    }
    assert client.get(f"/datasets/{made['id']}").json() == made
    file = client.get(dev["url"])
    assert file.content == sft_lines()
    assert hashlib.sha256(file.content).hexdigest() == dev["sha256"]
    part = client.get(dev["url"], headers={"range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, sft_lines()[5:10])


def test_a_form_brings_several_splits_and_files(client: httpx.Client) -> None:
    files = [
        ("train", ("a.json", sft_lines(2, "a"))),
        ("train", ("b.json.gz", gzip.compress(sft_lines(3, "b")))),
        ("dev", ("dev.jsonl", sft_lines(1))),
    ]
    answer = client.post("/datasets", data={"name": "form"}, files=files)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    counts = {split: about["examples"] for split, about in made["splits"].items()}
    assert (made["name"], counts) == ("form", {"train": 5, "dev": 1})
    assert client.get(made["splits"]["train"]["url"]).content == sft_lines(2, "a") + sft_lines(3, "b")


def test_the_same_content_is_the_same_data_set_however_it_comes(client: httpx.Client) -> None:
    made = upload(client, name="first")
    spaced = b"\xef\xbb\xbf" + sft_lines().replace(b"\n", b"  \r\n\r\n").rstrip()
    for content in (sft_lines(), gzip.compress(sft_lines()), spaced):
        answer = client.post("/datasets", content=content, params={"name": "again"}, headers=LINES)
        assert (answer.status_code, answer.json()) == (200, made)
    assert upload(client, split="dev")["id"] != made["id"]


def test_two_uploads_of_the_same_at_a_time_make_one_data_set(
    client: httpx.Client, settings: Settings
) -> None:
    start, answers = threading.Barrier(4), []

    def send() -> None:
        start.wait(10)
        answers.append(client.post("/datasets", content=sft_lines(500), headers=LINES))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    (dataset_id,) = {answer.json()["id"] for answer in answers}
    folders = {path.parent.name for path in stored_files(settings.data_dir)}
    assert folders == {dataset_id}


def test_a_file_that_was_lost_comes_back_with_the_same_upload(
    client: httpx.Client, settings: Settings
) -> None:
    made = upload(client)
    for path in stored_files(settings.data_dir):
        path.unlink()
    assert client.get(made["splits"]["train"]["url"]).status_code == 503
    assert client.post("/datasets", content=sft_lines(), headers=LINES).status_code == 200
    assert client.get(made["splits"]["train"]["url"]).content == sft_lines()


def test_lists_are_filtered_and_paged(client: httpx.Client) -> None:
    first = upload(client, sft_lines(), name="x")
    second = upload(client, dpo_lines(), name="y")
    third = upload(client, kto_lines(), name="x")
    assert [made["kind"] for made in (first, second, third)] == ["sft", "dpo", "kto"]
    page = client.get("/datasets", params={"limit": 2}).json()
    rest = client.get("/datasets", params={"limit": 2, "cursor": page["next_cursor"]}).json()
    assert page["items"] + rest["items"] == [third, second, first]
    assert rest["next_cursor"] is None
    assert client.get("/datasets", params={"name": "x", "kind": "sft"}).json()["items"] == [first]
    assert client.get("/datasets", params={"kind": "pdf"}).status_code == 422
    assert client.get("/datasets", params={"cursor": "other"}).status_code == 422


def test_records_are_shown_from_any_place(client: httpx.Client) -> None:
    lines = sft_lines(1000)
    made = upload(client, lines)
    path = f"/datasets/{made['id']}/records"
    for offset in (0, 1, 511, 998):
        page = client.get(path, params={"offset": offset, "limit": 3}).json()
        stop = min(offset + 3, 1000)
        assert [item["record"]["src"] for item in page["items"]] == [
            f"question {n}" for n in range(offset, stop)
        ]
        assert [item["line"] for item in page["items"]] == list(range(offset + 1, stop + 1))
        assert page["total"] == 1000
        assert page["next_offset"] == (stop if stop < 1000 else None)
    assert client.get(path, params={"offset": 1000}).json()["items"] == []
    assert client.get(path, params={"split": "dev"}).status_code == 404


def test_records_are_shown_with_what_no_other_form_could_hold(client: httpx.Client) -> None:
    odd = b'{"src":"q","tgt":"a","x":["\\ud800","\\u0000",1e-999,' + b"9" * 400 + b"]}\n"
    long = json.dumps({"src": "q" * (1 << 20), "tgt": "a"}).encode() + b"\n"
    made = upload(client, odd + long)
    page = client.get(f"/datasets/{made['id']}/records")
    assert odd.rstrip() in page.content
    assert page.json()["items"][1] == {"line": 2, "bytes": len(long) - 1, "record": None}


def test_what_a_job_may_need_cannot_go(
    client: httpx.Client, submit: Callable[..., dict[str, Any]], database: Database, settings: Settings
) -> None:
    made, job = upload(client), submit()
    path = f"/datasets/{made['id']}"
    with database.transaction() as session:
        session.add(JobInput(job_id=job["id"], argument="dataset_name_or_path", uses_dataset=made["id"]))
    answer = client.delete(path)
    assert answer.status_code == 409
    assert answer.json()["jobs"] == [job["id"]]
    assert job["id"] in answer.json()["detail"]
    for change in ("cancel", "retry", "cancel"):
        assert client.post(f"/jobs/{job['id']}/{change}").status_code == 200
        assert client.delete(path).status_code == 409
    assert client.delete(f"/jobs/{job['id']}").status_code == 204
    assert client.delete(path).status_code == 204
    assert stored_files(settings.data_dir) == set()
    for below in ("", "/records", "/files/train"):
        assert client.get(f"{path}{below}").status_code == 404
    assert client.delete(path).status_code == 404


def test_what_was_done_is_written_down(client: httpx.Client, database: Database) -> None:
    made = upload(client, name="berths")
    client.post("/datasets", content=sft_lines(), headers=LINES)
    client.delete(f"/datasets/{made['id']}")
    with database.reading() as session:
        events = list(session.execute(select(JobEvent).order_by(JobEvent.id)).scalars())
    assert [(event.type, event.actor, event.project) for event in events] == [
        ("dataset_created", "local", "default"),
        ("dataset_deleted", "local", "default"),
    ]
    assert all(event.data["dataset_id"] == made["id"] for event in events)


def test_checking_stores_nothing(client: httpx.Client, settings: Settings) -> None:
    answer = client.post("/datasets/validate", content=sft_lines(), headers=LINES)
    assert answer.status_code == 200, answer.text
    checked = answer.json()
    assert (checked["kind"], checked["known"], checked["splits"]["train"]["examples"]) == ("sft", None, 3)
    assert stored_files(settings.data_dir) == set()
    made = upload(client)
    again = client.post("/datasets/validate", files={"train": sft_lines()}).json()
    assert (again["known"], again["sha256"]) == (made["id"], made["sha256"])
    places(client.post("/datasets/validate", content=b"{", headers=LINES))


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "", "x" * 201])
def test_a_name_that_cannot_be_stored_is_refused(client: httpx.Client, name: str) -> None:
    by_query = client.post("/datasets", params={"name": name}, content=sft_lines(), headers=LINES)
    assert places(by_query)[0] == ("query", "name")
    by_field = client.post("/datasets", data={"name": name}, files={"train": sft_lines()})
    assert places(by_field) == [("body", "name")]
    assert client.get("/datasets").json()["items"] == []


def test_text_with_nul_and_every_script_is_stored_as_it_is(client: httpx.Client) -> None:
    line = '{"src":"\\u0000 ⛵","tgt":"a\\u0000\x7f"}\n'.encode()
    made = upload(client, line, name="⛵ Häfen")
    assert made["name"] == "⛵ Häfen"
    assert client.get(made["splits"]["train"]["url"]).content == line


def test_unknown_ids_are_a_404(client: httpx.Client, tmp_path: Path) -> None:
    for unknown in ("x", "00000000-0000-0000-0000-000000000000", "%2e%2e", "%00"):
        assert client.get(f"/datasets/{unknown}").status_code == 404
        assert client.get(f"/datasets/{unknown}/files/train").status_code == 404
    made = upload(client)
    for split in ("dev", "%2e%2e", "train.json", ".manifest.json"):
        assert client.get(f"/datasets/{made['id']}/files/{split}").status_code == 404


def test_what_a_crash_has_published_goes_unless_it_was_recorded(
    client: httpx.Client, settings: Settings
) -> None:
    made = upload(client)
    lost = f"datasets/{new_dataset_id()}"
    (tmp := settings.data_dir / "lost").mkdir()
    (tmp / "train.json").write_bytes(sft_lines())
    artifacts_for(settings.artifacts_url).publish_directory(tmp, lost)
    long_ago = time.time() - 2 * YOUNG_S
    for number, key in enumerate((f"datasets/{made['id']}", lost)):
        folder = settings.data_dir / "uploads" / str(number)
        folder.mkdir()
        note_key(folder, key)
        os.utime(folder, (long_ago, long_ago))
    again = client.post("/datasets", content=sft_lines(), headers=LINES)
    assert (again.status_code, again.json()) == (200, made)
    assert {path.parent.name for path in stored_files(settings.data_dir)} == {made["id"]}
