"""Fine-tuning jobs through OpenAI's client: what they become, how they are shown, what is refused."""

from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from store.artifacts import Manifest
from store.checkpoints import Published, record_checkpoint
from store.database import Database
from store.settings import Settings
from tests.api.keyed import Keyed
from tests.api.openai_face.conftest import client_of
from tests.api.openai_face.given import chats, lines, message, preferences
from tests.api.parts import Job


def upload(face: OpenAI, content: bytes) -> str:
    return face.files.create(file=("berths.jsonl", content), purpose="fine-tune").id


@pytest.fixture
def training_file(face: OpenAI) -> str:
    return upload(face, chats())


def native(keyed: Keyed, job_id: str) -> dict[str, Any]:
    """The job as the service's own API shows it."""
    with keyed.client() as client:
        return client.get(f"/jobs/{job_id.removeprefix('ftjob-')}").json()


def test_a_supervised_job_has_the_defaults_that_ship(face: OpenAI, keyed: Keyed, training_file: str) -> None:
    job = face.fine_tuning.jobs.create(model="gemma", training_file=training_file)
    assert (job.object, job.status, job.model) == ("fine_tuning.job", "queued", "gemma")
    assert (job.training_file, job.validation_file, job.fine_tuned_model) == (training_file, None, None)
    assert job.error is None
    assert job.method is not None
    assert job.method.type == "supervised"
    assert job.hyperparameters.model_dump() == {
        "n_epochs": 3,
        "batch_size": 2,
        "learning_rate_multiplier": 1.0,
    }
    config = native(keyed, job.id)["resolved_config"]
    assert config["learning_rate"] == 3e-05
    assert config["dataset_name_or_path"] == f"dataset:{training_file.removeprefix('file-')}"
    assert (config["evaluation_strategy"], config["save_strategy"]) == ("no", "epoch")
    assert not config["fp16"]  # no host has a GPU
    assert config["warmup_steps"] == 1  # of 18 steps
    assert face.fine_tuning.jobs.retrieve(job.id) == job


def test_hyperparameters_become_arguments(face: OpenAI, keyed: Keyed, training_file: str) -> None:
    job = face.fine_tuning.jobs.create(
        model="gemma",
        training_file=training_file,
        validation_file=upload(face, chats(4)),
        seed=7,
        suffix="berths",
        metadata={"team": "harbour"},
        method={
            "type": "supervised",
            "supervised": {
                "hyperparameters": {"n_epochs": 2, "batch_size": 6, "learning_rate_multiplier": 0.5}
            },
        },
    )
    assert (job.seed, job.metadata) == (7, {"team": "harbour"})
    assert (job.hyperparameters.n_epochs, job.hyperparameters.batch_size) == (2, 6)
    assert job.hyperparameters.learning_rate_multiplier == 0.5
    document = native(keyed, job.id)
    config = document["resolved_config"]
    assert (document["name"], document["labels"]["team"]) == ("berths", "harbour")
    assert (config["num_train_epochs"], config["learning_rate"]) == (2, 1.5e-05)
    assert (config["per_device_train_batch_size"], config["gradient_accumulation_steps"]) == (2, 3)
    assert config["evaluation_strategy"] == "epoch"
    assert job.validation_file is not None
    assert len(face.files.list().data) == 2


