"""Words in which a family says what its parameters are for and how they may be cut."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

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
        whole_when_uneven: every rank keeps the whole tensor when there are not enough pieces for the group,
            and their gradients are summed; otherwise such a group is impossible.
    """

    axis: int
    unit: str
    whole_when_uneven: bool = False


#: By the name of a tensor with `*` for numbers; None: every rank has the whole tensor.
SplitRules = Mapping[str, Split | None]


def split_of(rules: SplitRules, name: str) -> Split | None:
    """The rule for a tensor of the files.

    Raises:
        KeyError: there is none.
    """
    return rules[_NUMBER.sub("*", name)]
