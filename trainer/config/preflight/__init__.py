"""What can be known about a job before a device is taken: its paths, its model, every line of its data."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainer.config.chat_templates import NONE
from trainer.config.preflight.chat_template import check_chat_template
from trainer.config.preflight.data import check_data
from trainer.config.preflight.hub import HubName, Part, cache_folder, cached_folder
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
            to `base`, and on the hub. A model that is still to be fetched keeps its name, and its files are
            not checked.
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
        self.inside_tokenizer: Finder | None = None

    def run(self) -> Checked:
        models = Finder("model", self.roots.models if self.roots else None, self.base)
        data = Finder("data", self.roots.data if self.roots else None, self.base)
        self._model(models)
        self._chat_template(models, data)
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

    def _hub_folder(self, finder: Finder, name: str, given: str, part: Part) -> tuple[Path | None, Finder]:
        """The folder of a model, and the finder that allows its files: a folder that is there, else the
        cache of the hub, else none yet.
        """
        hub_name = HubName.parse(given)
        if hub_name is None or finder.finds(given):
            return self._folder(finder, name, given), finder
        cached = cached_folder(hub_name, part)
        if cached:
            self.paths[name] = str(cached)
            return cached, finder.or_inside(cache_folder())
        if self.roots is None or self.roots.hub:
            msg = f"{hub_name} is fetched from the Hugging Face hub when the job starts"
            self.warnings.append(Problem((name,), msg, "Its files are checked then."))
        else:
            self.problems.append(_not_fetched(finder, name, hub_name))
        return None, finder

    def _model(self, finder: Finder) -> None:
        config = self.config
        given = config.model_name_or_path
        folder, inside = self._hub_folder(finder, "model_name_or_path", given, Part.MODEL)
        if folder:
            problems, warnings, statistics = check_model(folder, inside, config)
            self.problems += problems
            self.warnings += warnings
            self.statistics["model"] = statistics
        tokenizer = config.tokenizer_name_or_path or given
        if tokenizer != given:
            folder, inside = self._hub_folder(finder, "tokenizer_name_or_path", tokenizer, Part.TOKENIZER)
        elif folder:
            self.paths["tokenizer_name_or_path"] = str(folder)
        if folder:
            self.inside_tokenizer = inside
            self.problems += check_tokenizer(folder, inside)

    def _chat_template(self, models: Finder, data: Finder) -> None:
        given = self.config.chat_template
        tokenizer = self.paths.get("tokenizer_name_or_path") or self.paths.get("model_name_or_path")
        if given == NONE or (given is None and tokenizer is None):
            return
        finder = replace(models, kind="model and data")
        for root in data.roots or ():
            finder = finder.or_inside(root)
        if given is not None:
            own = given == self.config.model_name_or_path and self.paths.get("model_name_or_path")
            found = finder.path("chat_template", own or given)
            if isinstance(found, Problem):
                self.problems.append(found)
                return
            given = self.paths["chat_template"] = str(found)
        elif self.inside_tokenizer is not None:
            finder = self.inside_tokenizer
        self.problems += check_chat_template(given, Path(tokenizer or "."), finder)

    def _data(self, finder: Finder) -> None:
        folder = self._folder(finder, "dataset_name_or_path", self.config.dataset_name_or_path)
        if not folder:
            return
        problems, splits = check_data(folder, finder, self.config)
        self.problems += problems
        self.statistics |= splits
        if "train" not in splits or not self.config.do_train or problems:
            return
        if not (self.config.zero_padding or self.config.lazy):
            problems, warnings, steps = check_steps(self.config, splits["train"]["examples"])
            self.problems += problems
            self.warnings += warnings
            self.statistics["optimizer_steps"] = steps
        elif self.config.max_steps > 0:
            self.statistics["optimizer_steps"] = self.config.max_steps

    def _workspace(self, finder: Finder) -> None:
        output = output_folder(self.config.output_dir, self.roots, self.base)
        if isinstance(output, Problem):
            self.problems.append(output)
        else:
            self.paths["output_dir"] = output
        checkpoint = self.config.resume_from_checkpoint
        if checkpoint:
            self._folder(finder.or_inside(self.base), "resume_from_checkpoint", checkpoint)


def _not_fetched(finder: Finder, name: str, hub_name: HubName) -> Problem:
    msg = f"{hub_name} is no folder{finder.place()}, and not in the cache of the Hugging Face hub, and this"
    msg += " service does not fetch models"
    return Problem((name,), msg, "Put the model into such a folder, or set REGATTA_ALLOW_HUB=true.")


__all__ = ["Checked", "Roots", "check_job"]
