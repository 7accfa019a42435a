"""A walk shows every linear layer its inputs, and later layers what changed layers before them give."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import Tensor

from tests.trainer.quantization.calibrated import FAMILIES, batches, small
from trainer.models import CausalLM, linear_layers
from trainer.models.passes import Pass
from trainer.quantization.calibration import Walk


def seen_in_whole_passes(model: CausalLM, given: list[Pass]) -> dict[str, list[np.ndarray]]:
    """The inputs of every linear layer while the whole model runs."""
    seen: dict[str, list[np.ndarray]] = {}

    def hook_of(path: str) -> Callable[..., Any]:
        return lambda _, inputs: seen.setdefault(path, []).append(inputs[0].numpy())

    hooks = [layer.layer.register_forward_pre_hook(hook_of(layer.path)) for layer in linear_layers(model)]
    with paddle.no_grad():
        for batch in given:
            model.final_states(batch.ids, batch.packing)
    for hook in hooks:
        hook.remove()
    return seen


def seen_in_walk(model: CausalLM, given: list[Pass]) -> dict[str, list[np.ndarray]]:
    seen: dict[str, list[np.ndarray]] = {}
    for block in Walk(model, given):
        block.inputs(lambda path, x, number: seen.setdefault(path, []).insert(number, x.numpy()))
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_a_walk_shows_the_inputs_that_whole_passes_have(family: str) -> None:
    model, given = small(family), batches()
    walked, whole = seen_in_walk(model, given), seen_in_whole_passes(model, given)
    assert list(walked) == list(whole) == [layer.path for layer in linear_layers(model)]
    for path, inputs in whole.items():
        for mine, theirs in zip(walked[path], inputs, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_changes_of_a_layer_reach_the_inputs_of_the_next() -> None:
    model, given = small("gemma"), batches()
    changed: dict[int, list[np.ndarray]] = {}

    def keep(path: str, x: Tensor, number: int) -> None:
        if path.endswith("q_proj"):
            changed.setdefault(int(path.split(".")[2]), []).append(x.numpy())

    for block in Walk(model, given):
        block.inputs(keep)
        for layer in block.linears:
            layer.layer.weight.set_value(layer.layer.weight * 0.5)
    expected = seen_in_whole_passes(model, given)["model.layers.1.self_attn.q_proj"]
    for mine, theirs in zip(changed[1], expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_each_layer_runs_twice_over_each_batch() -> None:
    model, given = small("bloom"), batches(count=2)
    runs = []
    hooks = [
        layer.register_forward_pre_hook(lambda *_: runs.append(1)) for layer in model.transformer.h.values()
    ]
    for block in Walk(model, given):
        block.inputs(lambda *_: None)
    for hook in hooks:
        hook.remove()
    # Nothing comes after the last layer, so it does not run for the next one.
    assert len(runs) == 2 * len(given) * len(hooks) - len(given)


def test_a_walk_holds_the_hidden_states_of_one_place_only() -> None:
    layers = 4
    model, given = small("gemma", layers), batches(count=5)
    shapes = {(batch.tokens, model.config.hidden_size) for batch in given}
    held = []
    for block in Walk(model, given):
        block.inputs(lambda *_: None)
        gc.collect()
        tensors = [x for x in gc.get_objects() if isinstance(x, paddle.Tensor)]
        held.append(sum(tuple(x.shape) in shapes for x in tensors))
    assert max(held) <= 2 * len(given)
    assert held[-1] <= held[0] + 1


def test_hooks_are_gone_after_a_visit_that_failed() -> None:
    model, given = small("gemma"), batches(count=1)

    def fail(*_: object) -> None:
        raise RuntimeError("stop here")

    block = next(iter(Walk(model, given)))
    with pytest.raises(RuntimeError, match="stop here"):
        block.inputs(fail)
    block.inputs(lambda *_: None)
    assert not any(layer.layer._forward_pre_hooks for layer in linear_layers(model))


def test_a_walk_needs_a_batch() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Walk(small("gemma"), [])
