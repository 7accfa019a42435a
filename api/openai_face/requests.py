"""From the body of POST /v1/fine_tuning/jobs to that of POST /jobs.

What is left to the service ("auto") is what the argument files that ship have. Their parallel degrees are not
taken: a job runs on one device unless `regatta` says more.
"""

import math
from collections.abc import Mapping
from typing import Any

from api.openai_face.identifiers import reference
from api.openai_face.models import ModelFacts
from api.openai_face.schemas import FineTuningRequest, HyperparametersRequest
from api.problems import invalid
from api.schemas.jobs import JobRequest
from store import tables
from trainer.config import preset
from trainer.config.problems import Problem

MARK, MARKED = "fine_tuning/api", "openai"
"""The label that tells jobs of this API, and its value."""
OWN = "fine_tuning/"
"""What the labels begin with that are not the client's."""
TASKS = {"supervised": "finetune", "dpo": "dpo"}
PRESETS = {"finetune": {"gemma": "sft", "bloom": "sft"}, "dpo": {"gemma": "dpo"}}
"""Names of argument files by task and family; Gemma's where a family has none."""
KIND = {"finetune": "sft", "dpo": "dpo"}
FORMAT = {"sft": "chats (messages)", "dpo": "preferences (preferred_output)", "kto": "single judgements"}
LAYOUT = ("tensor_parallel_degree", "pipeline_parallel_degree", "sharding_parallel_degree", "sharding")
EVALUATION = (
    "do_eval",
    "evaluation_strategy",
    "eval_steps",
    "load_best_model_at_end",
    "metric_for_best_model",
)
PLACES = ("model_name_or_path", "dataset_name_or_path", "train_dataset_path", "dev_dataset_path")
SAVING = ("save_strategy", "save_steps", "save_total_limit", "max_steps")
REPLACED = frozenset((*LAYOUT, *EVALUATION, *PLACES, *SAVING))
ONLY_GPU = ("fp16", "bf16", "fp16_opt_level", "use_flash_attention")
MOST_METADATA = 16
WARMUP_SHARE = 10
"""At most this part of the steps warms up, however few there are."""


def shipped(task: str, family: str) -> Mapping[str, Any]:
    """The argument file that a job of this task and family begins with."""
    known = PRESETS[task]
    family = family if family in known else "gemma"
    return preset(family, known[family]).config


def task_of(request: FineTuningRequest, training: tables.Dataset) -> str:
    """The task of a request; without a method it is that of the file's kind.

    Raises: ApiError (422) when the file has not the form that the method takes.
    """
    if request.method is None:
        task = "dpo" if training.kind == "dpo" else "finetune"
    else:
        task = TASKS[request.method.type]
    if training.kind != KIND[task]:
        method = next(name for name, each in TASKS.items() if each == task)
        msg = f"it has {FORMAT[training.kind]}; method {method} takes {FORMAT[KIND[task]]}"
        raise invalid([Problem(("body", "training_file"), msg, "Use another file, or another method.")])
    return task


def hyperparameters(request: FineTuningRequest) -> dict[str, Any]:
    """Those that are given, by name; what is left to the service is absent.

    Raises: ApiError (422) when they are given in two places, or of another method.
    """
    method = request.method
    given: HyperparametersRequest | None = request.hyperparameters
    if method is not None:
        other = {"supervised": method.dpo, "dpo": method.supervised}[method.type]
        if other is not None:
            msg = f"method.type is {method.type}, but there is another one's part too"
            raise invalid([Problem(("body", "method"), msg, "Send the part of the method that is meant.")])
        part = method.dpo if method.type == "dpo" else method.supervised
        if part is not None and part.hyperparameters is not None:
            if given is not None:
                msg = "they are given here and in method"
                raise invalid([Problem(("body", "hyperparameters"), msg, "Give them in method only.")])
            given = part.hyperparameters
    return {} if given is None else given.model_dump(exclude_none=True)


