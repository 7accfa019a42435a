"""A prefix on a model: made, loaded, saved, switched off.

Prefix tokens have the positions 0, 1, …, P - 1 and a text begins at position P. Their keys are learned as
they are, so they are not rotated; with linear biases they are at the distances that these positions say. PEFT
computes the same from the same file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from paddle import Tensor, nn

from trainer.config.adapters import ADAPTER_WEIGHTS, PREFIX_ENCODER, PrefixSettings
from trainer.config.problems import DataError, Problem
from trainer.models.base import CausalLM
from trainer.models.weights import WeightMap
from trainer.ops.prefix import KeyValuePair
from trainer.peft.files import (
    check_shapes,
    disk_tensors,
    fill_weights,
    freeze,
    open_tensors,
    save_adapter,
    write_tensors,
)
from trainer.peft.prefix.encoder import PROMPT, PrefixEncoder, disk_shapes


class PrefixAdapter:
    """The prefix of one model.

    Attributes:
        settings: its sizes.
        encoder: its parameters.
    """

    def __init__(self, model: CausalLM, settings: PrefixSettings, encoder: PrefixEncoder) -> None:
        self.settings = settings
        self.encoder = encoder
        self._model = model

    @property
    def tokens(self) -> int:
        """Length of the prefix."""
        return self.settings.tokens

    def pairs(self) -> list[KeyValuePair]:
        """Keys and values of every layer, each `[tokens, key heads here * head_dim]`."""
        layers, heads = self.settings.layers, self._model.heads
        rows: Tensor = heads.own_pairs(self.encoder()).reshape([self.tokens, layers, 2, -1])
        return [(rows[:, layer, 0], rows[:, layer, 1]) for layer in range(layers)]

    def weights(self) -> WeightMap:
        """The trained parameters."""
        return self.encoder.weights()

    def save(self, directory: Path) -> None:
        """Write the adapter as PEFT does: the keys and values; beside them the network, if there is one."""
        directory.mkdir(parents=True, exist_ok=True)
        if self.encoder.projected:
            write_tensors(directory / PREFIX_ENCODER, disk_tensors(self.weights()))
        save_adapter(directory, self.settings, {PROMPT: np.ascontiguousarray(self.encoder().numpy())})

    def load(self, directory: Path) -> None:
        """Take the parameters of a prefix of the same sizes.

        Raises:
            DataError: it has other sizes.
        """
        file = PREFIX_ENCODER if self.encoder.projected else ADAPTER_WEIGHTS
        fill_weights(self.weights(), directory / file)

    def fp32_layers(self) -> list[nn.Layer]:
        """The encoder."""
        return [self.encoder]

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Inside, the model is its base model."""
        before, self._model.prefix = self._model.prefix, None
        try:
            yield
        finally:
            self._model.prefix = before


def add_prefix(
    model: CausalLM, tokens: int, projection: int | None = None, *, base: str | None = None, seed: int = 0
) -> PrefixAdapter:
    """Freeze a model and put a fresh prefix on it.

    Keys and values begin as N(0, initializer_range), like the model's own matrices.

    Args:
        tokens: length of the prefix.
        projection: width of the network that computes it in training; None: no network.
        base: the model's folder or hub name, to be written down.
        seed: of the numbers.
    """
    config = model.config
    width = config.num_key_value_heads * config.head_dim
    layers, heads = config.num_hidden_layers, config.num_key_value_heads
    adapter = _attach(model, PrefixSettings(tokens, layers, heads, width, projection, base))
    adapter.encoder.draw(seed, config.initializer_range)
    return adapter


def load_prefix(model: CausalLM, settings: PrefixSettings, directory: Path) -> PrefixAdapter:
    """Freeze a model and put a saved prefix on it.

    Without the network that computed it, the keys and values themselves are trained on.

    Raises:
        DataError: it does not fit the model, or its tensors are missing or misshapen.
    """
    config = model.config
    expected = {
        "num_layers": (settings.layers, config.num_hidden_layers),
        "num_attention_heads": (settings.kv_heads, config.num_key_value_heads),
        "token_dim": (settings.width, config.num_key_value_heads * config.head_dim),
    }
    problems = [
        Problem((str(directory), name), f"got {got}, the model has {has}", "Use the prefix of this model.")
        for name, (got, has) in expected.items()
        if got != has
    ]
    if problems:
        raise DataError(problems)
    if settings.projection is not None and not (directory / PREFIX_ENCODER).is_file():
        settings = PrefixSettings(**{**vars(settings), "projection": None})
    # Before parameters are made: sizes that the file does not have could be such that no memory holds.
    file = ADAPTER_WEIGHTS if settings.projection is None else PREFIX_ENCODER
    check_shapes(open_tensors(directory / file), disk_shapes(settings))
    adapter = _attach(model, settings)
    adapter.load(directory)
    return adapter


def _attach(model: CausalLM, settings: PrefixSettings) -> PrefixAdapter:
    freeze(model)
    encoder = PrefixEncoder(settings)
    model.add_sublayer("prefix_encoder", encoder)
    adapter = PrefixAdapter(model, settings, encoder)
    model.adapter = model.prefix = adapter
    return adapter
