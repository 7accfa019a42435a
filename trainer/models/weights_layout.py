"""The layouts that weight files come in, and which tensor of a file belongs to which parameter.

Hugging Face stores linear weights `[out, in]`. PaddleNLP stores them `[in, out]`, puts the model type before
the names (`gemma.layers.0…`), stores a tied head a second time and may store neighbouring matrices as one.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from trainer.models.safetensors_file import SafetensorsFile
from trainer.models.weights import Weight, WeightMap

if TYPE_CHECKING:
    from trainer.models.base import CausalLM

_HEADS = ("lm_head.weight", "lm_head.decoder_weight")
_PREFIXES = ("model", "transformer")
_PADDLE_FORMATS = ("np", "paddle", "pd")
# Constants that some writers store beside the weights.
_BUFFER = re.compile(r"(^|\.)(rotary_emb\.(inv_freq|cos_cached|sin_cached)|attn\.(bias|masked_bias))$")
_FUSED = re.compile(r"(?P<owner>.*\.)(?P<fused>qkv_proj|gate_up_fused_proj)\.(?P<kind>weight|bias)")
_FUSED_PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_fused_proj": ("gate_proj", "up_proj")}


class Layout(Enum):
    """How linear weights lie in a file."""

    HUGGING_FACE = "[out, in]"
    PADDLENLP = "[in, out]"

    @classmethod
    def of(cls, file: SafetensorsFile, model_type: str) -> "Layout":
        """The layout of a file: its header's `format` says it ("np" is PaddleNLP's); without one, the names
        do.
        """
        form = file.metadata.get("format")
        if form is None:
            named = any(name.startswith(f"{model_type}.") for name in file.headers)
            return cls.PADDLENLP if named else cls.HUGGING_FACE
        return cls.PADDLENLP if form in _PADDLE_FORMATS else cls.HUGGING_FACE


@dataclass(frozen=True)
class Target:
    """Where one stored tensor goes.

    Attributes:
        weights: the parameter, or the parts of a fused matrix.
        heads: `(query heads, key heads)` when the parts are query, key and value; None for other parts and
            for a single parameter.
    """

    weights: tuple[Weight, ...]
    heads: tuple[int, int] | None = None

    def shape(self, layout: Layout) -> list[int]:
        """The shape that the stored tensor must have."""
        first = self.weights[0].disk_shape
        shape = [sum(weight.disk_shape[0] for weight in self.weights), *first[1:]]
        linear = self.weights[0].transposed
        return shape[::-1] if linear and layout is Layout.PADDLENLP else shape

    def outputs(self) -> list[np.ndarray]:
        """Which outputs of the stored tensor each of `weights` has, in the order of its own.

        PaddleNLP puts the query heads that share a key head beside it: q … q k v, q … q k v, …
        """
        sizes = [weight.disk_shape[0] for weight in self.weights]
        stored = np.arange(sum(sizes))
        if self.heads is None:
            return np.split(stored, np.cumsum(sizes)[:-1])
        key_heads = self.heads[1]
        groups = stored.reshape(key_heads, -1)
        parts = np.split(groups, np.cumsum([size // key_heads for size in sizes])[:-1], axis=1)
        return [part.reshape(-1) for part in parts]


class StoredNames:
    """Finds the parameters of a model by the names that files give them."""

    def __init__(self, model: "CausalLM", stored: Iterable[str]) -> None:
        """Prepare for a model and all tensor names of its files."""
        config = model.config
        self._weights: WeightMap = model.parameter_names()
        self._prefixes = (config.model_type, *_PREFIXES)
        self._bare = {self._strip(name): weight for name, weight in self._weights.items()}
        self._heads = config.num_attention_heads, config.num_key_value_heads
        head = next(w for w in self._weights.values() if w.parameter is model.head_weight)
        self._aliases: Mapping[str, Weight] = dict.fromkeys(_HEADS, head)
        self._tied = config.tie_word_embeddings
        self._has_embedding = any(self._direct(name) is head for name in stored)

    def target(self, stored: str) -> Target | None:
        """Where a stored tensor goes; None when no parameter has such a name."""
        weight = self._direct(stored) or self._aliases.get(stored)
        if weight is not None:
            return Target((weight,))
        match = _FUSED.fullmatch(stored)
        if match is None:
            return None
        names = _FUSED_PARTS[match["fused"]]
        parts = [self._direct(f"{match['owner']}{name}.{match['kind']}") for name in names]
        weights = tuple(part for part in parts if part is not None)
        if len(weights) < len(names):
            return None
        return Target(weights, self._heads if match["fused"] == "qkv_proj" else None)

    def is_spare(self, stored: str) -> bool:
        """Whether a tensor may be passed over: a second copy of a tied head, or a constant."""
        if self._tied and stored in _HEADS and self._direct(stored) is None:
            return self._has_embedding
        return _BUFFER.search(stored) is not None

    def is_head(self, weight: Weight) -> bool:
        """Whether a parameter is the vocabulary projection."""
        return weight is self._aliases[_HEADS[0]]

    def _direct(self, stored: str) -> Weight | None:
        return self._weights.get(stored) or self._bare.get(self._strip(stored))

    def _strip(self, name: str) -> str:
        first, _, rest = name.partition(".")
        return rest if first in self._prefixes else name