def test_a_dpo_job_takes_preferences(face: OpenAI, keyed: Keyed) -> None:
    job = face.fine_tuning.jobs.create(
        model="gemma",
        training_file=upload(face, preferences()),
        method={"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.3, "n_epochs": "auto"}}},
    )
    assert job.method is not None
    assert job.method.dpo is not None
    assert job.method.dpo.hyperparameters is not None
    assert (job.method.type, job.method.dpo.hyperparameters.beta) == ("dpo", 0.3)
    document = native(keyed, job.id)
    assert (document["task"], document["resolved_config"]["beta"]) == ("dpo", 0.3)


def test_arguments_of_the_service_go_in_an_extra_of_the_body(
    face: OpenAI, keyed: Keyed, training_file: str
) -> None:
    job = face.fine_tuning.jobs.create(
        model="gemma",
        training_file=training_file,
        extra_body={"regatta": {"config": {"lora": True, "lora_rank": 4}, "priority": 5}},
    )
    document = native(keyed, job.id)
    assert (document["priority"], document["resolved_config"]["lora_rank"]) == (5, 4)


@pytest.mark.parametrize(
    ("members", "param", "words"),
    [
        ({"model": "no-such"}, "model", "no-such"),
        ({"training_file": "file-x"}, "training_file", "there is no file"),
        ({"method": {"type": "dpo"}}, "training_file", "method dpo takes preferences"),
        ({"method": {"type": "reinforcement"}}, "method.type", "reinforcement"),
        ({"hyperparameters": {"n_epochs": 0}}, "hyperparameters.n_epochs", "got 0"),
        ({"suffix": "a:b"}, "suffix", "a:b"),
        ({"metadata": {"fine_tuning/api": "x"}}, "metadata.fine_tuning/api", "own labels"),
        ({"metadata": {"long": "x" * 300}}, "metadata.long", "200"),
        ({"extra_body": {"regatta": {"resources": {"nodes": 0}}}}, "regatta.resources.nodes", ">= 1"),
        ({"integrations": [{"type": "wandb", "wandb": {"project": "p"}}]}, "integrations", ""),
        ({"extra_body": {"colour": "red"}}, "colour", ""),
        ({"extra_body": {"regatta": {"config": {"lora": 7}}}}, "regatta.config.lora", ""),
    ],
)
def test_a_refusal_names_the_parameter(
    face: OpenAI, training_file: str, members: dict[str, Any], param: str, words: str
) -> None:
    body: dict[str, Any] = {"model": "gemma", "training_file": training_file} | members
    with pytest.raises(openai.BadRequestError) as refusal:
        face.fine_tuning.jobs.create(**body)
    assert refusal.value.type == "invalid_request_error"
    assert refusal.value.param == param
    assert words in refusal.value.message


def test_system_messages_want_a_chat_template(face: OpenAI, roots: Path) -> None:
    chat = [message("system", "Be brief."), message("user", "How deep?"), message("assistant", "Nine feet.")]
    training_file = upload(face, lines({"messages": chat}))
    with pytest.raises(openai.BadRequestError) as refusal:
        face.fine_tuning.jobs.create(model="gemma", training_file=training_file)
    assert "1 of its records have a system message" in refusal.value.message
    (roots / "models" / "gemma" / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message.content }}{% endfor %}"
    )
    assert face.fine_tuning.jobs.create(model="gemma", training_file=training_file).status == "queued"


def test_a_repeated_call_makes_one_job(face: OpenAI, training_file: str) -> None:
    headers = {"Idempotency-Key": "once"}
    first, again = (
        face.fine_tuning.jobs.create(model="gemma", training_file=training_file, extra_headers=headers)
        for _ in range(2)
    )
    assert first.id == again.id
    with pytest.raises(openai.ConflictError):
        face.fine_tuning.jobs.create(
            model="gemma", training_file=training_file, seed=1, extra_headers=headers
        )


def test_jobs_are_listed_newest_first_and_filtered_by_metadata(face: OpenAI, training_file: str) -> None:
    ids = [
        face.fine_tuning.jobs.create(
            model="gemma", training_file=training_file, metadata={"number": str(number)}
        ).id
        for number in range(3)
    ]
    assert [job.id for job in face.fine_tuning.jobs.list(limit=2)] == ids[::-1]
    assert [job.id for job in face.fine_tuning.jobs.list(metadata={"number": "1"})] == [ids[1]]


