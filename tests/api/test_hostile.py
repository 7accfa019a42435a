"""What a hostile or careless client may send to any call: it is refused, and the service does not fail."""

import json
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from store.keys import Scope
from tests.api.keyed import Keyed
from tests.api.parts import on_both_databases, places
from tests.api.test_access import Call, calls

EVIL_NAMES = [
    "%00",
    "a%00b",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "%252e%252e%252fetc%252fpasswd",
    "..%5c..%5cboot.ini",
    "%2fetc%2fpasswd",
    "%c0%ae%c0%ae%2f",
    "%ed%a0%80",
    "%0d%0aX-Evil:%201",
    "a" * 5000,
    "%F0%9F%98%80",
    "%20",
    "-1",
]
EVIL_VALUES = [
    "\0",
    "a\0b",
    "\r\nX-Evil: 1",
    "9" * 400,
    "-1",
    "1e400",
    "NaN",
    "٣",
    "x" * 30_000,
    "../../etc/passwd",
    "key:\0",
    "WzFlOTk5LCJ4Il0",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "🙂",
    "' OR 1=1 --",
    "",
]
ENDLESS = {"follow"}


@pytest.fixture
def boss(keyed: Keyed) -> Iterator[httpx.Client]:
    """A client that may call everything."""
    with keyed.client(scopes=[Scope.admin]) as client:
        yield client


@pytest.fixture
def job_id(boss: httpx.Client, config: dict[str, Any]) -> str:
    return boss.post("/jobs", json={"task": "finetune", "config": config}).json()["id"]


def document(client: httpx.Client) -> dict[str, Any]:
    return client.get("/openapi.json").json()


def fill(call: Call, value: str, **real: str) -> str:
    return re.sub(r"{(\w+)(?::\w+)?}", lambda match: real.get(match[1], value), call.path)


def sound(answer: httpx.Response, *context: object) -> None:
    """The service has not failed, and nobody but itself has written its headers."""
    assert answer.status_code < 500, (*context, answer.text)
    assert "x-evil" not in answer.headers, context


@on_both_databases
def test_no_name_in_a_path_leads_elsewhere(keyed: Keyed, boss: httpx.Client, job_id: str) -> None:
    for call in calls(keyed.app):
        for name in EVIL_NAMES if call.parameters else ():
            addresses = {fill(call, name)}
            if call.parameters[0] == "job_id" and len(call.parameters) > 1:
                addresses.add(fill(call, name, job_id=job_id))
            for address in addresses:
                json_body = {} if call.method in ("POST", "PUT", "PATCH") else None
                answer = boss.request(call.method, address, json=json_body)
                sound(answer, call, name)
                assert answer.status_code >= 400, (call, name)
                assert "root:" not in answer.text


@on_both_databases
def test_no_value_in_a_query_makes_the_service_fail(boss: httpx.Client, job_id: str) -> None:
    for path, operations in document(boss)["paths"].items():
        for parameter in operations.get("get", {}).get("parameters", ()):
            if parameter["in"] != "query" or parameter["name"] in ENDLESS:
                continue
            address = re.sub(r"{\w+}", "x", path.replace("{job_id}", job_id))
            for value in EVIL_VALUES:
                answer = boss.get(address, params={parameter["name"]: value})
                sound(answer, address, parameter["name"], value)


def test_a_name_that_no_call_takes_is_refused_by_every_list(keyed: Keyed, boss: httpx.Client) -> None:
    for call in calls(keyed.app):
        if call.method == "GET" and not call.parameters:
            answer = boss.get(call.path, params={"limitt": "5"})
            assert answer.status_code == (400 if call.path.startswith("/v1/") else 422), call


