"""What the references of a config stand for: `job:<id>`, `job:<id>/<checkpoint>`, `dataset:<id>`.

A reference stays in the config as it is; the host that runs the job puts what it names beside the job. Here
it is found out whether that can be used, and which folder of this machine tells most about it meanwhile: the
artifact itself, or, while there is none yet, the model that it is made of.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from api.sources import Makes, Source, Sources
from store.checkpoints import RESULT
from store.inputs import Input
from store.reasons import Reason
from store.states import Status
from store.tables import Dataset
from trainer.config import TaskConfig
from trainer.config.data_files import FIELD as DATA
from trainer.config.data_files import PREFERENCE_FILES
from trainer.config.preflight.hub import HubName, Part, cached_folder
from trainer.config.preflight.model import MODEL, TOKENIZER
from trainer.config.preflight.paths import REFERENCES
from trainer.config.problems import Problem
from trainer.config.values import show

LORA, PREFIX, RESUME, TEMPLATE = "lora_path", "prefix_path", "resume_from_checkpoint", "chat_template"
OF_JOBS = (MODEL, TOKENIZER, LORA, PREFIX, RESUME)
OF_DATA = (DATA, *PREFERENCE_FILES.values())
MOST_STEPS = 50
"""How far a model is followed from job to job."""

_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_JOB = re.compile(rf"job:(?P<id>{_ID})(?:/(?P<checkpoint>[^/\x00-\x1f\x7f]{{1,255}}))?", re.ASCII)
_DATASET = re.compile(rf"dataset:(?P<id>{_ID})", re.ASCII)

_USABLE: Mapping[str, tuple[Makes, ...]] = {
    "finetune": (Makes.model,),
    "dpo": (Makes.model,),
    "kto": (Makes.model,),
    "merge": (Makes.model,),
    "quantize": (Makes.model, Makes.lora),
    "export": (Makes.model, Makes.quantized),
    "evaluate": (Makes.model, Makes.quantized, Makes.lora, Makes.prefix),
}
"""What a task can take as its model."""


@dataclass
class Resolved:
    """A config whose references are looked up.

    Attributes:
        config: an adapter that was named as the model is in its own place, beside the model it belongs to.
        folders: by argument and reference what to check in its place; None: nothing yet.
        problems: why references cannot be used, by argument.
    """

    config: TaskConfig
    folders: dict[tuple[str, str], Path | None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def told(self, problem: Problem) -> Problem:
        """A problem of the check with the references in place of the folders that were looked at."""
        msg, hint = problem.msg, problem.hint
        for (_, text), folder in self.folders.items():
            if folder is not None:
                msg, hint = msg.replace(str(folder), text), hint.replace(str(folder), text)
        return Problem(problem.loc, msg, hint)

    def local(self, resolved: Mapping[str, Any]) -> dict[str, Any]:
        """A resolved config with the folders that are known in place of their references."""
        known = {name: str(folder) for (name, text), folder in self.folders.items() if folder and text}
        return {
            **resolved,
            **{name: path for name, path in known.items() if is_reference(resolved.get(name))},
        }


def is_reference(value: object) -> TypeGuard[str]:
    """Whether a value of a config is a reference to a job or a data set."""
    return isinstance(value, str) and value.startswith(REFERENCES)


def inputs_in(config: Mapping[str, Any]) -> tuple[Input, ...]:
    """What a resolved config refers to, by argument."""
    found = []
    for name in (*OF_JOBS, TEMPLATE, *OF_DATA):
        text = config.get(name)
        if not isinstance(text, str):
            continue
        if match := _JOB.fullmatch(text):
            found.append(Input(name, job_id=match["id"], checkpoint=match["checkpoint"]))
        elif match := _DATASET.fullmatch(text):
            found.append(Input(name, dataset_id=match["id"]))
    return tuple(found)


def resolve(config: TaskConfig, sources: Sources) -> Resolved:
    """Look up all references of a config. Raises nothing for what a user may send."""
    return _Resolver(config, sources).run()


class _Resolver:
    def __init__(self, config: TaskConfig, sources: Sources) -> None:
        self.sources = sources
        self.found = Resolved(config)

    def run(self) -> Resolved:
        model = getattr(self.found.config, MODEL, None)
        for name in OF_JOBS:
            text = getattr(self.found.config, name, None)
            if not is_reference(text):
                continue
            if name == TOKENIZER and text == model:
                self.found.folders.setdefault((name, text), None)  # it comes with the model
            else:
                self._job(name, text)
        for name in OF_DATA:
            text = getattr(self.found.config, name, None)
            if is_reference(text):
                self.found.folders[name, text] = self._dataset(name, text)
        return self.found

    def _job(self, name: str, text: str) -> None:
        self.found.folders.setdefault((name, text), None)
        match = _JOB.fullmatch(text)
        if match is None:
            self._refuse(
                name,
                f"got {show(text)}, expected job:<id> or job:<id>/<checkpoint>",
                "GET /jobs lists the ids.",
            )
            return
        source, checkpoint = self.sources.job(match["id"]), match["checkpoint"]
        if source is None:
            self._refuse(name, f"there is no job {match['id']!r}", "GET /jobs lists what there is.")
        elif self._is_there(name, source, checkpoint):
            getattr(self, f"_as_{_ROLES[name]}")(name, text, source, checkpoint)

    def _is_there(self, name: str, source: Source, checkpoint: str | None) -> bool:
        """Whether the job has, or may still make, what is wanted of it."""
        if not source.ended:
            return True
        if checkpoint is None and source.status != Status.succeeded:
            return self._refuse_unfinished(name, source)
        if (checkpoint or RESULT) in source.published:
            return True
        wanted = f"checkpoint {checkpoint!r}" if checkpoint else "result"
        self._refuse(name, f"job {source.id} has no {wanted}", _instead(source))
        return False

    def _refuse_unfinished(self, name: str, source: Source) -> bool:
        ended = "failed" if source.status == Status.failed else "was cancelled"
        why = f" ({source.reason})" if source.reason != Reason.user_cancelled else ""
        self._refuse(
            name, f"job {source.id} {ended}{why}, so it has no result", f"Retry it. {_instead(source)}"
        )
        return False

    def _as_model(self, name: str, text: str, source: Source, checkpoint: str | None) -> None:
        task, makes = self.found.config.task, source.makes
        if makes not in _USABLE[task]:
            self._refuse(name, *_wrong_model(task, text, source))
        elif makes in (Makes.lora, Makes.prefix):
            self._put_in_its_place(text, source, checkpoint)
        else:
            self.found.folders[name, text] = self._model_folder(source, checkpoint)
            self.found.folders[TOKENIZER, text] = self._tokenizer_folder(source, checkpoint)
            if getattr(self.found.config, TOKENIZER, text) is None:
                self._change({TOKENIZER: text})

    def _put_in_its_place(self, text: str, source: Source, checkpoint: str | None) -> None:
        """An adapter was named as the model: name its base there, and the adapter beside it."""
        field_name = LORA if source.makes is Makes.lora else PREFIX
        if getattr(self.found.config, field_name) is not None:
            hint = f"Name its base model here: {source.config[MODEL]}."
            self._refuse(MODEL, f"job {source.id} makes {source.makes}, and {field_name} names one too", hint)
            return
        tokenizer = getattr(self.found.config, TOKENIZER)
        own = text if tokenizer in (None, text) else tokenizer
        switch = "lora" if field_name == LORA else "prefix_tuning"
        self._change({switch: True, field_name: text, TOKENIZER: own})
        self.found.folders[TOKENIZER, text] = self._tokenizer_folder(source, checkpoint)
        self._take_base(source)

    def _take_base(self, source: Source) -> None:
        """Let the model be the one that the adapter of a job belongs to."""
        base, before = source.config[MODEL], len(self.found.problems)
        self._change({MODEL: base})
        if is_reference(base):
            self._job(MODEL, base)
        for index, problem in enumerate(self.found.problems[before:], before):
            msg = f"{problem.msg}; it is the base model of what job {source.id} makes"
            self.found.problems[index] = Problem(problem.loc, msg, f"Name the base model in {MODEL}.")

    def _as_tokenizer(self, name: str, text: str, source: Source, checkpoint: str | None) -> None:
        if source.makes in (Makes.graph, Makes.nothing):
            self._refuse(
                name, f"job {source.id} ({source.task}) makes {source.makes}, expected a tokenizer", ""
            )
            return
        self.found.folders[name, text] = self._tokenizer_folder(source, checkpoint)

    def _as_adapter(self, name: str, text: str, source: Source, checkpoint: str | None) -> None:
        wanted = Makes.lora if name == LORA else Makes.prefix
        if source.makes is not wanted:
            msg = f"job {source.id} ({source.task}) makes {source.makes}, expected {wanted}"
            hint = f"Name it in {MODEL}." if source.makes is Makes.model else "Name another job."
            self._refuse(name, msg, hint)
            return
        self.found.folders[name, text] = self._published_folder(source, checkpoint)
        if getattr(self.found.config, MODEL) is None:
            self._take_base(source)

    def _as_start(self, name: str, text: str, source: Source, checkpoint: str | None) -> None:
        if checkpoint is None:
            msg = f"got {show(text)}, expected job:<id>/<checkpoint>: a result cannot be trained on"
            self._refuse(name, msg, f"Name one of its checkpoints, or the job in {MODEL}. {_instead(source)}")
        elif source.task != self.found.config.task:
            msg = f"job {source.id} is of task {source.task}, expected {self.found.config.task}"
            self._refuse(name, msg, f"Name it in {MODEL}, if its weights are what you want.")
        else:
            self.found.folders[name, text] = self._published_folder(source, checkpoint)

    def _dataset(self, name: str, text: str) -> Path | None:
        match = _DATASET.fullmatch(text)
        row = self.sources.dataset(match["id"]) if match else None
        kind = self.found.config.task if name in PREFERENCE_FILES.values() else "sft"
        split = next((split for split, path in PREFERENCE_FILES.items() if path == name), None)
        if match is None:
            expected = "a data set" if text.startswith("job:") else "dataset:<id>"
            self._refuse(name, f"got {show(text)}, expected {expected}", "GET /datasets lists the ids.")
        elif row is None:
            self._refuse(name, f"there is no data set {match['id']!r}", "GET /datasets lists what there is.")
        elif row.kind != kind:
            msg = f"data set {row.id} is of kind {row.kind}, expected {kind}"
            self._refuse(name, msg, "Name another one, or another task.")
        elif split is not None and split not in row.splits:
            msg = f"data set {row.id} has no split {split}, only {', '.join(row.splits)}"
            self._refuse(name, msg, "Upload the data with that split.")
        else:
            return self._data_folder(row, split)
        return None

    def _data_folder(self, row: Dataset, split: str | None) -> Path | None:
        folder = self.sources.folder(row.key)
        return folder / f"{split}.json" if folder and split else folder

    def _published_folder(self, source: Source, checkpoint: str | None) -> Path | None:
        key = source.keys.get(checkpoint or RESULT)
        return self.sources.folder(key) if key and source.ended else None

    def _model_folder(self, source: Source, checkpoint: str | None, steps: int = 0) -> Path | None:
        """The model that a job makes, else one of the same shape: what it is made of."""
        folder = self._published_folder(source, checkpoint)
        return folder or self._followed(source, MODEL, steps)

    def _tokenizer_folder(self, source: Source, checkpoint: str | None, steps: int = 0) -> Path | None:
        """The tokenizer beside what a job makes, else the one that it was made with."""
        folder = self._published_folder(source, checkpoint)
        if folder and source.has_tokenizer(checkpoint or RESULT):
            return folder
        if source.task == "merge":
            return None  # it is the adapter's or the model's, which is seen when they are merged
        name = TOKENIZER if source.config.get(TOKENIZER) else MODEL
        return self._followed(source, name, steps)

    def _followed(self, source: Source, name: str, steps: int) -> Path | None:
        text = source.config.get(name)
        match = _JOB.fullmatch(text) if isinstance(text, str) else None
        if match:
            earlier = self.sources.job(match["id"]) if steps < MOST_STEPS else None
            follow = self._model_folder if name == MODEL else self._tokenizer_folder
            return follow(earlier, match["checkpoint"], steps + 1) if earlier else None
        return _local_folder(text, Part.MODEL if name == MODEL else Part.TOKENIZER)

    def _change(self, values: Mapping[str, Any]) -> None:
        self.found.config = self.found.config.model_copy(update=dict(values))

    def _refuse(self, name: str, msg: str, hint: str) -> None:
        self.found.problems.append(Problem((name,), msg, hint))


_ROLES = {MODEL: "model", TOKENIZER: "tokenizer", LORA: "adapter", PREFIX: "adapter", RESUME: "start"}


def _wrong_model(task: str, text: str, source: Source) -> tuple[str, str]:
    """Why the result of a job cannot be the model of this task, and what to do."""
    msg = f"job {source.id} ({source.task}) makes {source.makes}, expected {Makes.model}"
    if source.makes is Makes.lora:
        if task == "merge":
            return msg, f"Name it in {LORA}, and leave {MODEL} out."
        merge = json.dumps({"task": "merge", "config": {LORA: text, "output_dir": "merged"}})
        hint = f"Merge it first: POST {merge} to /jobs, and name that job here."
        if task == "finetune":
            base = source.config[MODEL]
            hint += (
                f" To train the adapter itself on, set {MODEL} to {base}, {LORA} to {text} and lora to true."
            )
        return msg, hint
    if source.makes is Makes.prefix:
        if task == "finetune":
            return (
                msg,
                f"To train the prefix on, set {MODEL} to {source.config[MODEL]} and {PREFIX} to {text}.",
            )
        return msg, "A prefix cannot be merged into a model; it can be evaluated, and trained on by finetune."
    if source.makes is Makes.quantized:
        return msg, f"Name the model that it was made of: {source.config[MODEL]}."
    return msg, "Name a job that trains, merges or quantizes a model."


def _instead(source: Source) -> str:
    names = source.checkpoints
    if not names:
        return ""
    shown = ", ".join(f"job:{source.id}/{name}" for name in names[-3:])
    return f"It has {shown}."


def _local_folder(text: object, part: Part) -> Path | None:
    """The folder on this machine that an argument of a stored config names."""
    if not isinstance(text, str) or not text:
        return None
    if Path(text).is_absolute():
        return Path(text) if Path(text).is_dir() else None
    name = HubName.parse(text)
    return cached_folder(name, part) if name else None
