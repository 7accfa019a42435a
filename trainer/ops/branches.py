"""Documents with one beginning and several continuations that do not see each other.

Such a document lies in the batch as its trunk followed by its branches, so the work of all layers is done
once for the trunk. For attention alone every branch gets the trunk's queries, keys and values in front of its
own: then it is an ordinary causal document, for which any kernel will do. What comes out at a trunk that was
repeated is thrown away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import paddle
from paddle import Tensor


@dataclass(frozen=True)
class BranchedDocuments:
    """Packed documents, each of their branches written out as a document of its own.

    Attributes:
        lengths: of these documents: trunk and branch.
        positions: int64 `[all tokens]`.
    """

    lengths: tuple[int, ...]
    positions: np.ndarray
    _source: Tensor
    _own: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int], positions: np.ndarray, branches: np.ndarray) -> "BranchedDocuments":
        """Plan it.

        Args:
            lengths: of the documents as they are packed.
            positions: int64 `[tokens]`.
            branches: int64 `[tokens]`, 0 in the trunk, which comes first, then 1, 2, … in the branches.
        """
        longer: list[int] = []
        sources: list[np.ndarray] = []
        is_own: list[np.ndarray] = []
        for start, end in pairwise(np.cumsum([0, *lengths])):
            here = np.arange(start, end)
            trunk = here[branches[start:end] == 0]
            for number in range(1, max(1, int(branches[start:end].max())) + 1):
                branch = here[branches[start:end] == number]
                longer.append(len(trunk) + len(branch))
                sources += [trunk, branch]
                is_own += [np.full(len(trunk), number == 1), np.full(len(branch), True)]
        source = np.concatenate(sources)
        own = np.flatnonzero(np.concatenate(is_own))
        return cls(tuple(longer), positions[source], paddle.to_tensor(source), paddle.to_tensor(own))

    def attention(
        self, attend: Callable[[Tensor, Tensor, Tensor, int], Tensor]
    ) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
        """Attention of the packed tokens, by `attend` over documents of `lengths` at `positions`."""

        def branched(q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
            q, k, v = (paddle.gather(x, self._source) for x in (q, k, v))
            return paddle.gather(attend(q, k, v, layer), self._own)

        return branched