def labels(request: FineTuningRequest) -> dict[str, str]:
    """The client's metadata, and what the job has to be shown by. Raises ApiError (422)."""
    metadata = request.metadata or {}
    if len(metadata) > MOST_METADATA:
        msg = f"got {len(metadata)} pairs, expected at most {MOST_METADATA}"
        raise invalid([Problem(("body", "metadata"), msg, "Leave some out.")])
    for key in metadata:
        if key.startswith(OWN):
            msg = f"{key!r} begins with {OWN!r}, which the service's own labels do"
            raise invalid([Problem(("body", "metadata", key), msg, "Name it otherwise.")])
    own = {
        "api": MARKED,
        "model": request.model,
        "training_file": request.training_file,
        "validation_file": request.validation_file,
        "suffix": request.suffix,
    }
    return metadata | {OWN + name: value for name, value in own.items() if value is not None}


def job_body(
    request: FineTuningRequest,
    task: str,
    training: tables.Dataset,
    data: tables.Dataset,
    facts: ModelFacts,
    on_gpu: bool,
) -> dict[str, Any]:
    """The body of POST /jobs.

    Args:
        training: the training file.
        data: what the job reads: that file, or it and the validation file as one data set.
        on_gpu: whether some host has a GPU.
    """
    extras = request.regatta
    config = _config(request, task, training, data, facts)
    if not on_gpu:
        config = {name: value for name, value in config.items() if name not in ONLY_GPU}
    body: dict[str, Any] = {"task": task, "name": request.suffix, "labels": labels(request)}
    if extras is not None:
        config |= extras.config
        own = extras.model_dump(exclude={"config"}, exclude_unset=True, exclude_none=True)
        body |= {name: value for name, value in own.items() if name in JobRequest.model_fields}
    return {name: value for name, value in body.items() if value is not None} | {"config": config}


def _config(
    request: FineTuningRequest,
    task: str,
    training: tables.Dataset,
    data: tables.Dataset,
    facts: ModelFacts,
) -> dict[str, Any]:
    base = shipped(task, facts.family)
    model = reference(request.model)
    config = {name: value for name, value in base.items() if name not in REPLACED}
    config |= {"model_name_or_path": model, "output_dir": "output", "save_strategy": "epoch"}
    config |= _data(task, data)
    if task == "dpo" and facts.has_template:
        config["chat_template"] = model
    given = hyperparameters(request)
    config["num_train_epochs"] = given.get("n_epochs", config["num_train_epochs"])
    config["learning_rate"] *= given.get("learning_rate_multiplier", 1)
    if "beta" in given:
        config["beta"] = given["beta"]
    if "batch_size" in given:
        config |= _batches(given["batch_size"], config["per_device_train_batch_size"])
    if request.seed is not None:
        config["seed"] = request.seed
    return config | _warmup(config, training)


def _data(task: str, data: tables.Dataset) -> dict[str, Any]:
    text = f"dataset:{data.id}"
    evaluated = "dev" in data.splits
    evaluation = {"do_eval": evaluated, "evaluation_strategy": "epoch" if evaluated else "no"}
    if task == "finetune":
        return {"dataset_name_or_path": text} | evaluation
    return {"train_dataset_path": text} | ({"dev_dataset_path": text} if evaluated else {}) | evaluation


def _batches(size: int, at_once: int) -> dict[str, int]:
    """Batches of `size` examples, of which one device takes at most `at_once` at a time."""
    each = math.gcd(size, at_once)
    return {"per_device_train_batch_size": each, "gradient_accumulation_steps": size // each}


def _warmup(config: Mapping[str, Any], training: tables.Dataset) -> dict[str, int]:
    batch = config["per_device_train_batch_size"] * config["gradient_accumulation_steps"]
    steps = math.ceil(training.splits["train"]["examples"] / batch) * config["num_train_epochs"]
    return {"warmup_steps": min(config["warmup_steps"], steps // WARMUP_SHARE)}
