"""Bodies of uploads that are refused, or that try to be something else; a refusal leaves nothing behind."""

import gzip
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.datasets import receiving
from tests.api.datasets.conftest import SMALL_LIMIT, dpo_lines, kto_lines, sft_lines, stored_files
from tests.api.parts import places, wait_until

LINES = {"content-type": "application/x-ndjson"}
FORM = {"content-type": "multipart/form-data; boundary=B"}

pytestmark = pytest.mark.usefixtures("nothing_left")


def refuse(client: httpx.Client, content: bytes, **params: str) -> list[dict]:
    answer = client.post("/datasets", content=content, params=params, headers=LINES)
    assert places(answer)
    return answer.json()["errors"]


def test_every_kind_of_error_is_counted_and_the_first_lines_are_shown(shared_client: httpx.Client) -> None:
    lines = [b'{"src": "q", "tgt": ""}'] * 3 + [b"{"] * 9 + [b'{"src": "q"}', sft_lines(1).strip()]
    summary, *shown = refuse(shared_client, b"\n\n".join(lines))
    assert summary["loc"] == ["body", "train"]
    assert (
        summary["msg"]
        == "13 of 14 lines of train cannot be used: 9 x broken JSON, 3 x empty target, 1 x no tgt"
    )
    assert [error["loc"] for error in shown] == [["body", "train", 2 * n + 1] for n in range(10)]


def test_the_errors_of_all_files_of_a_form_are_told(shared_client: httpx.Client) -> None:
    files = [
        ("train", ("a.json", sft_lines(1))),
        ("train", ("b.json", b'{"src": "q"}\n')),
        ("dev", ("c.json", b"")),
    ]
    answer = shared_client.post("/datasets", files=files)
    assert places(answer) == [("body", "train"), ("body", "train", "b.json", 1), ("body", "dev")]


