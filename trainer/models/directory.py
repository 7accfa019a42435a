"""A model directory: config.json, generation_config.json and weights, in and out."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from trainer.config.problems import ConfigError, DataError, Problem
from trainer.config.quantized_models import QUANTIZATION
from trainer.files import write_json
from trainer.models.base import CausalLM, ModelConfig
from trainer.models.parts import split_problem
from trainer.models.placement import WHOLE, Placement
from trainer.models.registry import family
from trainer.models.weights_load import load_weights
from trainer.models.weights_save import save_weights

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
DTYPES = ("float32", "bfloat16", "float16")


#: Which part of a model with this configuration a process holds.
Place = Callable[[ModelConfig], Placement]


def load_model(
    directory: str | Path,
    dtype: str = "float32",
    options: Mapping[str, Any] | None = None,
    place: Place = lambda config: WHOLE,
) -> CausalLM:
    """Load a model in Hugging Face's layout, or the part of it that this process holds.

    A model that is quantized (config.json has a `quantization_config`) has `QuantizedLinear` layers, and is
    loaded whole and without fused projections.

    Args:
        directory: holds config.json and weights.
        dtype: of the parameters: float32, bfloat16 or float16; files of another dtype are converted.
        options: fields of config.json to set differently, such as `{"fuse_attention_qkv": True}`.
        place: the part.

    Raises:
        DataError: the directory cannot be used; every problem is listed.
        ConfigError: the model cannot be split over so many ranks.
        ValueError: the dtype is none of the three.
    """
    directory = Path(directory)
    raw = _raw_config(directory)
    kind = family(str(raw.get("model_type")))
    quantization = raw.get(QUANTIZATION)
    options = options or {}
    if quantization is not None:
        options = {name: value for name, value in options.items() if not name.startswith("fuse_")}
    # Quantized layers take the places of linear ones, which get no memory.
    waiting = nullcontext() if quantization is None else paddle.LazyGuard()
    with _default_dtype(dtype), waiting:
        config = kind.config_class.from_dict({**raw, **options})
        model = _built(config, place(config))
    load_weights(model, directory, quantization)
    model.generation_config = _read_json(directory / GENERATION_FILE)
    model.eval()
    return model


def read_config(directory: Path) -> ModelConfig:
    """The configuration of the model in a directory.

    Raises:
        DataError: there is none, or it cannot be used.
    """
    raw = _raw_config(directory)
    return family(str(raw.get("model_type"))).config_class.from_dict(raw)


def new_model(
    config: ModelConfig, seed: int = 0, dtype: str = "float32", placement: Placement = WHOLE
) -> CausalLM:
    """A model with fresh weights: matrices from N(0, initializer_range), biases 0, norms without effect.

    Each tensor is drawn whole, from the seed and its name alone: the same seed gives the same model under any
    layout, and adding a tensor changes no other.
    """
    with _default_dtype(dtype):
        model = _built(config, placement)
    for name, weight in model.parameter_names().items():
        if len(weight.disk_shape) < 2:
            continue
        generator = np.random.default_rng((seed, zlib.crc32(name.encode())))
        drawn = generator.standard_normal(weight.disk_shape, dtype=np.float32) * np.float32(
            config.initializer_range
        )
        weight.fill(paddle.to_tensor(drawn))
    return model


def save_model(model: CausalLM, directory: str | Path) -> None:
    """Write config.json, generation_config.json and weights so that Hugging Face's tools load them.

    The dtype is that of the parameters. Each file appears whole or not at all.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    save_weights(model, directory)
    content = model.config.to_dict()
    content["dtype" if "dtype" in content else "torch_dtype"] = model.dtype
    write_json(directory / CONFIG_FILE, content)
    if model.generation_config is not None:
        write_json(directory / GENERATION_FILE, model.generation_config)


def _built(config: ModelConfig, placement: Placement) -> CausalLM:
    """A model that still needs its weights."""
    kind = family(config.model_type)
    if placement.tensor is not None and (
        problem := split_problem(kind.splits, config, placement.tensor.size)
    ):
        raise ConfigError(problem)
    return kind.model_class(config, placement)


def _raw_config(directory: Path) -> dict[str, Any]:
    raw = _read_json(directory / CONFIG_FILE)
    if raw is None:
        raise DataError(_problem(directory / CONFIG_FILE, "is not there"))
    return raw


@contextmanager
def _default_dtype(dtype: str) -> Iterator[None]:
    if dtype not in DTYPES:
        raise ValueError(f"dtype: got {dtype!r}, expected one of: {', '.join(DTYPES)}")
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(_problem(path, f"cannot be read ({error})")) from error
    if not isinstance(content, dict):
        raise DataError(_problem(path, "is not a JSON object"))
    return content


def _problem(path: Path, msg: str) -> Problem:
    return Problem((str(path),), msg, "Name a directory with a model in Hugging Face's layout.")
