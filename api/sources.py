"""What other jobs and data sets can give to a job: looked up, or told by the pipeline that makes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import select

from store.artifacts import Artifacts, LocalArtifacts, checked_key
from store.checkpoints import RESULT
from store.database import Database
from store.datasets import find_dataset
from store.jobs import get_job
from store.states import TERMINAL, Status
from store.tables import Checkpoint, Dataset

TRAINING = ("finetune", "dpo", "kto")
TOKENIZER_FILES = frozenset({"tokenizer.json", "tokenizer.model", "vocab.json"})


class Makes(StrEnum):
    """What a job's result is."""

    model = "a model"
    quantized = "a quantized model"
    lora = "a LoRA adapter"
    prefix = "a prefix"
    graph = "a static graph"
    nothing = "no model"


def result_of(task: str, config: Mapping[str, Any]) -> Makes:
    """What a job of this task and resolved config makes."""
    if task in TRAINING and not config.get("do_train", True):
        return Makes.nothing
    if task in TRAINING:
        return (
            Makes.lora if config.get("lora") else Makes.prefix if config.get("prefix_tuning") else Makes.model
        )
    return {"merge": Makes.model, "quantize": Makes.quantized, "export": Makes.graph}.get(task, Makes.nothing)


@dataclass(frozen=True)
class Source:
    """A job that others may refer to, stored or about to be.

    Attributes:
        config: as resolved; references in it as they are.
        published: what it has published so far, by name (the result among it): the files.
        keys: where the artifacts have that.
    """

    id: str
    task: str
    config: Mapping[str, Any]
    status: Status = Status.queued
    reason: str = ""
    published: Mapping[str, frozenset[str]] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def makes(self) -> Makes:
        return result_of(self.task, self.config)

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def checkpoints(self) -> list[str]:
        return [name for name in self.published if name != RESULT]

    def has_tokenizer(self, name: str) -> bool:
        return bool(self.published.get(name, frozenset()) & TOKENIZER_FILES)


class Sources(Protocol):
    """Where jobs and data sets are looked up by id; None: there is none in the project."""

    def job(self, job_id: str) -> Source | None: ...

    def dataset(self, dataset_id: str) -> Dataset | None: ...

    def folder(self, key: str) -> Path | None:
        """Where an artifact lies on this machine; None when it is elsewhere."""
        ...


@dataclass(frozen=True)
class StoredSources:
    """The jobs and data sets of one project."""

    database: Database
    artifacts: Artifacts
    project: str

    def job(self, job_id: str) -> Source | None:
        with self.database.reading() as session:
            row = get_job(session, job_id)
            if row is None or row.project != self.project:
                return None
            query = select(Checkpoint).where(Checkpoint.job_id == job_id).order_by(Checkpoint.step)
            rows = session.execute(query).scalars().all()
        return Source(
            id=job_id,
            task=row.task,
            config=row.config_resolved,
            status=Status(row.status),
            reason=row.reason,
            published={each.name: frozenset(file["path"] for file in each.files) for each in rows},
            keys={each.name: each.key for each in rows},
        )

    def dataset(self, dataset_id: str) -> Dataset | None:
        with self.database.reading() as session:
            return find_dataset(session, self.project, dataset_id)

    def folder(self, key: str) -> Path | None:
        if not isinstance(self.artifacts, LocalArtifacts):
            return None
        folder = self.artifacts.root / checked_key(key)
        return folder if folder.is_dir() else None


@dataclass(frozen=True)
class WithSiblings:
    """What is stored, and the jobs of the same pipeline that come before."""

    stored: Sources
    siblings: Mapping[str, Source]

    def job(self, job_id: str) -> Source | None:
        return self.siblings.get(job_id) or self.stored.job(job_id)

    def dataset(self, dataset_id: str) -> Dataset | None:
        return self.stored.dataset(dataset_id)

    def folder(self, key: str) -> Path | None:
        return self.stored.folder(key)
