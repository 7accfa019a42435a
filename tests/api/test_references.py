"""Configs that refer to the results of earlier jobs and to uploaded data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from store.artifacts import artifacts_for
from store.database import Database
from store.datasets import NewDataset, create_or_find, dataset_key, new_dataset_id
from store.reasons import Reason
from store.settings import Settings
from store.states import Status, transition
from store.tables import Job as JobRow
from store.tables import JobInput, Project
from tests.api.parts import Job, places

Submit = Callable[..., dict[str, Any]]
NOWHERE = "job:01980000-0000-7000-8000-000000000000"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> str:
    """Both databases."""
    if request.param == "sqlite":
        return database_url
    return request.getfixturevalue("postgres")(request.getfixturevalue("migrated_postgres"))


@pytest.fixture
def make(
    database: Database, settings: Settings, submit: Submit, roots: Path, tmp_path: Path
) -> Callable[..., str]:
    """A job that has succeeded; its result is a copy of the model, or an adapter."""

    def made(**config: Any) -> str:
        base = {
            "model_name_or_path": "gemma",
            "dataset_name_or_path": "sft",
            "output_dir": "o",
            "do_train": True,
        }
        job = Job(submit(config=base | config)["id"], database, settings)
        job.start()
        folder = roots / "models" / "gemma"
        if config.get("lora"):
            folder = tmp_path / f"adapter-{job.id}"
            folder.mkdir()
            settings_of_adapter = {
                "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"],
                "base_model_name_or_path": "/elsewhere/inputs/base",
            }  # fmt: skip
            (folder / "adapter_config.json").write_text(json.dumps(settings_of_adapter))
            (folder / "adapter_model.safetensors").write_bytes(b"weights")
            (folder / "tokenizer.json").write_text("{}")
        job.publish("result", folder, path="o")
        job.finish()
        return job.id

    return made


def message(answer: httpx.Response) -> str:
    assert answer.status_code == 422, answer.text
    return " | ".join(f"{error['msg']}: {error['hint']}" for error in answer.json()["errors"])


def post(
    client: httpx.Client, config: dict[str, Any], task: str = "finetune", **changes: Any
) -> httpx.Response:
    return client.post("/jobs", json={"task": task, "config": config | changes})


def test_a_finished_job_is_a_model(
    client: httpx.Client, config: dict, make: Callable[..., str], database: Database
) -> None:
    used = make()
    answer = post(client, config, model_name_or_path=f"job:{used}")
    assert answer.status_code == 201, answer.text
    resolved = answer.json()["resolved_config"]
    assert (resolved["model_name_or_path"], resolved["tokenizer_name_or_path"]) == (f"job:{used}",) * 2
    with database.reading() as session:
        rows = (
            session.query(JobInput).where(JobInput.job_id == answer.json()["id"]).order_by(JobInput.argument)
        )
        assert [(row.argument, row.uses_job, row.checkpoint) for row in rows] == [
            ("model_name_or_path", used, None),
            ("tokenizer_name_or_path", used, None),
        ]


def test_a_queued_job_is_a_model_too_and_its_shape_is_checked(
    client: httpx.Client, config: dict, job: Job
) -> None:
    answer = post(client, config, model_name_or_path=f"job:{job.id}")
    assert answer.status_code == 201, answer.text
    split = post(client, config, model_name_or_path=f"job:{job.id}", tensor_parallel_degree=3)
    assert "tensor_parallel_degree" in message(split)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("job:first", "expected job:<id> or job:<id>/<checkpoint>"),
        (NOWHERE, "there is no job '01980000-0000-7000-8000-000000000000'"),
        ("dataset:01980000-0000-7000-8000-000000000000", "expected job:<id>"),
    ],
)
def test_what_no_job_has_is_refused(client: httpx.Client, config: dict, given: str, told: str) -> None:
    answer = post(client, config, model_name_or_path=given)
    assert places(answer) == [("body", "config", "model_name_or_path")]
    assert told in message(answer)


def test_a_failed_job_has_no_result_but_its_checkpoints(
    client: httpx.Client, config: dict, job: Job, roots: Path
) -> None:
    job.start()
    job.publish("checkpoint-2", roots / "models" / "gemma", step=2, path="o/checkpoint-2")
    job.finish(Status.failed, Reason.out_of_memory)
    answer = post(client, config, model_name_or_path=f"job:{job.id}")
    assert message(answer) == (
        f"job {job.id} failed (out_of_memory), so it has no result: "
        f"Retry it. It has job:{job.id}/checkpoint-2."
    )
    assert post(client, config, model_name_or_path=f"job:{job.id}/checkpoint-2").status_code == 201
    other = post(client, config, model_name_or_path=f"job:{job.id}/checkpoint-3")
    assert "has no checkpoint 'checkpoint-3'" in message(other)
    resumed = post(client, config, resume_from_checkpoint=f"job:{job.id}/checkpoint-2")
    assert resumed.status_code == 201, resumed.text


def test_a_result_cannot_be_resumed(client: httpx.Client, config: dict, make: Callable[..., str]) -> None:
    told = message(post(client, config, resume_from_checkpoint=f"job:{make()}"))
    assert "expected job:<id>/<checkpoint>: a result cannot be trained on" in told


@pytest.fixture
def dataset(database: Database, settings: Settings, roots: Path) -> str:
    """An uploaded data set of kind sft."""
    dataset_id = new_dataset_id()
    artifacts = artifacts_for(settings.artifacts_url)
    manifest = artifacts.publish_directory(roots / "data" / "sft", dataset_key(dataset_id))
    new = NewDataset(
        dataset_id, "sft", "0" * 64, dataset_key(dataset_id), manifest.bytes, {"train": {}, "dev": {}}
    )
    with database.transaction() as session:
        create_or_find(session, new)
    return dataset_id


def test_uploaded_data_is_checked_where_it_is_kept(
    client: httpx.Client, config: dict, dataset: str, database: Database
) -> None:
    answer = post(client, config, dataset_name_or_path=f"dataset:{dataset}")
    assert answer.status_code == 201, answer.text
    assert answer.json()["resolved_config"]["dataset_name_or_path"] == f"dataset:{dataset}"
    with database.reading() as session:
        row = session.query(JobInput).where(JobInput.job_id == answer.json()["id"]).one()
        assert (row.argument, row.uses_dataset) == ("dataset_name_or_path", dataset)
    body = {"task": "finetune", "config": config | {"dataset_name_or_path": f"dataset:{dataset}"}}
    assert client.post("/jobs/validate", json=body).json()["statistics"]["train"]["examples"] == 20


def test_data_of_another_kind_is_refused(client: httpx.Client, config: dict, dataset: str) -> None:
    paths = dict.fromkeys(("train_dataset_path", "dev_dataset_path"), f"dataset:{dataset}")
    arguments = {name: config[name] for name in ("model_name_or_path", "output_dir", "do_train")}
    told = message(post(client, arguments, "dpo", max_steps=2, **paths))
    assert f"data set {dataset} is of kind sft, expected dpo" in told


def test_jobs_of_other_projects_do_not_exist(
    client: httpx.Client, config: dict, make: Callable[..., str], database: Database
) -> None:
    used = make()
    with database.transaction() as session:
        session.add(Project(name="other", created_at=0))
        session.flush()
        session.execute(update(JobRow).where(JobRow.id == used).values(project="other"))
    assert f"there is no job '{used}'" in message(post(client, config, model_name_or_path=f"job:{used}"))


@pytest.mark.parametrize("finished", [True, False])
def test_an_adapter_is_no_model_to_train_and_the_refusal_says_what_to_post(
    client: httpx.Client, config: dict, submit: Submit, make: Callable[..., str], finished: bool
) -> None:
    used = make(lora=True) if finished else submit(config=config | {"lora": True})["id"]
    told = message(post(client, config, model_name_or_path=f"job:{used}"))
    assert f"job {used} (finetune) makes a LoRA adapter, expected a model" in told
    body = told[told.index("POST ") + 5 : told.index(" to /jobs")]
    merge = client.post("/jobs", json=json.loads(body))
    assert merge.status_code == 201, merge.text
    assert merge.json()["resolved_config"]["model_name_or_path"].endswith("models/gemma")
    after = post(client, config, model_name_or_path=f"job:{merge.json()['id']}")
    assert after.status_code == 201, after.text


@pytest.mark.parametrize("finished", [True, False])
def test_quantize_takes_an_adapter_with_the_model_that_it_belongs_to(
    client: httpx.Client, config: dict, submit: Submit, make: Callable[..., str], finished: bool
) -> None:
    used = make(lora=True) if finished else submit(config=config | {"lora": True})["id"]
    arguments = {name: config[name] for name in ("dataset_name_or_path", "output_dir")}
    answer = post(
        client,
        arguments,
        "quantize",
        model_name_or_path=f"job:{used}",
        do_ptq=True,
        quant_type="weight_only_int8",
    )
    assert answer.status_code == 201, answer.text
    resolved = answer.json()["resolved_config"]
    assert resolved["model_name_or_path"].endswith("models/gemma")
    assert (resolved["lora_path"], resolved["tokenizer_name_or_path"]) == (f"job:{used}",) * 2


def test_an_adapter_is_trained_on_over_its_base(
    client: httpx.Client, config: dict, make: Callable[..., str]
) -> None:
    used = make(lora=True)
    answer = post(client, config, lora=True, lora_path=f"job:{used}")
    assert answer.status_code == 201, answer.text
    resolved = answer.json()["resolved_config"]
    assert (resolved["lora_path"], resolved["lora_rank"], resolved["lora"]) == (f"job:{used}", 4, True)
    wrong = post(client, config, lora=True, lora_path=f"job:{make()}")
    assert "makes a model, expected a LoRA adapter" in message(wrong)


def test_an_evaluation_makes_no_model(client: httpx.Client, config: dict) -> None:
    arguments = {name: config[name] for name in ("model_name_or_path", "dataset_name_or_path", "output_dir")}
    answer = post(client, arguments, "evaluate")
    assert answer.status_code == 201, answer.text
    assert "makes no model" in message(post(client, config, model_name_or_path=f"job:{answer.json()['id']}"))


def test_a_problem_of_a_result_is_told_with_the_reference(
    client: httpx.Client, config: dict, job: Job, tmp_path: Path
) -> None:
    job.start()
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "gemma"}')
    job.publish("result", folder, path="o")
    job.finish()
    told = message(post(client, config, model_name_or_path=f"job:{job.id}"))
    assert f"job:{job.id} has no weights" in told
    assert str(tmp_path) not in told


def test_a_job_that_ends_while_another_is_checked_is_noticed(
    client: httpx.Client, config: dict, job: Job, database: Database
) -> None:
    used = post(client, config, model_name_or_path=f"job:{job.id}").json()["id"]
    with database.transaction() as session:
        transition(session, job.id, Status.cancelled, reason=Reason.user_cancelled)
    assert client.get(f"/jobs/{used}").json()["reason"] == "dependency_failed"
