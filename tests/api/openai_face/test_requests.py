"""What a request becomes, without a server."""

from typing import Any

import pytest

from api.openai_face.errors import as_error
from api.openai_face.identifiers import model_name, reference
from api.openai_face.models import ModelFacts
from api.openai_face.requests import job_body
from api.openai_face.schemas import FineTuningRequest
from store.tables import Dataset
from trainer.config import read_config

ID = "0192f0c1-2b3c-7d4e-8f90-123456789abc"


def data(kind: str, examples: int = 100, *splits: str) -> Dataset:
    return Dataset(id=ID, kind=kind, splits={name: {"examples": examples} for name in ("train", *splits)})


def body(
    facts: ModelFacts, kind: str = "sft", *splits: str, on_gpu: bool = False, **members: Any
) -> dict[str, Any]:
    request = FineTuningRequest.model_validate({"model": "m", "training_file": f"file-{ID}"} | members)
    task = "dpo" if kind == "dpo" else "finetune"
    made = job_body(request, task, data(kind), data(kind, 100, *splits), facts, on_gpu)
    assert read_config(task, made["config"]).problems == ()
    return made


@pytest.mark.parametrize("family", ["gemma", "bloom"])
@pytest.mark.parametrize("kind", ["sft", "dpo"])
@pytest.mark.parametrize("on_gpu", [True, False])
def test_every_family_and_method_gets_one_device(family: str, kind: str, on_gpu: bool) -> None:
    config = body(ModelFacts(family), kind, on_gpu=on_gpu)["config"]
    reading = read_config("dpo" if kind == "dpo" else "finetune", config)
    assert reading.config is not None
    assert reading.config.world_size() == 1
    assert ("bf16" in config or "fp16" in config) == on_gpu


def test_dpo_uses_the_template_that_a_model_brings() -> None:
    assert "chat_template" not in body(ModelFacts(), "dpo")["config"]
    assert body(ModelFacts(has_template=True), "dpo")["config"]["chat_template"] == "m"


def test_a_validation_file_is_evaluated_after_each_epoch() -> None:
    config = body(ModelFacts(), "dpo", "dev")["config"]
    assert config["dev_dataset_path"] == config["train_dataset_path"] == f"dataset:{ID}"
    assert config["evaluation_strategy"] == "epoch"


@pytest.mark.parametrize(("size", "each", "steps"), [(1, 1, 1), (2, 2, 1), (7, 1, 7), (8, 2, 4)])
def test_a_batch_has_exactly_the_examples_that_were_asked_for(size: int, each: int, steps: int) -> None:
    config = body(ModelFacts(), hyperparameters={"batch_size": size})["config"]
    assert config["per_device_train_batch_size"] == each
    assert config["gradient_accumulation_steps"] == steps


def test_few_steps_have_a_short_warm_up() -> None:
    assert body(ModelFacts(), hyperparameters={"n_epochs": 2})["config"]["warmup_steps"] == 10
    assert body(ModelFacts(), hyperparameters={"n_epochs": 50})["config"]["warmup_steps"] == 30


def test_a_trained_model_is_a_reference() -> None:
    name = model_name("google/gemma-2b", "default", "berths", ID)
    assert (name, reference(name)) == (f"ft:google/gemma-2b:default:berths:{ID}", f"job:{ID}")
    assert reference(model_name("/models/tiny", "default", "", ID, 12)) == f"job:{ID}/checkpoint-12"
    assert model_name(name, "other", "", ID).startswith("ft:google/gemma-2b:other::")
    assert reference("google/gemma-2b") == "google/gemma-2b"


def test_problems_are_one_error_with_the_first_ones_parameter() -> None:
    errors = [
        {"loc": ["body", "config", "num_train_epochs"], "msg": "got 0.", "hint": "Use 1."},
        {"loc": ["body", "seed"], "msg": "got x", "hint": ""},
    ]
    problem = {"type": "urn:regatta:problem:invalid", "status": 422, "detail": "2 problems", "errors": errors}
    assert as_error(problem) == (
        400,
        {
            "message": "hyperparameters.n_epochs: got 0. Use 1.\nseed: got x",
            "type": "invalid_request_error",
            "param": "hyperparameters.n_epochs",
            "code": "invalid_value",
        },
    )


@pytest.mark.parametrize(
    ("kind", "status", "type_", "code"),
    [
        ("not-found", 404, "invalid_request_error", "not_found"),
        ("quota-exceeded", 429, "rate_limit_error", "insufficient_quota"),
        ("internal", 500, "server_error", "internal"),
    ],
)
def test_every_other_problem_keeps_its_status(kind: str, status: int, type_: str, code: str) -> None:
    found, error = as_error({"type": f"urn:regatta:problem:{kind}", "status": status, "detail": "d"})
    assert (found, error["type"], error["code"], error["param"]) == (status, type_, code, None)
