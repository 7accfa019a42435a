"""SmoothQuant: large input channels made smaller, and their weights larger (arXiv 2211.10438)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer.quantization.groups import InputGroup, Source
from trainer.quantization.observers import InputStatistics

#: What factors of inputs and of weights have the same share with.
PLAIN_ALPHA = 0.5
_SMALLEST_FACTOR = 1e-5


@dataclass(frozen=True)
class ChannelSizes:
    """The sizes of an input's channels and of the weights that they meet.

    Attributes:
        input: float64 `[channels]`, the largest absolute value over tokens.
        weight: float64 `[channels]`, the largest over the outputs of all layers that share the input.
    """

    input: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, group: InputGroup, source: Source, statistics: InputStatistics) -> ChannelSizes:
        """Of a group, by the channels of its source."""
        largest = source.largest(np.stack([statistics.channel_absmax, group.weight_absmax()]))
        return cls(*largest.astype(np.float64))

    def factors(self, alpha: float) -> np.ndarray:
        """max|X|^alpha / max|W|^(1 - alpha), at least 1e-5; 1 where either is zero. `[channels]`."""
        usable = (self.input > 0) & (self.weight > 0)
        x, w = np.where(usable, self.input, 1.0), np.where(usable, self.weight, 1.0)
        found = np.maximum(x**alpha / w ** (1 - alpha), _SMALLEST_FACTOR)
        return np.where(usable, found, 1.0)


def at_most_one(factors: np.ndarray) -> np.ndarray:
    """The same factors divided by the largest one, which changes nothing about rounding.

    Norms then only grow. Gemma keeps its scale less 1, and a scale near zero would lose its digits there.
    """
    return factors / factors.max()
