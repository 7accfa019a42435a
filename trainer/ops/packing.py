"""Batches without their padding.

The decoder works on packed tokens `[tokens, width]`: the real tokens of every row, one row after another.
Padding costs no work, left and right padding are the same thing, and attention is causal inside each
document: a row, or each of the numbered documents that share a row.
"""

from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor


@dataclass(frozen=True)
class Packing:
    """How the real tokens of a padded batch lie one after another.

    Attributes:
        shape: (batch, sequence) of the padded batch.
        lengths: number of real tokens of each document, in the order of rows and of documents in them.
        positions: int64 `[tokens]`, the position of each real token.
        index: int64 `[tokens]`, where each real token lies in the flattened padded batch; None when there is
            no padding.
        branches: int64 `[tokens]`, the branch of its document that each real token belongs to, 0 = trunk;
            None when no document has more than one.
    """

    shape: tuple[int, int]
    lengths: tuple[int, ...]
    positions: np.ndarray
    index: Tensor | None
    branches: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        input_ids: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
        branches: Tensor | None = None,
    ) -> "Packing":
        """Plan the packing of a batch.

        Args:
            input_ids: `[batch, sequence]`; only its shape is used.
            position_ids: int `[batch, sequence]`; by default each row counts 0, 1, 2, … from its first
                column.
            attention_mask: `[batch, sequence]`, 0 = padding, else the number of the document that the token
                belongs to (1 everywhere where a row is one document); by default every token is real.
            branches: int `[batch, sequence]`, 0 in the trunk of a document, which comes first, then 1, 2, …
                in its branches, which see the trunk and not each other; by default there are none.
        """
        batch, sequence = input_ids.shape
        if position_ids is None:
            positions = np.broadcast_to(np.arange(sequence, dtype=np.int64), (batch, sequence))
        else:
            positions = position_ids.numpy().astype(np.int64)
        parts = None if branches is None else branches.numpy().reshape(-1)
        if parts is not None and parts.max() <= 1:
            parts = None
        if attention_mask is None:
            return cls((batch, sequence), (sequence,) * batch, positions.reshape(-1), None, parts)
        documents = attention_mask.numpy().reshape(batch, sequence)
        real = documents != 0
        lengths = _document_lengths(documents, real)
        if real.all():
            return cls((batch, sequence), lengths, positions.reshape(-1), None, parts)
        index = np.flatnonzero(real)
        parts = None if parts is None else parts[index]
        return cls((batch, sequence), lengths, positions.reshape(-1)[index], paddle.to_tensor(index), parts)

    def extended(self, tokens: int) -> "Packing":
        """With a document of `tokens` tokens more, in a batch of one row that has no padding."""
        branches = None if self.branches is None else np.append(self.branches, np.zeros(tokens, np.int64))
        return Packing(
            shape=(1, len(self.positions) + tokens),
            lengths=(*self.lengths, tokens),
            positions=np.append(self.positions, np.arange(tokens, dtype=np.int64)),
            index=None,
            branches=branches,
        )

    def pack(self, padded: Tensor) -> Tensor:
        """Take the real tokens out of `[batch, sequence]`, giving `[tokens]`."""
        flat = padded.reshape([-1])
        return flat if self.index is None else paddle.gather(flat, self.index)

    def unpack(self, packed: Tensor) -> Tensor:
        """Put `[tokens, width]` back into `[batch, sequence, width]`; padding becomes zero."""
        batch, sequence = self.shape
        width = packed.shape[-1]
        if self.index is not None:
            empty = paddle.zeros([batch * sequence, width], packed.dtype)
            packed = paddle.scatter(empty, self.index, packed)
        return packed.reshape([batch, sequence, width])


def _document_lengths(documents: np.ndarray, real: np.ndarray) -> tuple[int, ...]:
    """Number of real tokens of each run of one document number within a row."""
    row, column = np.nonzero(real)
    number = documents[row, column]
    begins = np.flatnonzero((np.diff(row) != 0) | (np.diff(number) != 0)) + 1
    edges = np.concatenate([[0], begins, [len(row)]])
    return tuple(int(length) for length in np.diff(edges) if length)
