"""The table of a run: a line for each layout and family, a column for each method."""

from collections.abc import Iterator
from dataclasses import replace

from tests.parallel.cases import FAMILIES, LAYOUTS, METHODS, Combination
from tests.parallel.matrix import Difference, Matrix

CELL, NAME = 17, 32
TITLE = "relative difference of losses after AdamW | difference of weights after SGD; seconds for both"


def lines(matrix: Matrix) -> Iterator[str]:
    """The table, line for line. Combinations that failed or were left out have no figures."""
    yield TITLE
    yield " " * NAME + "".join(f"{method.name[: CELL - 1]:{CELL}}" for method in METHODS) + "seconds"
    for layout in LAYOUTS:
        for family in FAMILIES:
            combinations = [Combination(layout, family, method) for method in METHODS]
            adamw = [matrix.differences.get(one) for one in combinations]
            plain = [matrix.differences.get(replace(one, plain=True)) for one in combinations]
            if seconds := sum(one.seconds for one in adamw + plain if one is not None):
                cells = "".join(_cell(*pair) for pair in zip(adamw, plain, strict=True))
                yield f"{f'{layout.name}, {family}':{NAME}}{cells}{seconds:7.1f}"
    for one, difference in matrix.differences.items():
        if one.begun_in is not None:
            names = f"{one.begun_in.name}, resumed under {one.layout.name}, {one.family}, {one.method.name}"
            yield f"saved under {names}: {_short(difference.loss)}"


def _cell(adamw: Difference | None, plain: Difference | None) -> str:
    if adamw is None and plain is None:
        return " " * CELL
    loss = _short(None if adamw is None else adamw.loss)
    weight = _short(None if plain is None else plain.weight)
    return f"{loss} | {weight}".ljust(CELL)


def _short(value: float | None) -> str:
    """One digit and the exponent, in five characters."""
    if value is None:
        return "    -"
    return f"{value:.0e}" if value else "    0"