@pytest.mark.parametrize(
    ("content", "kind", "told"),
    [
        (kto_lines(1), "dpo", "this is data of task kto (one response with its sort); task kto takes it"),
        (dpo_lines(1), "kto", "this is data of task dpo (two responses); task dpo takes it"),
        (dpo_lines(1), "sft", "this is preference data (it has response and sort); task dpo or kto takes it"),
        (sft_lines(1), "dpo", "this is fine-tuning data (it has no response); task finetune takes it"),
        (dpo_lines(1) + kto_lines(1), "", "line 2: this is data of task kto"),
        (b'{"prompt": "q", "chosen": "a", "rejected": "b"}', "", 'and add "sort": [1, 0]'),
        (b'{"messages": []}', "", "this is chat data (it has messages)"),
    ],
)
def test_another_kind_of_data_is_told_as_such(
    shared_client: httpx.Client, content: bytes, kind: str, told: str
) -> None:
    params = {"kind": kind} if kind else {}
    assert told in refuse(shared_client, content, **params)[1]["msg"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"src": "q", "tgt": "\xff"}', "byte 21 is not UTF-8 text"),
        (b'{"src": "q", "tgt": "a", "x": NaN}', "NaN is not a JSON number"),
        (b'{"src": "q", "tgt": "a", "x": 1e999}', "the number 1e999 is too large"),
        (b'{"src": "q", "tgt": "\\ud800"}', "tgt has an unpaired surrogate"),
        (b'{"src": "q", "src": "r", "tgt": "a"}', "the key 'src' appears twice"),
        (b'{"src": "q", "tgt": "a", "x": ' + b"[" * 100_000, "nested too deeply"),
        ('{"src": "q"}'.encode("utf-16"), "byte 0 is not UTF-8 text"),
        (b"\0" * 100, "broken JSON"),
        (b"7", "expected an object"),
    ],
)
def test_what_is_no_record_is_told(shared_client: httpx.Client, line: bytes, told: str) -> None:
    assert told in refuse(shared_client, line)[1]["msg"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "train has no record, expected at least one"),
        (b" \r\n\n\t\n", "train has no record, expected at least one"),
        (b"[" + sft_lines(1) + b"]", "it is one JSON array, expected JSON lines"),
        (gzip.compress(sft_lines(500), mtime=0)[:100], "it cannot be unpacked: it ends too early"),
        (gzip.compress(sft_lines(), mtime=0)[:-8] + b"damaged!", "it cannot be unpacked"),
        (gzip.compress(sft_lines(), mtime=0) + b"more", "it cannot be unpacked"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(shared_client: httpx.Client, content: bytes, told: str) -> None:
    assert told in refuse(shared_client, content)[0]["msg"]
    answer = shared_client.post("/datasets", files={"dev": ("d.json", content)})
    assert answer.status_code == 422
    assert told.replace("train", "dev") in answer.json()["errors"][0]["msg"]


def test_more_than_the_limit_is_refused_packed_or_not(shared_client: httpx.Client) -> None:
    lines = sft_lines(SMALL_LIMIT // 40)
    assert len(lines) > SMALL_LIMIT
    for content in (lines, gzip.compress(lines)):
        answer = shared_client.post("/datasets", content=content, headers=LINES)
        assert (answer.status_code, answer.json()["max_bytes"]) == (413, SMALL_LIMIT)
    half = lines[: len(lines) * 2 // 3]
    answer = shared_client.post("/datasets", files=[("train", half), ("dev", half)])
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({}, 415),
        (FORM | {"content-encoding": "gzip"}, 415),
        (LINES | {"content-encoding": "br"}, 415),
        ({"content-type": "multipart/form-data"}, 400),
        ({"content-type": f"multipart/form-data; boundary={'b' * 71}"}, 400),
        ({"content-type": 'multipart/form-data; boundary="\xe4"'}, 400),
    ],
)
def test_another_media_type_is_refused(
    shared_client: httpx.Client, headers: dict[str, str], status: int
) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    answer = shared_client.post("/datasets", content=sft_lines(), headers=raw)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def part(disposition: str, content: bytes, boundary: bytes = b"--B") -> bytes:
    return boundary + f"\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + content + b"\r\n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"no form", 400),
        (b"--B--\r\n", 422),
        (part('form-data; name="train"; filename="a"', sft_lines()), 400),
        (part('form-data; name="train"; filename="a"', sft_lines())[:-20], 400),
        (part("form-data", sft_lines()) + b"--B--\r\n", 422),
        (part('form-data; name="other"', b"x") + b"--B--\r\n", 422),
        (part('form-data; name="name"; filename="x"', b"x") + b"--B--\r\n", 422),
        (part('form-data; name="name"', b"\xff") + b"--B--\r\n", 400),
        (part('form-data; name="name"', b"x" * 5000) + b"--B--\r\n", 400),
        (part('form-data; name="split"', b"test") + b"--B--\r\n", 422),
        (part('form-data; name="kind"', b"pdf") + b"--B--\r\n", 422),
        (part('form-data; name="train"; filename="a"', b"{}\n") * 1001 + b"--B--\r\n", 400),
        (b"--B\r\n" + b"X: y\r\n" * 100_000 + b"\r\n", 400),
        (b"--B\r\nX: " + b"y" * 1_000_000, 400),
    ],
)
def test_a_form_that_cannot_be_used_is_refused(shared_client: httpx.Client, body: bytes, status: int) -> None:
    answer = shared_client.post("/datasets", content=body, headers=FORM)
    assert (answer.status_code, answer.json()["status"]) == (status, status)


def test_split_and_kind_come_before_the_files_they_are_about(shared_client: httpx.Client) -> None:
    file = part('form-data; name="file"; filename="a"', sft_lines())
    for name, value in (("split", b"dev"), ("kind", b"dpo")):
        field = part(f'form-data; name="{name}"', value)
        answer = shared_client.post("/datasets", content=file + field + b"--B--\r\n", headers=FORM)
        assert places(answer) == [("body", name)]
    split = part('form-data; name="split"', b"dev")
    answer = shared_client.post("/datasets/validate", content=split + file + b"--B--\r\n", headers=FORM)
    assert list(answer.json()["splits"]) == ["dev"]


