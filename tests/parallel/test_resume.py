"""A checkpoint of any layout is gone on from in any other."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.parallel.cases import LAYOUTS, METHODS, SINGLE, Combination, Parallel
from tests.parallel.matrix import MIDDLE, STEPS, Matrix
from tests.parallel.training import Outcome

LOSS = METRIC = 1e-5
STEPS_LEFT = STEPS - MIDDLE

pytestmark = pytest.mark.timeout(3600)  # the first test of a layout trains all of it

#: Saved in the first, resumed in the second.
PAIRS = (
    ("stage 3 x2", "TP2", "gemma", "sft"),
    ("PP2", "one process", "bloom", "sft"),
    ("TP2 x PP2", "stage 2 x2", "gemma", "dpo"),
    ("one process", "PP4 x 2 virtual", "gemma", "sft"),
    ("TP2", "DP2", "bloom", "kto"),
    ("stage 2 x2", "PP2", "gemma", "sft"),
    ("stage 1 x2, split_param", "stage 3 x2", "bloom", "sft"),
    ("TP2", "PP2", "gemma", "sft lora"),
    ("TP2 + sequence parallel", "stage 1 x2, split_param", "bloom", "sft lora"),
    ("PP4 x 2 virtual", "TP2 x stage 3", "bloom", "sft"),
    ("DP2 x TP2", "PP2 x stage 1", "gemma", "sft"),
    ("stage 3 x2", "TP2", "gemma", "prefix"),
)
ALWAYS = PAIRS[0], PAIRS[2]

_layouts = {layout.name: layout for layout in (SINGLE, *LAYOUTS)}
_methods = {method.name: method for method in METHODS}


def pairs() -> list[Any]:
    """Combinations that begin in one layout and go on in another."""
    found = []
    for pair in PAIRS:
        begun, layout, family, method = pair
        one = combination(_layouts[begun], _layouts[layout], family, method)
        found.append(pytest.param(one, id=str(one), marks=[] if pair in ALWAYS else pytest.mark.parallel))
    return found


def combination(begun: Parallel, layout: Parallel, family: str, method: str) -> Combination:
    layers = max(begun.layers, layout.layers)
    begun, layout = replace(begun, layers=layers), replace(layout, layers=layers)
    return Combination(layout, family, _methods[method], begun_in=begun)


def same() -> list[Any]:
    """Combinations that go on in the layout that they began in."""
    found = []
    for number, layout in enumerate((SINGLE, *LAYOUTS)):
        family, method = ("gemma", "bloom")[number % 2], ("sft", "sft lora", "dpo")[number % 3]
        one = combination(layout, layout, family, method)
        found.append(pytest.param(one, id=str(one), marks=[] if number == 1 else pytest.mark.parallel))
    return found


@pytest.mark.parametrize("combination", pairs())
def test_another_layout_goes_on_as_one_process_without_a_break(
    matrix: Matrix, combination: Combination
) -> None:
    difference = matrix.difference(combination)
    assert difference.loss < LOSS
    assert difference.metric < METRIC
    assert len(matrix.trained(combination)[0].losses) == STEPS_LEFT


@pytest.mark.parametrize("combination", same())
def test_the_same_layout_goes_on_to_the_same_bits(matrix: Matrix, combination: Combination) -> None:
    assert combination.origin is not None
    resumed = matrix.trained(combination)
    assert bits(resumed) == bits(matrix.trained(combination.origin))


def bits(outcomes: Sequence[Outcome]) -> list[Any]:
    """Losses of the last steps and weights of every process."""
    return [
        (one.losses[-STEPS_LEFT:], [(part.name, part.region, part.values.tobytes()) for part in one.weights])
        for one in outcomes
    ]
