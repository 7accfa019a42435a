"""Sequences that grow together: left-padded token ids and the cache behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from trainer.models.base import CausalLM


class Batch:
    """Left-padded ids `[rows, columns]` and which of them are real.

    Results of a row depend neither on its padding nor on the other rows.
    """

    def __init__(self, model: CausalLM, prompts: Sequence[Sequence[int]], use_cache: bool) -> None:
        columns = max(map(len, prompts))
        self._model = model
        self._cache = model.new_cache(len(prompts)) if use_cache else None
        self._seen = 0
        self._ids = np.zeros((len(prompts), columns), np.int64)
        self._real = np.zeros((len(prompts), columns), bool)
        for row, prompt in enumerate(prompts):
            self._ids[row, columns - len(prompt) :] = prompt
            self._real[row, columns - len(prompt) :] = True

    def logits(self) -> np.ndarray:
        """What the model says comes next in each row: float32 `[rows, vocabulary]`."""
        positions = np.maximum(np.cumsum(self._real, axis=1) - 1, 0)  # padding does not count
        new = slice(self._seen, None)
        logits = self._model.next_logits(
            self._ids[:, new], positions[:, new], self._real[:, new], self._cache
        )
        if self._cache is not None:
            self._seen = self._ids.shape[1]
        return logits.numpy()

    def append(self, tokens: np.ndarray) -> None:
        """Add one token to each row: int64 `[rows]`."""
        self._ids = np.concatenate([self._ids, tokens[:, None]], axis=1)
        self._real = np.concatenate([self._real, np.ones((len(tokens), 1), bool)], axis=1)

    def select(self, rows: np.ndarray) -> None:
        """Go on with these rows, in this order; a row may be taken several times."""
        self._ids, self._real = self._ids[rows], self._real[rows]
        if self._cache is not None:
            self._cache.select(rows)

    def texts(self) -> list[np.ndarray]:
        """The real ids of each row."""
        return [ids[real] for ids, real in zip(self._ids, self._real, strict=True)]
