"""The dashboard's files: who may read them, how they are kept, and what they may load."""

import re
from pathlib import Path

import httpx
import pytest

from api.web.pages import STATIC, TYPES
from tests.api.keyed import Keyed

FILES = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())


def policy(answer: httpx.Response) -> dict[str, list[str]]:
    """The content security policy, by directive."""
    parts = (part.split() for part in answer.headers["content-security-policy"].split(";"))
    return {name: values for name, *values in parts}


def test_the_page_loads_nothing_but_files_of_this_server(refusing_client: httpx.Client) -> None:
    answer = refusing_client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    rules = policy(answer)
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == ["'self'"]
    assert rules["frame-ancestors"] == rules["base-uri"] == ["'none'"]
    assert rules["require-trusted-types-for"] == ["'script'"]
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|https?://", answer.text)


def test_every_file_is_served_as_what_it_is(refusing_client: httpx.Client) -> None:
    assert {Path(file).suffix for file in FILES} == set(TYPES)
    for file in FILES:
        answer = refusing_client.get(f"/static/{file}")
        assert answer.status_code == 200, file
        assert answer.content == (STATIC / file).read_bytes()
        assert answer.headers["content-type"] == TYPES[Path(file).suffix]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_has_not_changed_is_not_sent_again(refusing_client: httpx.Client) -> None:
    for path in ("/", "/static/js/main.js"):
        answer = refusing_client.get(path)
        assert answer.headers["cache-control"] == "no-cache"
        tag = answer.headers["etag"]
        for known in (tag, f'"other", W/{tag}', "*"):
            again = refusing_client.get(path, headers={"if-none-match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert refusing_client.get(path, headers={"if-none-match": '"other"'}).status_code == 200
        head = refusing_client.head(path)
        assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../pages.py",
        "/static/%2e%2e/pages.py",
        "/static/..%2fpages.py",
        "/static/js/%2e%2e/%2e%2e/%2e%2e/pages.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/js%5c..%5c..%5cpages.py",
        "/static/js/main.js%00.css",
        "/static/js",
        "/static/",
        "/static/js/none.js",
    ],
)
def test_nothing_else_is_served(refusing_client: httpx.Client, path: str) -> None:
    with httpx.Client(base_url=refusing_client.base_url) as client:
        url = client.base_url.copy_with(raw_path=path.encode())
        answer = client.get(url)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_what_the_files_name_is_there() -> None:
    named = set()
    for file in FILES:
        text = (STATIC / file).read_text()
        named |= {STATIC / name for name in re.findall(r'(?:src|href)="/static/([^"]+)"', text)}
        named |= {
            (STATIC / file).parent / name
            for name in re.findall(r'(?:\bfrom|\bimport\(|^import)\s*"([^"]+)"', text, re.MULTILINE)
        }
    assert len(named) > 20
    assert not [str(path) for path in named if not path.resolve().is_file()]


def test_no_script_writes_markup() -> None:
    markup = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")
    assert not [file for file in FILES if file.endswith(".js") and markup.search((STATIC / file).read_text())]


def test_anybody_may_read_the_pages_but_no_data(keyed: Keyed) -> None:
    with httpx.Client(base_url=keyed.url) as client:
        assert client.get("/").status_code == 200
        assert client.get("/static/js/main.js").status_code == 200
        assert client.get("/jobs").status_code == 401
        assert client.post("/").status_code == 401


def test_the_page_hides_no_call_of_the_api(refusing_client: httpx.Client) -> None:
    assert refusing_client.get("/jobs").headers["content-type"] == "application/json"
    assert refusing_client.get("/nothing").status_code == 404
    assert refusing_client.post("/").headers["allow"] == "GET, HEAD"
    assert not {"/", "/static/{path}"} & set(refusing_client.get("/openapi.json").json()["paths"])
