"""Jobs, checkpoints and models as OpenAI's API shows them."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.openai_face.identifiers import JOB, model_name
from api.openai_face.requests import OWN, shipped
from api.openai_face.schemas import (
    CheckpointMetrics,
    Dpo,
    DpoHyperparameters,
    DpoMethod,
    FineTuningJob,
    Hyperparameters,
    JobCheckpoint,
    JobError,
    ModelObject,
    Supervised,
    SupervisedMethod,
)
from store import tables
from store.metrics import TRAIN
from store.reasons import REASONS, Fault, Reason
from store.states import Status

STATUSES = {
    Status.queued: "queued",
    Status.starting: "queued",
    Status.running: "running",
    Status.stopping: "running",
    Status.succeeded: "succeeded",
    Status.failed: "failed",
    Status.cancelled: "cancelled",
}


def fine_tuning_job(session: Session, row: tables.Job, now: float) -> FineTuningJob:
    """A job; `now` in unix seconds."""
    labels, config = row.labels, row.config_resolved
    status = Status(row.status)
    numbers = _hyperparameters(row)
    eta = row.progress.get("eta_s")
    return FineTuningJob.model_validate(
        {
            "id": JOB + row.id,
            "created_at": int(row.created_at),
            "finished_at": None if row.finished_at is None else int(row.finished_at),
            "estimated_finish": int(now + eta) if status is Status.running and eta is not None else None,
            "status": STATUSES[status],
            "error": _error(row),
            "model": labels[OWN + "model"],
            "fine_tuned_model": _name(row) if status is Status.succeeded else None,
            "organization_id": row.project,
            "hyperparameters": Hyperparameters(**numbers),
            "method": _method(row.task, numbers, config),
            "training_file": labels[OWN + "training_file"],
            "validation_file": labels.get(OWN + "validation_file"),
            "result_files": [],
            "trained_tokens": _tokens(session, row) if status is Status.succeeded else None,
            "seed": config["seed"],
            "integrations": [],
            "metadata": {key: value for key, value in labels.items() if not key.startswith(OWN)},
        }
    )


def checkpoint(job: tables.Job, row: tables.Checkpoint, losses: Mapping[int, Any]) -> JobCheckpoint:
    """A checkpoint of a job; `losses`: of training, by step."""
    step = row.step or 0
    return JobCheckpoint(
        id=f"ftckpt-{job.id}-{row.name}",
        created_at=int(row.created_at),
        fine_tuned_model_checkpoint=_name(job, step),
        fine_tuning_job_id=JOB + job.id,
        step_number=step,
        metrics=CheckpointMetrics(
            step=step,
            train_loss=losses.get(step),
            full_valid_loss=row.metrics.get("eval_loss"),
            full_valid_mean_token_accuracy=row.metrics.get("eval_accuracy"),
        ),
    )


def trained_model(row: tables.Job) -> ModelObject:
    """The model that a job has made."""
    return ModelObject(id=_name(row), created=int(row.finished_at or row.updated_at), owned_by=row.project)


def _name(row: tables.Job, step: int | None = None) -> str:
    labels = row.labels
    return model_name(labels[OWN + "model"], row.project, labels.get(OWN + "suffix", ""), row.id, step)


def _error(row: tables.Job) -> JobError | None:
    if row.status != Status.failed:
        return None
    known = REASONS[Reason(row.reason)]
    message = " ".join(part for part in (row.message or known.meaning, known.remedy) if part)
    return JobError(
        code=row.reason, message=message, param="training_file" if known.fault is Fault.data else None
    )


def _hyperparameters(row: tables.Job) -> dict[str, Any]:
    config = row.config_resolved
    split = max(config["tensor_parallel_degree"], 1) * max(config["pipeline_parallel_degree"], 1)
    ways = max(row.nodes * row.devices_per_node // split, 1)
    epochs = config["num_train_epochs"]
    multiplier = config["learning_rate"] / shipped(row.task, "gemma")["learning_rate"]
    return {
        "n_epochs": int(epochs) if epochs == int(epochs) else epochs,
        "batch_size": config["per_device_train_batch_size"] * config["gradient_accumulation_steps"] * ways,
        "learning_rate_multiplier": float(f"{multiplier:.6g}"),
    }


def _method(task: str, numbers: Mapping[str, Any], config: Mapping[str, Any]) -> SupervisedMethod | DpoMethod:
    if task == "finetune":
        return SupervisedMethod(supervised=Supervised(hyperparameters=Hyperparameters(**numbers)))
    with_beta = DpoHyperparameters(**numbers, beta=config["beta"])
    return DpoMethod(dpo=Dpo(hyperparameters=with_beta))


def _tokens(session: Session, row: tables.Job) -> int | None:
    """The tokens that were trained on, as the last step has counted them."""
    query = select(tables.Metric).where(tables.Metric.job_id == row.id, tables.Metric.kind == TRAIN)
    last = session.execute(query.order_by(tables.Metric.step.desc()).limit(1)).scalar_one_or_none()
    return None if last is None else last.values.get("tokens")
