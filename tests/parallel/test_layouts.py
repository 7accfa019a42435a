"""Every layout gives the numbers of one process, for both families and every method."""

from typing import Any

import pytest

from tests.parallel.cases import FAMILIES, LAYOUTS, METHODS, Combination, combinations, spread
from tests.parallel.matrix import PLAIN_STEPS, STEPS, Matrix

LOSS = METRIC = 1e-5
NORM = 1e-4
WEIGHT = 1e-6

pytestmark = pytest.mark.timeout(3600)  # the first test of a layout trains all of it


def marked(plain: bool) -> list[Any]:
    """All combinations; only some of them are part of `make test`."""
    every = combinations(plain)
    always = set(spread(every))
    return [
        pytest.param(one, id=str(one), marks=[] if one in always else pytest.mark.parallel) for one in every
    ]


def test_the_part_that_always_runs_has_every_layout_family_and_method() -> None:
    always = list(spread(combinations(plain=False)))
    assert {one.layout for one in always} == set(LAYOUTS)
    assert {one.family for one in always} == set(FAMILIES)
    assert {one.method for one in always} == set(METHODS)


@pytest.mark.parametrize("combination", marked(plain=False))
def test_adamw_gives_the_losses_norms_and_metrics_of_one_process(
    matrix: Matrix, combination: Combination
) -> None:
    difference = matrix.difference(combination)
    assert difference.loss < LOSS
    assert difference.norm < NORM
    assert difference.metric < METRIC
    assert len(matrix.trained(combination)[0].losses) == STEPS


@pytest.mark.parametrize("combination", marked(plain=True))
def test_gradient_descent_gives_the_weights_of_one_process(matrix: Matrix, combination: Combination) -> None:
    difference = matrix.difference(combination)
    assert difference.loss < LOSS
    assert difference.weight < WEIGHT
    assert len(matrix.trained(combination)[0].losses) == PLAIN_STEPS
