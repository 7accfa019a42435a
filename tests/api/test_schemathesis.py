"""Calls of every operation at random, as its description allows them and as it does not: whatever is sent,
the answer is one that the description has, and it never is a failure of the server.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from store.broker import Broker
from store.database import Database
from store.keys import Scope
from store.secretbox import ensure_key_file
from store.settings import Settings
from tests.api.keyed import Keyed
from tests.api.parts import Job, serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
FEW, MANY = 3, 60
"""Calls of each operation and kind: in every run of the tests, and in a long one."""
TIMEOUT_S = 20
ENDLESS = {"/events"}
"""Streams that no end of a job ends."""

both = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


@dataclass(frozen=True)
class Target:
    """A server, whom it knows the calls by, and things that the names in paths may stand for."""

    url: str
    headers: dict[str, str]
    things: dict[str, tuple[str, ...]]


@pytest.fixture
def keys_required(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def target(
    keys_required: bool,
    settings: Settings,
    database: Database,
    config: dict[str, Any],
    tmp_path: Path,
    broker: Broker,
) -> Iterator[Target]:
    """A server that has something of every kind."""
    ensure_key_file(settings)
    settings = settings.model_copy(update={"api_keys_required": keys_required})
    with serving(settings) as server:
        keyed = Keyed(server.url, database, server.server.app)
        with keyed.client(scopes=[Scope.admin]) as client:
            things = make_things(client, database, settings, config, tmp_path / "published")
            headers = {"authorization": client.headers["authorization"]} if keys_required else {}
            yield Target(server.url, headers, things)


def make_things(
    client: httpx.Client, database: Database, settings: Settings, config: dict[str, Any], folder: Path
) -> dict[str, tuple[str, ...]]:
    """Something of every kind, by the name of its path parameter."""
    hook = {"url": "https://example.com/hook"}

    def post(path: str, **options: Any) -> dict[str, Any]:
        answer = client.post(path, **options)
        assert answer.is_success, answer.text
        return answer.json()

    finetune = {"task": "finetune", "config": config}
    waiting = post("/jobs", json=finetune | {"name": "waits"})["id"]
    done = post("/jobs", json=finetune | {"webhook": hook})["id"]
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "model.bin").write_bytes(b"weights")
    job = Job(done, database, settings)
    job.start()
    job.step(1, 2)
    job.log(3)
    job.publish("checkpoint-2", folder, step=2, is_best=False)
    job.publish("result", folder)
    job.finish()
    lines = '{"src": "a question", "tgt": "an answer"}\n'
    dataset = post("/datasets", content=lines, headers={"content-type": "application/jsonl"})["id"]
    pipeline = post("/pipelines", json={"jobs": [finetune | {"id": "one"}]})["id"]
    assert client.put("/secrets/TOKEN", json={"value": "not to be told"}).is_success
    return {
        "job_id": (waiting, done, done),
        "fine_tuning_job_id": (f"ftjob-{waiting}", f"ftjob-{done}"),
        "dataset_id": (dataset,),
        "file_id": (f"file-{dataset}",),
        "pipeline_id": (pipeline,),
        "project": ("default",),
        "name": ("checkpoint-2", "TOKEN", "sft"),
        "path": ("deep/model.bin",),
        "split": ("train",),
        "family": ("gemma",),
        "task": ("finetune",),
    }


def wide_open(document: dict[str, Any]) -> dict[str, Any]:
    """The description without what it says of keys: they are sent with every call, or with none."""
    for operations in document["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    document["components"].pop("securitySchemes", None)
    return document


def described(target: Target) -> dict[str, Any]:
    return wide_open(requests.get(f"{target.url}/openapi.json", headers=target.headers, timeout=20).json())


def findings(target: Target, document: dict[str, Any], examples: int) -> list[str]:
    """What is wrong with the answers, in words. An operation is left at its first finding."""
    found = []
    with requests.Session() as session:
        session.headers.update(target.headers)
        for result in schemathesis.openapi.from_dict(document).get_all_operations():
            assert isinstance(result, Ok), result
            operation = result.ok()
            for mode in GenerationMode if negatable(operation) else [GenerationMode.POSITIVE]:
                try:
                    call_at_random(operation, mode, target, session, examples)
                except FailureGroup as failures:
                    found += [f"{operation.label}: {failure}" for failure in failures.exceptions]
                except Unsatisfiable:
                    assert mode is GenerationMode.NEGATIVE
    return found


def negatable(operation: APIOperation) -> bool:
    """Whether something of a call can be wrong; any text is right in a path."""
    return bool(operation.query or operation.headers or operation.body)


def call_at_random(
    operation: APIOperation, mode: GenerationMode, target: Target, session: requests.Session, examples: int
) -> None:
    """Raises: FailureGroup of the first answer with something wrong."""
    real = cycle((True, True, False))

    @hypothesis_settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Case) -> None:
        if next(real):
            name_real_things(case, target.things)
        bound(case)
        answer = case.call(base_url=target.url, session=session, timeout=TIMEOUT_S)
        case.validate_response(answer, checks=CHECKS)

    call()


def name_real_things(case: Case, things: dict[str, tuple[str, ...]]) -> None:
    """Put what there is into the path; else nearly every call would ask for what there is not."""
    for name in case.path_parameters or {}:
        if name in things:
            several = things[name]
            case.path_parameters[name] = several[len(repr(case.query)) % len(several)]


def bound(case: Case) -> None:
    """Leave out what would start processes or never end."""
    if not isinstance(case.query, dict):
        return
    case.query.pop("preview", None)
    if case.path in ENDLESS:
        case.query.pop("follow", None)


@pytest.mark.timeout(600)
@both
@pytest.mark.parametrize("keys_required", [False, True], indirect=True, ids=["no keys", "keys"])
def test_every_answer_is_a_described_one(target: Target) -> None:
    assert findings(target, described(target), FEW) == []


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@both
@pytest.mark.parametrize("keys_required", [True], indirect=True, ids=["keys"])
def test_every_one_of_many_answers_is_a_described_one(target: Target) -> None:
    assert findings(target, described(target), MANY) == []
