"""The model that a run begins with: a whole one, or a frozen base with the adapter that the run trains."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.config import FinetuneConfig
from trainer.config.adapters import LoraSettings, is_adapter, read_adapter_settings
from trainer.config.preflight.hub import name_of_cached
from trainer.config.problems import ConfigError, Problem
from trainer.models.directory import Place, load_model, read_config
from trainer.models.placement import WHOLE
from trainer.peft.lora.adapter import LoraAdapter, adapted_path, add_lora, load_lora, target_paths
from trainer.peft.prefix.adapter import add_prefix, load_prefix

if TYPE_CHECKING:
    from trainer.checkpoint.find import Checkpoint
    from trainer.config.schema import RunConfig
    from trainer.models.base import CausalLM

log = logging.getLogger(__name__)


def starting_model(
    config: RunConfig, start: Checkpoint | None, place: Place = lambda config: WHOLE
) -> CausalLM:
    """The model with the weights to begin with, in evaluation mode.

    Args:
        config: its paths are absolute, or relative to the working directory.
        start: the checkpoint to go on from; None: `lora_path`, `prefix_path`, or the model as it is.
        place: which part of it is here.

    Raises:
        ConfigError: the checkpoint is of another kind of training than the config asks for.
        DataError: a model or an adapter cannot be used.
    """
    if start is not None:
        _check_kind(config, start.path)
    prefix = _prefix_arguments(config)
    if not config.lora and prefix is None:
        path = Path(config.model_name_or_path)
        if start is not None:
            _check_sizes(start.path, path)
            path = start.path
        return load_model(path, options=model_options(config), place=place)
    model = load_model(Path(config.model_name_or_path), options=model_options(config), place=place)
    base = name_of_cached(Path(config.model_name_or_path)) or config.model_name_or_path
    if prefix is None:
        saved = start.path if start else config.lora_path
        _put_lora(model, config, base, Path(saved) if saved else None, resumed=start is not None)
    else:
        saved = start.path if start else prefix.prefix_path
        _put_prefix(model, prefix, base, Path(saved) if saved else None, resumed=start is not None)
    model.eval()
    return model


def model_options(config: RunConfig) -> dict[str, Any]:
    """The fields of config.json that the arguments set differently."""
    names = ("fuse_attention_qkv", "fuse_attention_ffn")
    return {name: value for name in names if (value := getattr(config, name)) is not None}


def lora_settings(config: RunConfig, base: str) -> LoraSettings:
    """What the arguments say about a fresh adapter."""
    return LoraSettings(
        rank=config.lora_rank,
        alpha=config.lora_alpha,
        dropout=config.lora_dropout,
        rslora=config.rslora,
        targets=tuple(config.target_modules or ()),
        base=base,
    )


def _put_lora(model: CausalLM, config: RunConfig, base: str, saved: Path | None, *, resumed: bool) -> None:
    wanted = lora_settings(config, base)
    if saved is None:
        adapter = add_lora(model, wanted, config.seed)
    else:
        found = read_adapter_settings(saved)
        if not isinstance(found, LoraSettings):
            raise _other_kind("lora_path", saved, found.kind, LoraSettings.kind)
        if resumed and not config.lora_path:
            _check_shape(found, wanted, saved)
        adapter = load_lora(model, replace(found, dropout=config.lora_dropout, base=base), saved)
        if resumed and not config.lora_path:
            _check_targets(adapter, target_paths(model, wanted.targets), saved)
    adapter.scale_rate_of_b(config.lora_plus_scale)
    _say(adapter)


def _say(adapter: LoraAdapter) -> None:
    settings = adapter.settings
    log.info(
        "LoRA of rank %d, alpha %g, scale %g on %d linear layers: %s",
        *(settings.rank, settings.alpha, settings.scale, len(adapter.parts), ", ".join(settings.targets)),
    )


def _prefix_arguments(config: RunConfig) -> FinetuneConfig | None:
    """The arguments of prefix tuning, if that is what the config asks for."""
    return config if isinstance(config, FinetuneConfig) and config.prefix_tuning else None


def _put_prefix(
    model: CausalLM, config: FinetuneConfig, base: str, saved: Path | None, *, resumed: bool
) -> None:
    if saved is None:
        projection = None
        if config.prefix_projection:
            width = model.config.num_key_value_heads * model.config.head_dim
            projection = config.prefix_projection_hidden_size or width
        adapter = add_prefix(model, config.num_prefix_tokens, projection, base=base, seed=config.seed)
    else:
        found = read_adapter_settings(saved)
        if isinstance(found, LoraSettings):
            raise _other_kind("prefix_path", saved, found.kind, "PREFIX_TUNING")
        if resumed and not config.prefix_path:
            _refuse_changes({"num_prefix_tokens": (found.tokens, config.num_prefix_tokens)}, saved)
        adapter = load_prefix(model, replace(found, base=base), saved)
    log.info("prefix of %d tokens on %d layers", adapter.tokens, adapter.settings.layers)


def _check_kind(config: RunConfig, checkpoint: Path) -> None:
    """A checkpoint of an adapter does not go on as full training, nor the other way round."""
    wanted = "LORA" if config.lora else "PREFIX_TUNING" if _prefix_arguments(config) else "whole model"
    found = read_adapter_settings(checkpoint).kind if is_adapter(checkpoint) else "whole model"
    if found != wanted:
        raise _other_kind("resume_from_checkpoint", checkpoint, found, wanted)


def _check_sizes(checkpoint: Path, model: Path) -> None:
    """A checkpoint goes on as the model that the arguments name, not as another one."""
    here, there = (asdict(read_config(folder)) for folder in (checkpoint, model))
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    differences = [
        f"{name} {here[name]} there, {there[name]} here" for name in sizes if here[name] != there[name]
    ]
    if differences:
        msg = f"{checkpoint} is of another model than {model}: {'; '.join(differences)}"
        hint = "Name the model that the checkpoint was trained from, or another output_dir."
        raise ConfigError(Problem(("model_name_or_path",), msg, hint))


def _check_shape(found: LoraSettings, wanted: LoraSettings, path: Path) -> None:
    """Rank and scale of a run do not change on the way."""
    pairs = {
        "lora_rank": (found.rank, wanted.rank),
        "lora_alpha": (found.alpha, wanted.alpha),
        "rslora": (found.rslora, wanted.rslora),
    }
    _refuse_changes(pairs, path)


def _check_targets(adapter: LoraAdapter, wanted: Collection[str], path: Path) -> None:
    """The layers of a run do not change on the way, however they are named; nor those of other stages."""
    if {adapted_path(name) for name in adapter.shapes} != set(wanted):
        names = list(adapter.settings.targets)
        msg = f"is for other layers than the checkpoint {path} has"
        raise ConfigError(Problem(("target_modules",), msg, f"Set target_modules to {names}."))


def _refuse_changes(pairs: Mapping[str, tuple[object, object]], path: Path) -> None:
    """Arguments by name, each as the checkpoint has it and as it is now."""
    problems = [
        Problem((name,), f"got {now}, the checkpoint {path} has {before}", f"Set {name} to {before}.")
        for name, (before, now) in pairs.items()
        if before != now
    ]
    if problems:
        raise ConfigError(problems)


def _other_kind(name: str, path: Path, found: str, wanted: str) -> ConfigError:
    msg = f"{path} holds {found}, and this run trains {wanted}"
    return ConfigError(Problem((name,), msg, "Name another folder, or change lora and prefix_tuning."))
