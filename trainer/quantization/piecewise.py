"""PaddleSlim's piecewise search: factors of channels chosen by the error they lead to.

Channels are put in pieces by their size; for each piece, from the smallest, the best of some alphas of
SmoothQuant's formula and some constants is kept, the other channels having the factors that they have by
then. Ranges are half-open: 0.2 to 0.8 in steps of 0.01 ends at 0.79, 1 to 5 in steps of 0.5 at 4.5. Of equal
errors the first counts. Every number of pieces starts afresh, from plain SmoothQuant's factors, which so are
never better than what is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trainer.quantization.smooth import PLAIN_ALPHA, ChannelSizes

_ALPHA_STEP = 0.01
_SCALE_STEP = 0.5
_MOST_ROUNDS = 100


@dataclass(frozen=True)
class PiecewiseSearch:
    """What to search.

    Attributes:
        pieces: pieces of channels.
        try_fewer: search every number of pieces from 1 up to `pieces`, and keep the best.
        alpha_min, alpha_max: of SmoothQuant's formula.
        scale_min, scale_max: of constants.
    """

    pieces: int = 3
    try_fewer: bool = False
    alpha_min: float = 0.2
    alpha_max: float = 0.8
    scale_min: float = 1.0
    scale_max: float = 5.0

    def alphas(self) -> np.ndarray:
        """The alphas that are tried."""
        return half_open(self.alpha_min, self.alpha_max, _ALPHA_STEP)

    def scales(self) -> np.ndarray:
        """The constants that are tried."""
        return half_open(self.scale_min, self.scale_max, _SCALE_STEP)

    def find(self, sizes: ChannelSizes, error_of: Callable[[np.ndarray], float]) -> np.ndarray:
        """The best factors, float64 `[channels]`.

        Args:
            sizes: of the channels.
            error_of: the error that factors lead to.
        """
        counts = range(1, self.pieces + 1) if self.try_fewer else (self.pieces,)
        found = [self._search(sizes, count, error_of) for count in counts]
        return min(found, key=lambda outcome: outcome[0])[1]

    def _search(
        self, sizes: ChannelSizes, count: int, error_of: Callable[[np.ndarray], float]
    ) -> tuple[float, np.ndarray]:
        best = sizes.factors(PLAIN_ALPHA)
        lowest = error_of(best)
        for piece in pieces_of(sizes.input, count):
            start = best
            for candidate in self._candidates(sizes):
                factors = np.where(piece, candidate, start)
                error = error_of(factors)
                if error < lowest:
                    lowest, best = error, factors
        return lowest, best

    def _candidates(self, sizes: ChannelSizes) -> Iterator[np.ndarray]:
        for alpha in self.alphas():
            yield sizes.factors(alpha)
        for scale in self.scales():
            yield np.full_like(sizes.input, scale)


def half_open(start: float, stop: float, step: float) -> np.ndarray:
    """start, start + step, … below stop; as many as the exact numbers would be."""
    count = int(np.ceil(round((stop - start) / step, 6)))
    return start + step * np.arange(max(count, 0))


def pieces_of(sizes: np.ndarray, count: int) -> list[np.ndarray]:
    """Channels by size in at most `count` pieces, smallest first: k-means in one dimension.

    It begins with the means of equally many neighbours, so it gives the same for the same sizes.

    Returns:
        bool `[channels]` for each piece; none is empty.
    """
    ordered = np.sort(sizes)
    centres = np.array([part.mean() for part in np.array_split(ordered, min(count, len(ordered)))])
    nearest = np.zeros(len(sizes), np.int64)
    for _ in range(_MOST_ROUNDS):
        nearest = np.abs(sizes[:, np.newaxis] - centres).argmin(axis=1)
        kept = np.unique(nearest)
        moved = np.array([sizes[nearest == number].mean() for number in kept])
        if len(moved) == len(centres) and np.allclose(moved, centres, rtol=1e-9, atol=0):
            break
        centres = moved
        nearest = np.searchsorted(kept, nearest)
    return [nearest == number for number in np.unique(nearest)]
