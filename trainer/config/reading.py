"""Reading an argument file: from what the user sent to a resolved config, or every reason why not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainer.config import rules, strict_json
from trainer.config.derive import derive
from trainer.config.explain import value_problems
from trainer.config.names import ALIASES, names_of, unknown_key_problem
from trainer.config.problems import Problem
from trainer.config.schema import CONFIGS, TaskConfig
from trainer.config.standing import is_secret, standing_of
from trainer.config.tasks import unknown_task_problem
from trainer.config.values import show

MOST_UNKNOWN_KEYS = 20


@dataclass(frozen=True)
class Reading:
    """What came of reading an argument file.

    Attributes:
        task: the task as given.
        given: the arguments as given; secrets are replaced by null.
        config: the config with every default and derived value in place; None when there are problems.
        problems: every reason to refuse it.
        warnings: what is legal but without effect, deprecated, derived or surely unwanted.
        draft: the config with defaults in place of what could not be read, for what can be said about the
            rest; None when nothing could be read.
    """

    task: str
    given: dict[str, Any]
    config: TaskConfig | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    draft: TaskConfig | None = None


def read_config(task: str, raw: Mapping[str, object]) -> Reading:
    """Read the arguments of a job. Never raises for anything a user may send; all problems are collected.

    null means "not set". Numbers and booleans may be written as text. Names are exact, except for the old
    names of `trainer.config.names.ALIASES`.
    """
    if not isinstance(raw, Mapping):
        problem = Problem((), f"the config is {show(raw)}, expected a JSON object of arguments")
        return Reading(task, {}, None, (problem,), ())
    if problem := unknown_task_problem(task):
        return Reading(task, dict(raw), None, (problem,), ())
    if task not in CONFIGS:
        problem = Problem(("task",), f"task {task} has no argument file in this version")
        return Reading(task, dict(raw), None, (problem,), ())
    if isinstance(raw.get("config"), Mapping):
        problem = Problem(
            ("config",),
            "this is the body of a job, expected its arguments alone",
            "Give what is inside config.",
        )
        return Reading(task, dict(raw), None, (problem,), ())
    return _Reader(task, raw).read()


def load_config(task: str, path: Path, overrides: Sequence[str] = ()) -> Reading:
    """Read an argument file (strict JSON: no NaN, no key twice) and apply `KEY=VALUE` overrides.

    The value of an override is text, which is how numbers and booleans may be written (`max_steps=10`); null,
    lists, objects and texts in quotes are read as JSON.
    """
    try:
        raw = strict_json.loads(path.read_bytes())
    except OSError as error:
        problem = Problem((), f"{path}: {error.strerror or error}", "Give the path of an argument file.")
        return Reading(task, {}, None, (problem,), ())
    except strict_json.NotJsonError as error:
        problem = Problem((), f"{path}: {error}", "Correct the file; it has to be one JSON object.")
        return Reading(task, {}, None, (problem,), ())
    if not isinstance(raw, dict):
        return read_config(task, raw)
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            problem = Problem(
                ("--set",), f"got {show(override)}, expected KEY=VALUE", "For example max_steps=10."
            )
            return Reading(task, raw, None, (problem,), ())
        raw[name.strip()] = _override_value(text)
    return read_config(task, raw)


def _override_value(text: str) -> Any:
    if text != "null" and not text.startswith(("[", "{", '"')):
        return text
    try:
        return strict_json.loads(text)
    except strict_json.NotJsonError:
        return text


class _Reader:
    """One reading: the steps in order, with the problems and warnings they find."""

    def __init__(self, task: str, raw: Mapping[str, object]) -> None:
        self.task = task
        self.schema = CONFIGS[task]
        self.given: dict[str, Any] = dict(raw)
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def read(self) -> Reading:
        values = self._named()
        unreadable = self._unreadable(values)
        readable = {name: value for name, value in values.items() if name not in unreadable}
        placeholders = {name: "." for name in unreadable if self.schema.model_fields[name].is_required()}
        config = self.schema.model_validate(placeholders | readable)
        self._check_standing(config, readable)
        config, derived = derive(config, readable.keys())
        self.warnings += derived
        self.problems += rules.findings(rules.PROBLEMS, config, unreadable)
        if not self.problems:
            self.warnings += rules.findings(rules.WARNINGS, config, unreadable)
        usable = None if self.problems else config
        return Reading(self.task, self.given, usable, tuple(self.problems), tuple(self.warnings), config)

    def _named(self) -> dict[str, Any]:
        """The values that are set, by current name; unknown names and old ones are reported."""
        known = names_of(self.task)
        values: dict[str, Any] = {}
        unknown: list[str] = []
        for key, value in self.given.items():
            name = ALIASES.get(key, key)
            if name not in known:
                unknown.append(str(key))
            elif key != name:
                self._old_name(key, name, value, values)
            elif value is not None:
                values[name] = self._without_secret(name, value)
        self.problems += [unknown_key_problem(self.task, key) for key in unknown[:MOST_UNKNOWN_KEYS]]
        if len(unknown) > MOST_UNKNOWN_KEYS:
            more = len(unknown) - MOST_UNKNOWN_KEYS
            self.problems.append(Problem((), f"{more} more names are unknown", "Is this an argument file?"))
        return {name: value for name, value in values.items() if value is not None}

    def _old_name(self, old: str, name: str, value: Any, values: dict[str, Any]) -> None:
        if value is None:
            return
        new_value = self.given.get(name)
        if new_value is not None and new_value != value:
            msg = (
                f"{old} {show(value)} and {name} {show(new_value)} are the same argument, expected one value"
            )
            self.problems.append(Problem((old,), msg, f"Keep {name}."))
            return
        values[name] = value
        self.warnings.append(Problem((old,), f"{old} is the old name of {name}", f"Write {name}."))

    def _without_secret(self, name: str, value: Any) -> Any:
        field = self.schema.model_fields[name]
        if not is_secret(field):
            return value
        self.given[name] = None
        reason = standing_of(field).reason
        self.warnings.append(Problem((name,), f"the value is not kept and has no effect: {reason}"))
        return None

    def _unreadable(self, values: dict[str, Any]) -> set[str]:
        """The names of arguments that cannot be read by themselves, each with its problem reported."""
        try:
            self.schema.model_validate(values)
        except ValidationError as error:
            found = value_problems(self.schema, values, error)
            self.problems += found
            return {str(problem.loc[0]) for problem in found}
        return set()

    def _check_standing(self, config: TaskConfig, names: Mapping[str, Any]) -> None:
        """Report what this version refuses or ignores among the arguments that were set."""
        for name in names:
            field = self.schema.model_fields[name]
            standing, value = standing_of(field), getattr(config, name)
            default = field.get_default(call_default_factory=True)
            if standing.passes(value, default):
                continue
            if standing.kind == "refused":
                hint = "Leave it out." if default is None else f"Leave it out or set it to {show(default)}."
                self.problems.append(Problem((name,), f"got {show(value)}: {standing.reason}", hint))
            else:
                self.warnings.append(Problem((name,), f"{show(value)} has no effect: {standing.reason}"))
