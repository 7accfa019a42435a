"""A curve as text."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

AXIS = 11  # columns left of the first mark: a number, a space, the axis and a space


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
        rows.append(f"{_number(low + span * row / (height - 1))} | {marks}".rstrip())
    return rows


def step_plot(points: Mapping[int, float], title: str, width: int = 60, height: int = 12) -> str:
    """Values by step as a plot with a headline and the steps below it.

    Args:
        points: at least one, all finite.
        title: what the values are.
        width: of the whole plot, in characters.
        height: of the curve, in lines.
    """
    steps = sorted(points)
    values = [points[step] for step in steps]
    rows = text_plot(values, max(width - AXIS, 1), height)
    longest = min(len(values), max(width - AXIS, 1))
    first, last = str(steps[0]), str(steps[-1])
    ends = first if len(steps) == 1 else f"{first}{last:>{max(longest - len(first), len(last) + 1)}}"
    lowest = min(steps, key=lambda step: points[step])
    headline = f"{title}: {values[-1]:.4g} at step {last}, lowest {points[lowest]:.4g} at step {lowest}"
    return "\n".join([headline, *rows, f"{'step':>8}   {ends}"])


def _number(value: float) -> str:
    """In eight characters, also what is as small as a learning rate."""
    return f"{value:8.3f}" if value == 0 or 1e-2 <= abs(value) < 1e4 else f"{value:8.1e}"


def _columns(values: Sequence[float], width: int) -> list[float]:
    count = min(width, len(values))
    edges = [len(values) * i // count for i in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
