"""A model whose linear layers are quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainer.config.quantized_models import QUANTIZATION, QuantizationScheme
from trainer.models import CausalLM, linear_layers
from trainer.models.linear import Fused
from trainer.quantization.formats import Integers
from trainer.quantization.layers import QuantizedLinear

# Layers outside the decoder layers that other tools would take for linear ones.
_HEAD = "lm_head"


def quantize_model(
    model: CausalLM,
    weights: Mapping[str, Integers],
    scheme: QuantizationScheme,
    input_scales: Mapping[str, float] | None = None,
) -> None:
    """Put quantized layers in the places of linear ones, so that `save_model` writes a quantized model.

    Args:
        model: whole, and without fused projections, as files have none.
        weights: by the path of the layer; layers that are not among them stay as they are.
        scheme: with the sizes of all `weights`.
        input_scales: of the same layers, if and only if `scheme.activations`.

    Raises:
        ValueError: these do not fit together; the model is as before.
    """
    layers = {layer.path: layer.layer for layer in linear_layers(model)}
    if unknown := sorted(weights.keys() - layers.keys()):
        raise ValueError(f"got weights for {', '.join(unknown)}, which are no linear layers of the model")
    if fused := [path for path in weights if isinstance(layers[path], Fused)]:
        raise ValueError(f"got {', '.join(fused)}, expected a model loaded without fused projections")
    made = {}
    for path, integers in weights.items():
        outputs_inputs = list(layers[path].weight.shape)[::-1]
        if list(integers.values.shape) != outputs_inputs:
            msg = f"{path}: got weights of shape {list(integers.values.shape)}, expected {outputs_inputs}"
            raise ValueError(msg)
        input_scale = (input_scales or {}).get(path)
        made[path] = QuantizedLinear(integers, scheme, layers[path].bias, input_scale)
        made[path].packed_headers()  # raises where the layout has no place for such sizes
    for path, layer in made.items():
        put_layer(model, path, layer)
    write_scheme(model, scheme)


def put_layer(model: CausalLM, path: str, layer: QuantizedLinear) -> None:
    """Put a quantized layer in the place of the linear one at `path`, in the same mode."""
    owner, _, name = path.rpartition(".")
    layer.training = model.training
    setattr(dict(model.named_sublayers())[owner], name, layer)


def write_scheme(model: CausalLM, scheme: QuantizationScheme) -> None:
    """Let the model's config.json tell how its layers are quantized, and which of them are not."""
    quantized = [path for path, layer in model.named_sublayers() if isinstance(layer, QuantizedLinear)]
    content = scheme.content(quantized, [layer.path for layer in linear_layers(model)], _HEAD)
    extra: Mapping[str, Any] = model.config.extra  # type: ignore[attr-defined]
    model.config = replace(model.config, extra={**extra, QUANTIZATION: content})  # type: ignore[call-arg]


def is_quantized(model: CausalLM) -> bool:
    """Whether any layer is."""
    return any(isinstance(layer, QuantizedLinear) for layer in model.sublayers())
