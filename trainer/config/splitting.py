"""Whether a model can be split as a config says, by the sizes in its config.json.

Key heads and the vocabulary need not divide: each rank of a tensor group then has all key heads, and its part
of the vocabulary is filled up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from trainer.config.problems import Problem
from trainer.config.topology import Topology
from trainer.config.values import show

MOST_PROPOSED = 64
"""Larger tensor groups are not proposed."""
BLOOM_INNER = 4
"""The MLP of BLOOM is so many times as wide as the model."""


@dataclass(frozen=True)
class Size:
    """A size of a model and the words that tell where it comes from."""

    words: str
    value: int


@dataclass(frozen=True)
class Shape:
    """What of a model is split: its layers over a pipeline, its heads and inner width over a tensor group."""

    layers: Size
    heads: Size
    inner: Size
    key_heads: Size | None = None
    """None: as many as heads."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self | None:
        """The shape that a config.json tells; None when it tells none that could be meant.

        Defaults are those of the published Gemma 7b; BLOOM has none.
        """
        bloom = content.get("model_type") == "bloom"
        if bloom:
            width = _size(content, ("hidden_size", "n_embed", "n_embd"))
            inner = width and Size(f"{BLOOM_INNER} x {width.words}", BLOOM_INNER * width.value)
            layers = _size(content, ("n_layer", "num_hidden_layers"))
            heads = _size(content, ("n_head", "num_attention_heads"))
            key_heads = None
        else:
            inner = _size(content, ("intermediate_size",), 24576)
            layers = _size(content, ("num_hidden_layers",), 28)
            heads = _size(content, ("num_attention_heads",), 16)
            key_heads = _size(content, ("num_key_value_heads",), 16)
        return cls(layers, heads, inner, key_heads) if layers and heads and inner else None


def misfits(shape: Shape, topology: Topology) -> Iterator[Problem]:
    """Why a model of this shape cannot be split, each with the arithmetic."""
    yield from _across(shape, topology.tensor)
    if problem := too_few_layers(topology, shape.layers.value):
        yield problem


def copied_keys(shape: Shape, topology: Topology) -> Iterator[Problem]:
    """The warning that key heads cannot be shared out, so that every rank of a tensor group has all."""
    heads, ranks = shape.key_heads, topology.tensor
    if heads is None or heads.value % ranks == 0:
        return
    msg = f"{ranks} ranks cannot share {heads.words} among them: each computes and keeps all of the key heads"
    fitting = [degree for degree in range(1, ranks) if heads.value % degree == 0]
    hint = f"They are shared with a degree of at most {fitting[-1]}." if fitting[-1] > 1 else ""
    hint = hint or "More sharding in its place costs no copies, where the model fits."
    yield Problem(("tensor_parallel_degree",), msg, hint)


def too_few_layers(topology: Topology, layers: int) -> Problem | None:
    """Why a model with so many layers cannot be cut into a pipeline; None when it can.

    Each chunk needs a layer. They need not have equally many.
    """
    chunks = topology.pipeline * topology.virtual
    if layers >= chunks:
        return None
    product, hint = f"pipeline_parallel_degree {topology.pipeline}", f"Set it to at most {layers}."
    if topology.virtual > 1:
        product += f" x virtual_pp_degree {topology.virtual} = {chunks}"
        hint = f"Lower them until their product is at most {layers}."
    msg = f"{product} chunks of layers, but the model has {layers} layers, expected one or more for each"
    msg += " chunk"
    return Problem(("pipeline_parallel_degree",), msg, hint)


def _across(shape: Shape, tensor: int) -> Iterator[Problem]:
    """Sizes that do not divide by the size of the tensor group."""
    for size in (shape.heads, shape.inner):
        if rest := size.value % tensor:
            msg = f"{size.words} / tensor_parallel_degree {tensor} leaves {rest}, expected a degree that"
            msg += " divides it"
            possible = [
                str(degree)
                for degree in range(1, min(shape.heads.value, MOST_PROPOSED) + 1)
                if not (shape.heads.value % degree or shape.inner.value % degree)
            ]
            yield Problem(("tensor_parallel_degree",), msg, f"Use one of {', '.join(possible)}.")


def _size(content: Mapping[str, Any], names: tuple[str, ...], default: int = 0) -> Size | None:
    """The size by the first of its names that is there."""
    name = next((name for name in names if name in content), names[0])
    value = content.get(name, default)
    return Size(f"{name} {show(value)}", value) if type(value) is int and value > 0 else None
