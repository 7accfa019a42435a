"""OpenAI's own client, unmodified, trains tiny models on a service of ours."""

import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI
from openai.types.fine_tuning import FineTuningJob

from tests.api.openai_face.given import chats, preferences
from tests.service import JOB_TIMEOUT_S, Service

SHORT = {"src_length": 64, "max_length": 128, "logging_steps": 1}
TERMINAL = ("succeeded", "failed", "cancelled")


@pytest.fixture
def face(service: Service) -> Iterator[OpenAI]:
    key = service.client.post("/keys", json={"name": "openai", "scopes": ["read", "write"]}).json()["key"]
    with OpenAI(api_key=key, base_url=f"{service.client.base_url}/v1") as client:
        yield client


def finished(face: OpenAI, job: FineTuningJob) -> FineTuningJob:
    give_up = time.monotonic() + JOB_TIMEOUT_S
    while job.status not in TERMINAL:
        assert time.monotonic() < give_up, job
        time.sleep(0.3)
        job = face.fine_tuning.jobs.retrieve(job.id)
    return job


def test_a_model_is_fine_tuned_and_then_taught_what_is_preferred(face: OpenAI, model: Path) -> None:
    training, validation = (
        face.files.create(file=(f"{name}.jsonl", content), purpose="fine-tune")
        for name, content in (("train", chats(12)), ("dev", chats(3)))
    )
    first = face.fine_tuning.jobs.create(
        model=str(model),
        training_file=training.id,
        validation_file=validation.id,
        suffix="berths",
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 2, "batch_size": 4}}},
        extra_body={"regatta": {"config": SHORT}},
    )
    first = finished(face, first)
    assert first.status == "succeeded", first
    assert first.trained_tokens
    assert first.fine_tuned_model is not None
    assert first.fine_tuned_model.startswith("ft:tiny-gemma:default:berths:")
    assert first.fine_tuned_model in [known.id for known in face.models.list()]
    checkpoints = list(face.fine_tuning.jobs.checkpoints.list(first.id))
    assert [checkpoint.step_number for checkpoint in checkpoints] == [6, 3]
    assert all(checkpoint.metrics.full_valid_loss for checkpoint in checkpoints)
    events = list(face.fine_tuning.jobs.list_events(first.id, limit=5))
    assert {event.type for event in events} == {"message", "metrics"}

    pairs = face.files.create(file=("pairs.jsonl", preferences(4)), purpose="fine-tune")
    second = face.fine_tuning.jobs.create(
        model=first.fine_tuned_model,
        training_file=pairs.id,
        method={"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.2, "n_epochs": 1}}},
        extra_body={"regatta": {"config": {"max_seq_len": 256, "max_prompt_len": 128}}},
    )
    second = finished(face, second)
    assert second.status == "succeeded", second
    assert second.model == first.fine_tuned_model


def test_a_running_job_is_cancelled(face: OpenAI, model: Path) -> None:
    training = face.files.create(file=("long.jsonl", chats(50)), purpose="fine-tune")
    job = face.fine_tuning.jobs.create(
        model=str(model),
        training_file=training.id,
        hyperparameters={"n_epochs": 1000},
        extra_body={"regatta": {"config": SHORT}},
    )
    give_up = time.monotonic() + JOB_TIMEOUT_S
    while "metrics" not in [event.type for event in face.fine_tuning.jobs.list_events(job.id).data]:
        assert time.monotonic() < give_up, face.fine_tuning.jobs.retrieve(job.id)
        time.sleep(0.3)
    with pytest.raises(openai.ConflictError):
        face.files.delete(training.id)
    face.fine_tuning.jobs.cancel(job.id)
    assert finished(face, job).status == "cancelled"
    assert face.fine_tuning.jobs.checkpoints.list(job.id).data
