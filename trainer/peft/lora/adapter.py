"""A LoRA adapter on a model: made, loaded, saved, switched off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from paddle import nn

from trainer.config.adapters import ADAPTER_WEIGHTS, LoraSettings
from trainer.config.problems import ConfigError, DataError, Problem
from trainer.models.base import CausalLM
from trainer.models.linear import cut_of
from trainer.models.weights import WeightMap
from trainer.models.weights_load import whole_model
from trainer.peft.files import check_shapes, disk_tensors, fill_weights, freeze, open_tensors, save_adapter
from trainer.peft.lora.layers import MATRIX_A, MATRIX_B, PATH_PREFIX, LowRank, Target, attach, targets


class LoraAdapter:
    """Low-rank matrices on some linear layers of one model.

    Attributes:
        settings: rank, scale and what else adapter_config.json says.
        parts: the matrices by the path of their layer, of layers that are here.
        shapes: of all its tensors as they are on disk, by name; those that are not here too.
    """

    def __init__(
        self, settings: LoraSettings, parts: Mapping[str, LowRank], shapes: Mapping[str, list[int]]
    ) -> None:
        self.settings = settings
        self.parts = dict(parts)
        self.shapes = dict(shapes)

    def weights(self) -> WeightMap:
        """PEFT's names; matrices are `[rank, in]` and `[out, rank]` on disk."""
        found = (weight for path, part in self.parts.items() for weight in part.weights(path))
        return {weight.name: weight for weight in found}

    def save(self, directory: Path) -> None:
        """Write the adapter's two files."""
        save_adapter(directory, self.settings, disk_tensors(self.weights()))

    def load(self, directory: Path) -> None:
        """Take the matrices of an adapter of the same shape.

        Raises:
            DataError: it has another shape.
        """
        fill_weights(self.weights(), directory / ADAPTER_WEIGHTS, self.shapes)

    def fp32_layers(self) -> list[nn.Layer]:
        """All matrices."""
        return list(self.parts.values())

    def scale_rate_of_b(self, factor: float) -> None:
        """LoRA+ (Hayou et al., arXiv 2402.12354): the B matrices learn at `factor` times the rate."""
        for part in self.parts.values():
            part.lora_B.optimize_attr["learning_rate"] = factor

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Inside, the model is its base model."""
        before = {part: part.enabled for part in self.parts.values()}
        for part in before:
            part.enabled = False
        try:
            yield
        finally:
            for part, enabled in before.items():
                part.enabled = enabled


def add_lora(model: CausalLM, settings: LoraSettings, seed: int = 0) -> LoraAdapter:
    """Freeze a model and put a fresh adapter on it; it changes no output yet.

    Args:
        model: without an adapter.
        settings: `targets` names the layers; empty: every linear layer of the decoder layers.
        seed: of the A matrices.

    Raises:
        ConfigError: a target names no layer of the model.
    """
    known = list(targets(whole_model(model)))
    adapter = _attach_all(model, settings, known, _choose(known, settings.targets))
    for path, part in adapter.parts.items():
        part.draw(seed, path)
    return adapter


def load_lora(model: CausalLM, settings: LoraSettings, directory: Path) -> LoraAdapter:
    """Freeze a model and put a saved adapter on it: on exactly those layers that its file has matrices for.

    Args:
        settings: what the directory's adapter_config.json says.

    Raises:
        DataError: a tensor belongs to no layer of the model, is missing or misshapen; all at once.
    """
    path = directory / ADAPTER_WEIGHTS
    file = open_tensors(path)
    stored = {adapted_path(name) for name in file.headers}
    known = list(targets(whole_model(model)))
    chosen = [target for target in known if target.path in stored]
    if not chosen:
        msg = "has no matrices for any linear layer of this model"
        raise DataError(Problem((str(path),), msg, "Use the adapter that belongs to this base model."))
    # Before the matrices are made: a rank that the file does not have could be one that no memory holds.
    check_shapes(file, _disk_shapes(settings.rank, chosen))
    adapter = _attach_all(model, settings, known, chosen)
    adapter.load(directory)
    return adapter


def target_paths(model: CausalLM, names: Sequence[str]) -> set[str]:
    """The paths of the layers that `target_modules` names; as `add_lora` reads it.

    Raises:
        ConfigError: a target names no layer of the model.
    """
    return {target.path for target in _choose(list(targets(whole_model(model))), names)}


def adapted_path(tensor: str) -> str | None:
    """The path of the layer that a tensor of an adapter belongs to; None when it is no LoRA matrix."""
    for suffix in (MATRIX_A, MATRIX_B):
        if tensor.startswith(PATH_PREFIX) and tensor.endswith(suffix):
            return tensor.removeprefix(PATH_PREFIX).removesuffix(suffix)
    return None


def _attach_all(
    model: CausalLM, settings: LoraSettings, known: Sequence[Target], chosen: Sequence[Target]
) -> LoraAdapter:
    """Put matrices on those layers that are here; `known` and `chosen` are layers of the whole model."""
    freeze(model)
    paths = {target.path for target in chosen}
    parts = {}
    for target in list(targets(model)):
        if target.path in paths:
            cut = cut_of(target.layer)
            part = parts[target.path] = LowRank(*target.sizes, settings, cut, model.placement.tensor)
            part.training = model.training
            attach(target, part)
    named = replace(settings, targets=_shortest_names(known, chosen))
    adapter = LoraAdapter(named, parts, _disk_shapes(settings.rank, chosen))
    model.adapter = adapter
    return adapter


def _disk_shapes(rank: int, chosen: Sequence[Target]) -> dict[str, list[int]]:
    shapes = {}
    for target in chosen:
        inputs, outputs = target.sizes
        shapes[f"{PATH_PREFIX}{target.path}{MATRIX_A}"] = [rank, inputs]
        shapes[f"{PATH_PREFIX}{target.path}{MATRIX_B}"] = [outputs, rank]
    return shapes


def _choose(known: Sequence[Target], names: Sequence[str]) -> list[Target]:
    if not names:
        return list(known)
    unused = [name for name in names if not any(_matches(target, name) for target in known)]
    if unused:
        choice = ", ".join(sorted({target.name for target in known}))
        msg = f"got {', '.join(unused)[:200]}, expected linear layers of the model: {choice}"
        raise ConfigError(Problem(("target_modules",), msg, "Leave it out to adapt all of them."))
    return [target for target in known if any(_matches(target, name) for name in names)]


def _matches(target: Target, name: str) -> bool:
    """PEFT's rule: the whole path, or its end."""
    return target.path == name or target.path.endswith(f".{name}")


def _shortest_names(known: Sequence[Target], chosen: Sequence[Target]) -> tuple[str, ...]:
    """What `target_modules` says: names of layers where all of that name are adapted, else whole paths."""
    paths = {target.path for target in chosen}
    partly = {target.name for target in known if target.path not in paths}
    return tuple(sorted({target.path if target.name in partly else target.name for target in chosen}))
