"""How long texts are: counted into a histogram whose edges are the same for all data."""

from typing import Any

EDGES = tuple(2**power for power in range(4, 21))
"""The upper ends of the bins, themselves included; what is longer than the last is in one more bin."""


class Lengths:
    """Counts lengths; keeps no more of them than a histogram."""

    def __init__(self) -> None:
        self.count = self.total = self.longest = 0
        self._bins = [0] * (len(EDGES) + 1)

    def add(self, length: int) -> None:
        """Count one more."""
        self.count += 1
        self.total += length
        self.longest = max(self.longest, length)
        self._bins[max((length - 1).bit_length() - 4, 0) if length <= EDGES[-1] else -1] += 1

    def as_dict(self) -> dict[str, Any]:
        """`total`, `mean`, `max` and `histogram`: bins as far as the longest one reaches, each with `up_to`
        (None: no end) and `examples`.
        """
        bins = [
            {"up_to": edge, "examples": count} for edge, count in zip((*EDGES, None), self._bins, strict=True)
        ]
        while len(bins) > 1 and not bins[-1]["examples"]:
            bins.pop()
        mean = self.total / self.count if self.count else 0.0
        return {"total": self.total, "mean": round(mean, 3), "max": self.longest, "histogram": bins}
