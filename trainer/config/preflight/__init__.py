"""What can be known about a job before a device is taken: its paths, its model, every line of its data."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.config.preflight.data import check_data
from trainer.config.preflight.model import check_model, check_tokenizer
from trainer.config.preflight.paths import Finder, Roots, output_folder
from trainer.config.preflight.steps import check_steps
from trainer.config.problems import Problem
from trainer.config.schema import FinetuneConfig, TaskConfig
from trainer.config.tasks import task_problem


@dataclass(frozen=True)
class Checked:
    """What came of checking a job.

    Attributes:
        config: the config with the paths that were found made absolute.
        problems: why the job cannot run.
        warnings: what is legal but surely unwanted.
        statistics: `train` and `dev` with `files`, `examples`, `turns`, `bytes`; `optimizer_steps`; `model`
            with `model_type`, `tensors`, `bytes`. What could not be found out is absent.
    """

    config: TaskConfig
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    statistics: dict[str, Any] = field(default_factory=dict)


def check_job(config: TaskConfig, roots: Roots | None, base: Path | None = None) -> Checked:
    """Check everything that `config` refers to. Never raises for what a user may have sent.

    Args:
        config: a resolved config, as `read_config` gives it.
        roots: where models and data may lie; relative paths are looked for in them. None: anywhere, relative
            to `base`.
        base: the folder of the job (its workspace); without `roots` it defaults to the current folder. With
            roots and without base, output_dir stays relative.
    """
    if not isinstance(config, FinetuneConfig):
        problem = task_problem(config.task)
        return Checked(config, (problem,) if problem else ())
    return _Check(config, roots, base).run()


class _Check:
    """One check: the steps in order, with what they find."""

    def __init__(self, config: FinetuneConfig, roots: Roots | None, base: Path | None) -> None:
        self.config = config
        self.roots = roots
        self.base = base
        self.paths: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.statistics: dict[str, Any] = {}

    def run(self) -> Checked:
        models = Finder("model", self.roots.models if self.roots else None, self.base)
        data = Finder("data", self.roots.data if self.roots else None, self.base)
        self._model(models)
        self._data(data)
        self._workspace(models)
        if self.paths:
            self.config = self.config.model_copy(update=self.paths)
        return Checked(self.config, tuple(self.problems), tuple(self.warnings), self.statistics)

    def _folder(self, finder: Finder, name: str, given: str) -> Path | None:
        found = finder.folder(name, given)
        if isinstance(found, Problem):
            self.problems.append(found)
            return None
        self.paths[name] = str(found)
        return found

    def _model(self, finder: Finder) -> None:
        config = self.config
        folder = self._folder(finder, "model_name_or_path", config.model_name_or_path)
        if folder:
            problems, warnings, statistics = check_model(folder, finder, config)
            self.problems += problems
            self.warnings += warnings
            self.statistics["model"] = statistics
        tokenizer = config.tokenizer_name_or_path or config.model_name_or_path
        if tokenizer != config.model_name_or_path:
            folder = self._folder(finder, "tokenizer_name_or_path", tokenizer)
        elif folder:
            self.paths["tokenizer_name_or_path"] = str(folder)
        if folder:
            problems, warnings = check_tokenizer(folder, finder, config)
            self.problems += problems
            self.warnings += warnings

    def _data(self, finder: Finder) -> None:
        folder = self._folder(finder, "dataset_name_or_path", self.config.dataset_name_or_path)
        if not folder:
            return
        problems, splits = check_data(folder, finder, self.config)
        self.problems += problems
        self.statistics |= splits
        if "train" in splits and self.config.do_train and not problems:
            problems, warnings, steps = check_steps(self.config, splits["train"]["examples"])
            self.problems += problems
            self.warnings += warnings
            self.statistics["optimizer_steps"] = steps

    def _workspace(self, finder: Finder) -> None:
        output = output_folder(self.config.output_dir, self.roots, self.base)
        if isinstance(output, Problem):
            self.problems.append(output)
        else:
            self.paths["output_dir"] = output
        checkpoint = self.config.resume_from_checkpoint
        if checkpoint and (self.roots is None or Path(checkpoint).is_absolute()):
            self._folder(finder.or_inside(self.base), "resume_from_checkpoint", checkpoint)


__all__ = ["Checked", "Roots", "check_job"]
