"""What the checks of all tasks share: finding the folders that a config names."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainer.config.adapters import is_adapter
from trainer.config.preflight.hub import HubName, Part, cache_folder, cached_folder
from trainer.config.preflight.paths import Finder, Roots, output_folder
from trainer.config.problems import Problem
from trainer.config.schema import TaskConfig

_MODELS = {"model_name_or_path": "model", "lora_path": "adapter"}
_ANOTHER = "Name another folder."


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


class Places:
    """A config, the folders it may use, and what was found about it so far.

    Attributes:
        config: as it was given.
        changes: arguments that get another value: paths that were found, made absolute.
        models: finds models and adapters.
        read: the folders that were found, by argument.
    """

    def __init__(self, config: Any, roots: Roots | None, base: Path | None) -> None:
        self.config = config
        self.roots = roots
        self.base = base
        references = roots.references if roots else {}
        self.models = Finder("model", roots.models if roots else None, base, references)
        self.changes: dict[str, Any] = {}
        self.read: dict[str, Path] = {}
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.statistics: dict[str, Any] = {}

    def checked(self) -> Checked:
        """Everything that was found."""
        config = self.config.model_copy(update=self.changes) if self.changes else self.config
        return Checked(config, tuple(self.problems), tuple(self.warnings), self.statistics)

    def folder(self, finder: Finder, name: str, given: str) -> Path | None:
        """The folder that an argument gives; None when there is none, or none yet."""
        if finder.awaits(name, given):
            return None
        found = finder.folder(name, given)
        if isinstance(found, Problem):
            self.problems.append(found)
            return None
        self.read[name] = found
        self.changes[name] = given if finder.refers(name, given) else str(found)
        return found

    def hub_folder(self, finder: Finder, name: str, given: str, part: Part) -> tuple[Path | None, Finder]:
        """The folder of a model, and the finder that allows its files: a folder that is there, else the
        cache of the hub, else none yet.
        """
        if finder.refers(name, given):
            return self.folder(finder, name, given), finder.or_inside(cache_folder())
        hub_name = HubName.parse(given)
        if hub_name is None or finder.finds(given):
            return self.folder(finder, name, given), finder
        cached = cached_folder(hub_name, part)
        if cached:
            self.changes[name], self.read[name] = str(cached), cached
            return cached, finder.or_inside(cache_folder())
        if self.roots is None or self.roots.hub:
            msg = f"{hub_name} is fetched from the Hugging Face hub when the job starts"
            self.warnings.append(Problem((name,), msg, "Its files are checked then."))
        else:
            self.problems.append(_not_fetched(finder, name, hub_name))
        return None, finder

    def named_by_adapter(self, name: str, adapter: Path, hint: str) -> None:
        """Argument `name` is the base model that an adapter names: say so in the problems with it."""
        for index, problem in enumerate(self.problems):
            if problem.loc == (name,):
                msg = f"{problem.msg}; {adapter} names it as its base model"
                self.problems[index] = replace(problem, msg=msg, hint=hint)

    def output(self) -> None:
        """Where the job writes."""
        output = output_folder(self.config.output_dir, self.roots, self.base)
        if isinstance(output, Problem):
            self.problems.append(output)
        else:
            self.changes["output_dir"] = output

    def new_model(self) -> None:
        """Where a job writes a whole model: neither over a model that it reads nor beside an adapter."""
        self.output()
        output = self._comparable_output()
        if output is None:
            return
        over = list(self._over(output))
        self.problems += over
        if is_adapter(output) and not over:
            msg = f"{output} holds an adapter, which a model in the same folder would be taken for"
            self.problems.append(Problem(("output_dir",), msg, _ANOTHER))

    def apart(self) -> None:
        """Where a job writes: neither over nor inside a model that it reads."""
        self.output()
        output = self._comparable_output()
        if output is None:
            return
        self.problems += self._over(output)
        for folder in self._models_read():
            if folder in output.parents:
                msg = f"{output} is inside {folder}, the folder of the model"
                self.problems.append(Problem(("output_dir",), msg, _ANOTHER))

    def _over(self, output: Path) -> Iterator[Problem]:
        for folder, kind in self._models_read().items():
            if output == folder:
                yield Problem(("output_dir",), f"{output} is the folder of the {kind}", _ANOTHER)
            elif output in folder.parents:
                yield Problem(
                    ("output_dir",), f"{output} contains {folder}, the folder of the {kind}", _ANOTHER
                )

    def _models_read(self) -> dict[Path, str]:
        """The folders of models that were found, and what they hold."""
        return {self.read[name]: kind for name, kind in _MODELS.items() if name in self.read}

    def _comparable_output(self) -> Path | None:
        """output_dir with links followed; None while it is not known where the folder of the job is."""
        given = Path(self.changes.get("output_dir", ""))
        try:
            return given.resolve() if given.is_absolute() else None
        except (OSError, RuntimeError):
            return None  # it cannot be made either, which is told when that is tried


def _not_fetched(finder: Finder, name: str, hub_name: HubName) -> Problem:
    msg = f"{hub_name} is no folder{finder.place()}, and not in the cache of the Hugging Face hub, and this"
    msg += " service does not fetch models"
    return Problem((name,), msg, "Put the model into such a folder, or set REGATTA_ALLOW_HUB=true.")
