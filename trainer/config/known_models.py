"""The models that are known by their published names, with their shapes.

A shape here says what a name means before anything is fetched. What is trained follows the config.json that
comes with the weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class KnownModel:
    """A published model.

    Attributes:
        model_type: its family, as in config.json.
        parameters: how many numbers its weights are; a tied head counts once.
        sizes: the fields of config.json in which it differs from its family's defaults.
    """

    model_type: str
    parameters: int
    sizes: Mapping[str, Any] = field(default_factory=dict)


# 18 layers: tables that say 28 took the number of the 7b.
_GEMMA_2B = KnownModel(
    "gemma",
    2_506_172_416,
    {
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "num_hidden_layers": 18,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
    },
)
_GEMMA_7B = KnownModel("gemma", 8_537_680_896)


def _bloom(parameters: int, hidden: int, layers: int, heads: int) -> KnownModel:
    return KnownModel("bloom", parameters, {"hidden_size": hidden, "n_layer": layers, "n_head": heads})


_BLOOM_560M = _bloom(559_214_592, 1024, 24, 16)
_BLOOM_1B1 = _bloom(1_065_314_304, 1536, 24, 16)
_BLOOM_3B = _bloom(3_002_557_440, 2560, 30, 32)
_BLOOM_7B1 = _bloom(7_069_016_064, 4096, 30, 32)

KNOWN_MODELS: Mapping[str, KnownModel] = {
    "google/gemma-2b": _GEMMA_2B,
    "google/gemma-2b-it": _GEMMA_2B,
    "google/gemma-7b": _GEMMA_7B,
    "google/gemma-7b-it": _GEMMA_7B,
    "bigscience/bloom-560m": _BLOOM_560M,
    "bigscience/bloom-560m-bf16": _BLOOM_560M,
    "bigscience/bloom-1b1": _BLOOM_1B1,
    "bigscience/bloom-3b": _BLOOM_3B,
    "bigscience/bloom-7b1": _BLOOM_7B1,
    "bigscience/bloomz-560m": _BLOOM_560M,
    "bigscience/bloomz-1b1": _BLOOM_1B1,
    "bigscience/bloomz-3b": _BLOOM_3B,
    "bigscience/bloomz-7b1-mt": _BLOOM_7B1,
    "bigscience/bloomz-7b1-p3": _BLOOM_7B1,
    "bigscience/bloomz-7b1": _BLOOM_7B1,
    "bellegroup/belle-7b-2m": _BLOOM_7B1,
}
