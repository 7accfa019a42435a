"""Sequence parallelism: between split layers each rank of a tensor group has some of the tokens.

(Korthikanti et al., arXiv 2205.05198.) Without a group, or without sequence parallelism, nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from paddle import Tensor

from trainer.models.placement import TensorRank
from trainer.ops.tensor_group import joined_rows, own_random, own_rows, sum_gradients


def missing_tokens(tokens: int, tensor: TensorRank | None) -> int:
    """How many tokens there are too few for equal parts."""
    return -tokens % tensor.size if tensor is not None and tensor.sequence else 0


def own_tokens(x: Tensor, tensor: TensorRank | None) -> Tensor:
    """The rank's part of `x [tokens, width]`, which all ranks have; its size divides the tokens."""
    return own_rows(x) if tensor is not None and tensor.sequence else x


def all_tokens(x: Tensor, tensor: TensorRank | None) -> Tensor:
    """The parts of all ranks, `[tokens, width]`, with which all ranks do the same."""
    return joined_rows(x) if tensor is not None and tensor.sequence else x


def sees_own_tokens(parameters: Iterable[Tensor], tensor: TensorRank | None) -> None:
    """Let parameters that work on the rank's part of the tokens get the gradients of all ranks."""
    if tensor is not None and tensor.sequence:
        for parameter in parameters:
            sum_gradients(parameter, tensor.group)


def random_of_tokens(tensor: TensorRank | None) -> AbstractContextManager[None]:
    """Inside, what is drawn for tokens fits them: alike on all ranks when all have the same tokens."""
    return own_random() if tensor is not None and tensor.sequence else nullcontext()
