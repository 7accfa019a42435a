"""What may be done with a model whose config.json says that it is quantized."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainer.config.problems import DataError, Problem
from trainer.config.quantized_models import QUANTIZATION, QuantizationScheme
from trainer.config.schema import TrainingConfig
from trainer.config.topology import Topology

_MODEL = "model_name_or_path"
_HINT = "Name the model that it was made of."


def quantized_problems(
    content: Mapping[str, Any], config: TrainingConfig | None, topology: Topology
) -> Iterator[Problem]:
    """Problems of using a model: it can be evaluated and run, by one process or copies, and nothing else.

    Args:
        content: its config.json.
        config: the arguments of the task; None: an adapter is merged into the model.
        topology: how the task splits the model.
    """
    if content.get(QUANTIZATION) is None:
        return
    try:
        QuantizationScheme.read(content[QUANTIZATION])
    except DataError as error:
        yield from error.problems
    where = (_MODEL, "config.json", QUANTIZATION)
    if config is None:
        yield Problem(where, "the model is quantized, so no adapter can be merged into it", _HINT)
    elif config.do_train:
        yield Problem(where, "the model is quantized, and whole numbers cannot be trained", _HINT)
    elif getattr(config, "lora", False) or getattr(config, "lora_path", None):
        msg = "the model is quantized, and LoRA adapters are not put on quantized layers"
        yield Problem(where, msg, "Merge the adapter into the model that it was made of, and quantize that.")
    for name in ("tensor", "pipeline"):
        if (degree := getattr(topology, name)) > 1:
            msg = f"got {degree}, and the model is quantized: its layers are not divided among processes"
            yield Problem((f"{name}_parallel_degree",), msg, "Set it to 1.")
