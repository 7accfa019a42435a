"""What can be wrong with a request, and the errors that carry it. Standard library only."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong (or, as a warning, surely unwanted) in a user's input.

    Attributes:
        loc: where it is: the argument's name, then file and line number when it is about a data file.
        msg: what came and what was expected, without a final period.
        hint: the remedy, as a sentence; empty when there is none.
    """

    loc: tuple[str | int, ...]
    msg: str
    hint: str = ""

    def as_dict(self) -> dict[str, object]:
        """The JSON form, as in the `errors` list of a problem+json answer."""
        return {"loc": list(self.loc), "msg": self.msg, "hint": self.hint}

    def __str__(self) -> str:
        where = "/".join(str(part) for part in self.loc)
        text = f"{where}: {self.msg}" if where else self.msg
        return f"{text}. {self.hint}" if self.hint else f"{text}."


class RegattaError(Exception):
    """An error that a user can act on. `exit_code` is what the trainer process exits with.

    `str(error)` is one readable sentence per problem, one problem a line.
    """

    exit_code = 1

    def __init__(self, problems: Problem | Iterable[Problem] | str) -> None:
        """Carry one problem, several, or one sentence that belongs to no argument."""
        if isinstance(problems, str):
            problems = Problem((), problems.rstrip("."))
        if isinstance(problems, Problem):
            problems = (problems,)
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConfigError(RegattaError):
    """The argument file cannot be run as it is."""

    exit_code = 2


class DataError(RegattaError):
    """The model or data files that the config names cannot be used."""

    exit_code = 3


class TrainingError(RegattaError):
    """Training began and could not go on."""

    exit_code = 1