def bodies() -> dict[str, bytes]:
    deep = 100_000
    many = ",".join(f'"key{number}":{number}' for number in range(30_000))
    return {
        "a deep list": b"[" * deep + b"]" * deep,
        "a deep object": b'{"config":' * deep + b"{}" + b"}" * deep,
        "a deep config": b'{"task": "finetune", "config": {"a":' + b"[" * 500 + b"]" * 500 + b"}}",
        "very many names": ("{" + many + "}").encode(),
        "more than a body may have": b'{"name": "' + b"x" * (2 << 20) + b'"}',
        "a huge integer": b'{"task": "finetune", "priority": ' + b"9" * 10_000 + b"}",
        "a large integer": b'{"priority": 123456789012345678901234567890, "task": "finetune"}',
        "an exponent without end": b'{"priority": 1e999999999}',
        "the same name twice": b'{"task": "finetune", "task": "dpo"}',
        "no number": b'{"priority": NaN, "timeout_s": Infinity}',
        "a NUL": b'{"name": "a\\u0000b"}',
        "half a pair": b'{"name": "\\ud800"}',
        "a list": b"[]",
        "null": b"null",
        "nothing": b" ",
        "an end too early": b'{"task": "finetune"',
        "more than one": b"{}{}",
        "another encoding": '{"name": "x"}'.encode("utf-16"),
        "no encoding": b'{"name": "\xff\xfe"}',
        "names of the machinery": b'{"__proto__": {"admin": true}, "__class__": "x", "constructor": {}}',
        "everything of another type": b'{"task": [], "config": 1, "name": {}, "labels": "x", "jobs": {}}',
    }


@pytest.mark.parametrize("what", bodies())
def test_no_body_makes_any_call_fail(refusing_client: httpx.Client, what: str) -> None:
    content, tried = bodies()[what], 0
    for path, operations in document(refusing_client)["paths"].items():
        for method, operation in operations.items():
            kinds = operation.get("requestBody", {}).get("content", {})
            for kind in kinds:
                address = re.sub(r"{\w+}", "x", path)
                headers = {"content-type": kind if "json" in kind else f"{kind}; boundary=x"}
                answer = refusing_client.request(method, address, content=content, headers=headers)
                sound(answer, method, address)
                assert answer.status_code >= 400, (method, address, answer.text)
                tried += 1
    assert tried > 10


@pytest.mark.parametrize(
    "header",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "",
    ],
)
def test_a_body_of_another_type_is_refused_by_every_call(refusing_client: httpx.Client, header: str) -> None:
    for path, operations in document(refusing_client)["paths"].items():
        for method, operation in operations.items():
            if set(operation.get("requestBody", {}).get("content", ())) == {"application/json"}:
                address = re.sub(r"{\w+}", "x", path)
                answer = refusing_client.request(
                    method, address, content=b"{}", headers={"content-type": header}
                )
                assert answer.status_code == 415, (method, address, answer.text)


def test_other_methods_are_told_which_there_are(boss: httpx.Client) -> None:
    for path in document(boss)["paths"]:
        for method in ("TRACE", "PROPFIND", "PURGE"):
            answer = boss.request(method, re.sub(r"{\w+}", "x", path))
            assert answer.status_code == 405, (method, path)
            assert answer.headers["allow"]


def test_a_key_counts_only_as_it_is_and_where_it_belongs(keyed: Keyed) -> None:
    key = keyed.key()
    right = f"Bearer {key}".encode()
    wrong: list[dict[str, Any]] = [
        {"params": {"access_token": key}},
        {"params": {"authorization": f"Bearer {key}"}},
        {"headers": [(b"cookie", b"authorization=" + key.encode())]},
        {"headers": [(b"x-api-key", key.encode())]},
        {"headers": [(b"authorization", key.encode())]},
        {"headers": [(b"authorization", right.upper())]},
        {"headers": [(b"authorization", right.lower())]},
        {"headers": [(b"authorization", right[:-1])]},
        {"headers": [(b"authorization", right + b"x")]},
        {"headers": [(b"authorization", right + b", " + right)]},
        {"headers": [(b"authorization", right), (b"authorization", right)]},
        {"headers": [(b"authorization", right), (b"authorization", b"Bearer other")]},
        {"headers": [(b"authorization", b"Bearer " + b"a" * 50_000)]},
        {"headers": [(b"authorization", b"Bearer \xff\xfe\xfd")]},
        {"headers": [(b"authorization", b"Bearer " + "rgt_😀".encode())]},
        {"headers": [(b"authorization", b"Bearer rgt_%_%")]},
    ]
    with keyed.without() as client:
        assert client.get("/jobs", headers=[(b"authorization", right)]).status_code == 200
        for options in wrong:
            answer = client.get("/jobs", **options)
            assert answer.status_code == 401, options
            assert key not in answer.text


