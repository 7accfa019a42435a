"""Words in which a family says what its parameters are for and how they may be cut."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from trainer.config.problems import Problem
from trainer.models.configuration import ModelConfig

#: The argument that says how many ranks a tensor group has.
DEGREE = "tensor_parallel_degree"

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


class Role(StrEnum):
    """What a linear layer of a decoder layer does."""

    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    QUERY_KEY_VALUE = "query_key_value"
    ATTENTION_OUTPUT = "attention_output"
    GATE = "gate"
    UP = "up"
    GATE_UP = "gate_up"
    DOWN = "down"


@dataclass(frozen=True)
class Split:
    """How a tensor, as it is on disk, is cut over the ranks of a tensor-parallel group.

    Attributes:
        axis: the axis that is cut; of a matrix, 0 are its outputs and 1 its inputs.
        unit: the field of the configuration that counts the equal pieces which must stay whole.
        whole_when_uneven: every rank keeps the whole tensor when the pieces cannot be dealt out evenly, and
            their gradients are summed.
        filled_when_uneven: every rank has equally many, and the last ones have some that mean nothing. With
            neither of the two, a group whose size does not divide the pieces is impossible.
    """

    axis: int
    unit: str
    whole_when_uneven: bool = False
    filled_when_uneven: bool = False


#: By the name of a tensor with `*` for numbers; None: every rank has the whole tensor.
SplitRules = Mapping[str, Split | None]


def split_problem(rules: SplitRules, config: ModelConfig, ranks: int) -> Problem | None:
    """Why a model cannot be split over a tensor group of so many ranks; None when it can."""
    for rule in rules.values():
        if rule is None or rule.whole_when_uneven:
            continue
        pieces: int = getattr(config, rule.unit)
        if rule.filled_when_uneven:
            possible = (ranks - 1) * -(-pieces // ranks) < pieces
        else:
            possible = pieces % ranks == 0
        if not possible:
            msg = f"got {ranks}, and the model's {rule.unit} is {pieces}, which cannot be dealt out evenly"
            return Problem((DEGREE,), msg, f"Choose a degree that divides {pieces}.")
    return None


def split_of(rules: SplitRules, name: str) -> Split | None:
    """The rule for a tensor of the files.

    Raises:
        KeyError: there is none.
    """
    return rules[_NUMBER.sub("*", name)]
