"""Activations that are computed again in the backward pass instead of being kept.

Fleet's recompute runs a part of the model without keeping anything, and once more when gradients come back,
with the same random numbers. Gradients reach what is handed to that part, so the keys and values of a prefix
are handed over like the hidden states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import paddle
from paddle import Tensor

from trainer.models.base import Attend, CausalLM
from trainer.models.parts import Role
from trainer.models.registry import linear_layers
from trainer.ops.prefix import KeyValuePair, PrefixAttention

#: What is computed again: whole layers, attention with its projections, or attention without them.
Granularity = Literal["full", "full_attn", "core_attn"]


def recompute_activations(model: CausalLM, granularity: Granularity) -> None:
    """Let a model compute activations again in every backward pass. Numbers stay as they are."""
    if granularity == "core_attn":
        model.wrap_attention = _attention_again
        return
    modules = dict(model.named_sublayers())
    paths = _attention_paths(model) if granularity == "full_attn" else _layer_paths(model)
    for layer, path in paths.items():
        module: Any = modules[path]
        module.forward = _again(module.forward, layer)


def _layer_paths(model: CausalLM) -> dict[int, str]:
    """The paths of the decoder layers that are here, by their numbers from 0."""
    last = model.config.num_hidden_layers + 1
    return {stage.number - 1: stage.modules[0] for stage in model.stages() if 0 < stage.number < last}


def _attention_paths(model: CausalLM) -> dict[int, str]:
    """The paths of the modules that hold the output projection of attention, by the number of the layer."""
    outputs = [found.path for found in linear_layers(model) if found.role is Role.ATTENTION_OUTPUT]
    owners = (path.rpartition(".")[0] for path in outputs)
    return dict(zip(_layer_paths(model), owners, strict=True))


def _again(forward: Callable[..., Tensor], layer: int) -> Callable[..., Tensor]:
    """For `forward(x, ..., attend)` of a module in decoder layer number `layer`."""

    def run(x: Tensor, *given: Any) -> Tensor:
        *others, attend = given

        def once(x: Tensor, *pair: Tensor) -> Tensor:
            return forward(x, *others, _with_pair(attend, layer, pair))

        return _computed_again(once, x, *_pair(attend, layer))

    return run


def _attention_again(attend: Attend) -> Attend:
    def run(q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        def once(q: Tensor, k: Tensor, v: Tensor, *pair: Tensor) -> Tensor:
            return _with_pair(attend, layer, pair)(q, k, v, layer)

        return _computed_again(once, q, k, v, *_pair(attend, layer))

    return run


def _computed_again(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    if not paddle.is_grad_enabled():
        return function(*tensors)
    from paddle.distributed.fleet.utils import recompute

    first, *others = tensors
    if all(tensor.stop_gradient for tensor in tensors):
        # Frozen embeddings: without an input that wants a gradient, none would reach what is inside.
        first = first.detach()
        first.stop_gradient = False
    return cast(Tensor, recompute(function, first, *others))


def _pair(attend: Attend, layer: int) -> tuple[Tensor, ...]:
    return attend.prefix[layer] if isinstance(attend, PrefixAttention) else ()


def _with_pair(attend: Attend, layer: int, pair: tuple[Tensor, ...]) -> Attend:
    if isinstance(attend, PrefixAttention):
        return attend.replaced(layer, cast(KeyValuePair, pair))
    return attend
