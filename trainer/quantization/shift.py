"""Inputs moved so that each channel lies around zero (Outlier Suppression+, arXiv 2304.09145)."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from trainer.quantization.groups import Source
from trainer.quantization.observers import InputStatistics

_KEPT = 0.98


class ShiftSampler(StrEnum):
    """NONE: the middle of the range over all batches. EMA: a running mean of the middles of batches."""

    NONE = "none"
    EMA = "ema"


def shifts(statistics: InputStatistics, source: Source, sampler: ShiftSampler) -> np.ndarray:
    """What to subtract from each of the source's channels, float64 `[channels]`: (max + min) / 2.

    With EMA: that of the first batch, then `z = 0.98 z + 0.02 (max + min) / 2` for each later one.
    """
    low = -source.largest(-statistics.low.astype(np.float64))
    high = source.largest(statistics.high.astype(np.float64))
    if sampler is ShiftSampler.NONE:
        return (low.min(axis=0) + high.max(axis=0)) / 2
    batches = [statistics.batch == number for number in np.unique(statistics.batch)]
    middles = [(low[here].min(axis=0) + high[here].max(axis=0)) / 2 for here in batches]
    found = middles[0]
    for middle in middles[1:]:
        found = _KEPT * found + (1 - _KEPT) * middle
    return found