RAW = [
    b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1e3\r\n\r\n",
    b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
    b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"GET /jobs HTTP/1.1\r\n\r\n",
    b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET http://evil.example/jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET /jobs HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET /jobs\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX Bad: 1\r\n\r\n",
    b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\x00b\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
]


@pytest.mark.parametrize("request_bytes", RAW, ids=lambda raw: repr(raw[:60]))
def test_what_is_no_http_is_refused_and_the_next_one_is_served(
    refusing_client: httpx.Client, request_bytes: bytes
) -> None:
    answer = exchange(refusing_client, request_bytes)
    assert re.match(rb"HTTP/1.1 4\d\d ", answer) or not answer, answer[:200]
    assert refusing_client.get("/healthz").status_code == 200


def exchange(client: httpx.Client, request_bytes: bytes) -> bytes:
    """What the server answers before it ends the connection; it may just end it."""
    url = urlsplit(str(client.base_url))
    received = b""
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=10) as connection:
        with suppress(OSError):  # it need not read all of it
            connection.sendall(request_bytes)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while part := connection.recv(65536):
                received += part
    return received


@pytest.mark.parametrize("text", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "\x1b[2J", "\x7f"])
def test_no_name_holds_what_could_end_a_line(
    refusing_client: httpx.Client, config: dict[str, Any], text: str
) -> None:
    job = {"task": "finetune", "config": config}
    for path, body in (
        ("/jobs", job | {"name": text}),
        ("/jobs", job | {"labels": {"team": text}}),
        ("/jobs", job | {"labels": {text: "x"}}),
        ("/jobs", job | {"secrets": {"TOKEN": f"long enough {text}"}}),
        ("/jobs", job | {"webhook": {"url": f"https://example.com/{text}"}}),
        ("/pipelines", {"name": text, "jobs": [job | {"id": "one"}]}),
        ("/pipelines", {"jobs": [job | {"id": text}]}),
        ("/keys", {"name": text, "scopes": ["read"]}),
        ("/projects", {"name": text}),
    ):
        answer = refusing_client.post(path, json=body)
        assert answer.status_code == 422, (path, json.dumps(body), answer.text)
        assert "x-evil" not in answer.headers


def test_links_in_a_root_lead_to_nothing_outside(
    client: httpx.Client, config: dict[str, Any], roots: Path
) -> None:
    outside = roots / "outside"
    for kind, name in (("models", "gemma"), ("data", "sft")):
        shutil.copytree(roots / kind / name, outside / kind)
        (roots / kind / "linked").symlink_to(outside / kind)
        (roots / kind / "up").symlink_to("../..")
    listed = [model["name"] for model in client.get("/models", params={"limit": 200}).json()["items"]]
    assert "gemma" in listed
    assert not {"linked", "up/outside/models"} & set(listed)
    for name in ("linked", "up/outside/models", "up"):
        assert client.get(f"/models/{name}").status_code == 404
    for argument, name in (
        ("model_name_or_path", "linked"),
        ("model_name_or_path", "up/outside/models"),
        ("dataset_name_or_path", "linked"),
        ("dataset_name_or_path", "up/outside/data"),
    ):
        answer = client.post("/jobs/validate", json={"task": "finetune", "config": config | {argument: name}})
        assert places(answer) == [("body", "config", argument)], name
