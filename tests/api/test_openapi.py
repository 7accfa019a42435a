"""The description of the API, and that nothing a client sends makes the service fail."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from api.problems import MEDIA_TYPE, TITLES

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
OPENAI_ERROR = {"$ref": "#/components/schemas/OpenAIError"}
PROBLEM = {"$ref": "#/components/schemas/Problem"}


@pytest.fixture
def document(refusing_client: httpx.Client) -> dict[str, Any]:
    return refusing_client.get("/openapi.json").json()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_refusal_has_the_shape_of_its_api(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        of_openai = path.startswith("/v1/")
        shape = (
            {"application/json": {"schema": OPENAI_ERROR}} if of_openai else {MEDIA_TYPE: {"schema": PROBLEM}}
        )
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert answer["content"] == shape, (path, method, status)
        invalid = "400" if of_openai else "422"
        assert {"401", "403", "421", invalid, "500", "503"} <= operation["responses"].keys()


def test_every_call_with_a_body_says_how_the_body_may_be_refused(document: dict[str, Any]) -> None:
    described = [operation for *_, operation in operations(document) if "requestBody" in operation]
    assert described
    for operation in described:
        assert {"400", "408", "413", "415"} <= operation["responses"].keys(), operation["operationId"]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.partition('"')[0] in document["components"]["schemas"]


def test_the_guide_names_every_call_and_no_other(document: dict[str, Any]) -> None:
    docs = Path(__file__).parents[2] / "docs"
    guide = "".join((docs / page).read_text() for page in ("api.md", "openai.md"))
    named = re.findall(r"^\| `((?:GET|POST|PUT|PATCH|DELETE) /[^`]*)` \|", guide, re.MULTILINE)
    assert sorted(named) == sorted(f"{method.upper()} {path}" for path, method, _ in operations(document))
    assert named


def test_every_call_says_what_key_it_wants(document: dict[str, Any]) -> None:
    wanted = {
        (method.upper(), path): operation.get("x-regatta-scope")
        for path, method, operation in operations(document)
    }
    assert wanted["GET", "/jobs"] == "read"
    assert wanted["POST", "/jobs"] == "write"
    assert wanted["POST", "/keys"] == "admin"
    assert {call for call, scope in wanted.items() if scope is None} == {
        ("GET", "/healthz"),
        ("GET", "/readyz"),
    }


def test_the_guide_names_every_kind_of_problem() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    named = re.findall(r"^\| (\d{3}) \| `([a-z-]+)` \|", guide, re.MULTILINE)
    assert sorted(named) == sorted((str(status), kind) for kind, (status, _) in TITLES.items())


def test_the_body_of_a_job_is_described(document: dict[str, Any]) -> None:
    body = document["paths"]["/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/JobRequest"}
    assert document["components"]["schemas"]["JobRequest"]["required"] == ["task", "config"]


def test_every_other_method_is_a_405_that_allows_the_right_ones(
    refusing_client: httpx.Client, document: dict[str, Any]
) -> None:
    for path, methods in document["paths"].items():
        if path in ("/jobs/validate", "/datasets/validate"):
            continue  # to other methods this is a job or a data set of that name
        allowed = {method.upper() for method in methods}
        if path.endswith(("/archive", "{path}", "{split}")):
            allowed.add("HEAD")
        for method in METHODS:
            if method not in allowed:
                answer = refusing_client.request(method, path)
                assert answer.status_code == 405, (method, path)
                assert set(answer.headers["allow"].split(", ")) == allowed
                expected = "application/json" if path.startswith("/v1/") else MEDIA_TYPE
                assert answer.headers["content-type"] == expected


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
members = st.fixed_dictionaries(
    {},
    optional={
        "task": st.just("finetune") | values,
        "config": values | st.dictionaries(st.sampled_from(["max_steps", "learning_rate", "x"]), values),
        "name": values,
        "priority": values,
        "labels": values,
        "resources": values,
        "timeout_s": values,
        "max_retries": values,
        "webhook": values,
    },
)
fuzzed = hypothesis_settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@fuzzed
@given(body=members | values)
@example(body={"task": "finetune", "config": {"name": "\ud800"}})
def test_no_json_makes_the_service_fail(refusing_client: httpx.Client, body: Any) -> None:
    content = json.dumps(body).encode()
    answer = refusing_client.post(
        "/jobs/validate", content=content, headers={"content-type": "application/json"}
    )
    assert answer.status_code in (200, 400, 422), answer.text
    assert answer.json()


@fuzzed
@given(content=st.binary(max_size=200) | st.text(st.characters(codec="utf-8")).map(str.encode))
def test_no_bytes_make_the_service_fail(refusing_client: httpx.Client, content: bytes) -> None:
    answer = refusing_client.post("/jobs", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)


queries = st.dictionaries(
    st.sampled_from(
        ["after", "cursor", "limit", "tail", "rank", "kind", "status", "task", "name", "label", "follow"]
    ),
    st.text(st.characters(codec="utf-8"), max_size=30) | st.integers().map(str),
    max_size=3,
)


@fuzzed
@given(
    path=st.sampled_from(
        [
            "/jobs",
            "/jobs/{id}/events",
            "/jobs/{id}/metrics",
            "/jobs/{id}/logs",
            "/jobs/{id}/checkpoints",
            "/presets",
            "/hosts",
        ]
    ),
    query=queries,
    last_event_id=st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20),
)
def test_no_query_makes_the_service_fail(
    client: httpx.Client, cancelled: str, path: str, query: dict[str, str], last_event_id: str | None
) -> None:
    headers = {} if last_event_id is None else {"last-event-id": last_event_id}
    answer = client.get(path.format(id=cancelled), params=query, headers=headers)
    assert answer.status_code in (200, 422), answer.text


@pytest.fixture
def cancelled(client: httpx.Client, submit: Any) -> str:
    """The id of a job that is over, so that its streams end."""
    job_id = submit()["id"]
    client.post(f"/jobs/{job_id}/cancel")
    return job_id


def test_the_page_that_shows_the_description_loads_nothing_from_elsewhere(
    refusing_client: httpx.Client,
) -> None:
    page = refusing_client.get("/docs")
    assert page.status_code == 200
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) == 3
    for address in loaded:
        assert address.startswith("/docs/static/")
        assert refusing_client.get(address).status_code == 200
    assert "'/openapi.json'" in page.text
    policy = page.headers["content-security-policy"]
    assert "script-src 'self' 'unsafe-inline';" in policy
    assert "://" not in policy
