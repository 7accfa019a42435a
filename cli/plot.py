"""A curve as text."""

from collections.abc import Sequence
from itertools import pairwise


def text_plot(values: Sequence[float], width: int = 60, height: int = 8) -> list[str]:
    """The values from left to right as rows of stars, the highest on top, with the axis' numbers at the left.

    More values than columns are averaged column by column.
    """
    if not values:
        return []
    columns = _columns(values, width)
    low, high = min(columns), max(columns)
    span = (high - low) or 1.0
    levels = [round((value - low) / span * (height - 1)) for value in columns]
    rows = []
    for row in reversed(range(height)):
        marks = "".join("*" if level == row else " " for level in levels)
        rows.append(f"{low + span * row / (height - 1):8.3f} | {marks}".rstrip())
    return rows


def _columns(values: Sequence[float], width: int) -> list[float]:
    count = min(width, len(values))
    edges = [len(values) * i // count for i in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
