"""What a rule between arguments is, how one is added, and what they find in a config."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from trainer.config.problems import Problem
from trainer.config.schema import TaskConfig

Check = Callable[[Any], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A check and the arguments it is about."""

    fields: tuple[str, ...]
    check: Check


PROBLEMS: list[Rule] = []
WARNINGS: list[Rule] = []


def problem(*fields: str) -> Callable[[Check], Check]:
    """Register a rule whose findings are refused."""
    return _register(PROBLEMS, fields)


def warning(*fields: str) -> Callable[[Check], Check]:
    """Register a rule whose findings are legal but surely unwanted."""
    return _register(WARNINGS, fields)


def _register(rules: list[Rule], fields: tuple[str, ...]) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        rules.append(Rule(fields, check))
        return check

    return add


def findings(rules: Iterable[Rule], config: TaskConfig, unreadable: Collection[str]) -> list[Problem]:
    """What `rules` find in the resolved `config`; rules about unreadable arguments are left out."""
    known = type(config).model_fields.keys() - set(unreadable)
    return [found for rule in rules if known >= set(rule.fields) for found in rule.check(config)]