def test_jobs_that_were_made_otherwise_are_not_shown(
    face: OpenAI, keyed: Keyed, config: dict[str, Any]
) -> None:
    with keyed.client() as client:
        job_id = client.post("/jobs", json={"task": "finetune", "config": config}).json()["id"]
    assert face.fine_tuning.jobs.list().data == []
    with pytest.raises(openai.NotFoundError):
        face.fine_tuning.jobs.retrieve(f"ftjob-{job_id}")


def test_a_job_is_cancelled_once(face: OpenAI, training_file: str) -> None:
    job = face.fine_tuning.jobs.create(model="gemma", training_file=training_file)
    assert face.fine_tuning.jobs.cancel(job.id).status == "cancelled"
    with pytest.raises(openai.ConflictError):
        face.fine_tuning.jobs.cancel(job.id)


def test_pausing_is_refused_with_what_can_be_done(face: OpenAI, training_file: str) -> None:
    job = face.fine_tuning.jobs.create(model="gemma", training_file=training_file)
    for call in (face.fine_tuning.jobs.pause, face.fine_tuning.jobs.resume):
        with pytest.raises(openai.BadRequestError) as refusal:
            call(job.id)
        assert refusal.value.code == "not_supported"
        assert "saves a checkpoint" in refusal.value.message


def test_the_history_is_one_list_of_events_and_metrics(
    face: OpenAI, training_file: str, database: Database, settings: Settings
) -> None:
    job = face.fine_tuning.jobs.create(model="gemma", training_file=training_file)
    worker = Job(job.id.removeprefix("ftjob-"), database, settings)
    worker.start()
    worker.step(1, 2, 3)
    events = list(face.fine_tuning.jobs.list_events(job.id, limit=2))
    assert len({event.id for event in events}) == len(events)
    metrics = [event for event in events if event.type == "metrics"]
    assert [event.data["step"] for event in metrics] == [3, 2, 1]  # type: ignore[index]
    assert "The job was accepted and waits for devices." in [event.message for event in events]
    assert face.fine_tuning.jobs.retrieve(job.id).status == "running"


def test_a_checkpoint_is_a_model_for_another_job(
    face: OpenAI, keyed: Keyed, training_file: str, database: Database
) -> None:
    job = face.fine_tuning.jobs.create(model="gemma", training_file=training_file, suffix="berths")
    job_id = job.id.removeprefix("ftjob-")
    with database.transaction() as session:
        for step in (6, 12):
            name = f"checkpoint-{step}"
            record_checkpoint(
                session,
                job_id,
                1,
                Published(name, f"jobs/{job_id}/{name}", Manifest(()), step, {"eval_loss": 2.5}),
            )
    found = list(face.fine_tuning.jobs.checkpoints.list(job.id, limit=1))
    assert [checkpoint.step_number for checkpoint in found] == [12, 6]
    assert found[0].metrics.full_valid_loss == 2.5
    assert found[0].fine_tuned_model_checkpoint == f"ft:gemma:default:berths:{job_id}:ckpt-step-12"
    face.fine_tuning.jobs.cancel(job.id)
    following = face.fine_tuning.jobs.create(
        model=found[0].fine_tuned_model_checkpoint, training_file=training_file
    )
    assert native(keyed, following.id)["config"]["model_name_or_path"] == f"job:{job_id}/checkpoint-12"


def test_models_are_those_of_the_table(face: OpenAI) -> None:
    assert "google/gemma-2b" in [model.id for model in face.models.list()]
    assert face.models.retrieve("google/gemma-2b").owned_by == "google"
    with pytest.raises(openai.NotFoundError):
        face.models.retrieve("gpt-4o")


def test_jobs_of_another_project_are_unknown(face: OpenAI, keyed: Keyed, training_file: str) -> None:
    job = face.fine_tuning.jobs.create(model="gemma", training_file=training_file)
    with client_of(keyed, keyed.project("other")) as other:
        assert other.fine_tuning.jobs.list().data == []
        for call in (other.fine_tuning.jobs.retrieve, other.fine_tuning.jobs.cancel):
            with pytest.raises(openai.NotFoundError):
                call(job.id)