@contextmanager
def connection(client: httpx.Client, body: bytes, length: int) -> Iterator[socket.socket]:
    """A client that has said that it sends `length` bytes, and has sent the `body`."""
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=20) as connected:
        head = f"POST /datasets HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {length}\r\n"
        connected.sendall(head.encode() + b"Content-Type: application/x-ndjson\r\n\r\n" + body)
        yield connected


def test_a_client_that_stops_leaves_nothing_behind(shared_client: httpx.Client, shared_dir: Path) -> None:
    with connection(shared_client, sft_lines(50_000), 8_000_000):
        wait_until(lambda: list((shared_dir / "uploads").glob("*/train.json")))
    wait_until(lambda: not list((shared_dir / "uploads").iterdir()))


def test_a_client_that_does_not_go_on_is_told_so(
    shared_client: httpx.Client, shared_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "SILENCE_S", 0.3)
    with connection(shared_client, sft_lines(), 1000) as connected:
        assert connected.recv(100).startswith(b"HTTP/1.1 408 ")
    wait_until(lambda: not list((shared_dir / "uploads").iterdir()))


@pytest.mark.parametrize(
    "filename",
    [
        "../../../etc/passwd",
        "/etc/passwd",
        "..",
        "C:\\\\temp\\\\x",
        "train.json%00.exe",
        "a\rX-Evil: 1",
        "x" * 3000,
        "\u202egnp.exe",
        "",
    ],
)
def test_names_of_files_are_shown_and_nothing_else(
    shared_client: httpx.Client, shared_dir: Path, filename: str
) -> None:
    disposition = f'form-data; name="train"; filename="{filename}"'
    body = part(disposition, b'{"src": "q"}') + b"--B--\r\n"
    answer = shared_client.post("/datasets", content=body, headers=FORM)
    if "\r" in filename:
        assert answer.status_code == 400
        return
    shown = places(answer)[1][2]
    assert shown == 1 or re.fullmatch(r"[\x20-\x7e]{1,61}…?", str(shown))
    assert "x-evil" not in answer.headers
    good = part(disposition, sft_lines(4)) + b"--B--\r\n"
    made = shared_client.post("/datasets", content=good, headers=FORM).json()
    folder = shared_dir / "artifacts" / "datasets" / made["id"]
    assert sorted(path.name for path in folder.iterdir()) == [".manifest.json", "train.json"]
    assert {path.relative_to(shared_dir).parts[:2] for path in stored_files(shared_dir)} == {
        ("artifacts", "datasets")
    }
    assert shared_client.delete(f"/datasets/{made['id']}").status_code == 204


def test_a_name_cannot_make_headers(shared_client: httpx.Client) -> None:
    name = 'x"; filename="evil.exe'
    made = shared_client.post("/datasets", params={"name": name}, content=sft_lines(5), headers=LINES).json()
    file = shared_client.get(made["splits"]["train"]["url"])
    assert file.headers["content-disposition"] == "attachment; filename*=UTF-8''train.json"
    assert json.loads(shared_client.get("/datasets", params={"name": name}).text)["items"] == [made]
    assert shared_client.delete(f"/datasets/{made['id']}").status_code == 204


pieces = st.lists(
    st.binary(max_size=40)
    | st.sampled_from(
        [
            b"--B\r\n",
            b"--B--\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b'Content-Disposition: form-data; name="train"; filename="a"',
            b'Content-Disposition: form-data; name="split"',
            b"dev",
            b"\n",
            b"\x1f\x8b\x08\x00",
            gzip.compress(sft_lines(1), mtime=0),
            sft_lines(1),
            dpo_lines(1),
            b'{"src": ["a"], "tgt": [1], "response": {}, "sort": null}',
        ]
    ),
    max_size=8,
).map(b"".join)


@given(body=pieces, headers=st.sampled_from([LINES, FORM]))
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_body_makes_the_service_fail(
    shared_client: httpx.Client, body: bytes, headers: dict[str, str]
) -> None:
    answer = shared_client.post("/datasets/validate", content=body, headers=headers)
    assert answer.status_code in (200, 400, 422), answer.text
    assert answer.json()
