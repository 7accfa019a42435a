"""A family that nobody published: gated averaging in place of a decoder layer's attention and MLP, learned
positions. All that a family needs is in this file.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import paddle
from paddle import Tensor, nn

from trainer.models.base import Attend, CausalLM, Stage
from trainer.models.configuration import ModelConfig
from trainer.models.layers import Head, embedding
from trainer.models.linear import ZERO, Linear
from trainer.models.parts import Role, Split, SplitRules
from trainer.models.placement import WHOLE, Placement
from trainer.models.registry import Family


@dataclass(frozen=True)
class ToyConfig(ModelConfig):
    model_type: ClassVar[str] = "toy"

    longest: int = 256

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        names = cls.__dataclass_fields__
        return cls(**{key: value for key, value in raw.items() if key in names and key != "model_type"})

    def to_dict(self) -> dict[str, Any]:
        return {"model_type": self.model_type, **asdict(self)}


class ToyLayer(nn.Layer):
    def __init__(self, config: ToyConfig, index: int) -> None:
        super().__init__()
        self.mix = Linear(config.hidden_size, config.hidden_size)
        self.gate = Linear(config.hidden_size, config.hidden_size, bias=True)
        self._index = index

    def forward(self, x: Tensor, context: Tensor, attend: Attend) -> Tensor:
        x = x + context
        return x + attend(x, x, self.mix(x), self._index) * nn.functional.sigmoid(self.gate(x))


class ToyDecoder(nn.Layer):
    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.tokens = embedding(config.vocab_size, config.hidden_size)
        self.places = embedding(config.longest, config.hidden_size)
        self.layers = nn.LayerList([ToyLayer(config, index) for index in range(config.num_hidden_layers)])
        self.scale = self.create_parameter([config.hidden_size], default_initializer=ZERO)


class Toy(CausalLM):
    config: ToyConfig

    def __init__(self, config: ToyConfig, placement: Placement = WHOLE) -> None:
        super().__init__(config, placement)
        self.toy = ToyDecoder(config)
        self.lm_head = Head(config.vocab_size, config.hidden_size, self.toy.tokens.weight)

    def context(self, positions: np.ndarray) -> Tensor:
        return self.toy.places(paddle.to_tensor(positions))

    def stages(self) -> list[Stage]:
        layers = [
            Stage(index + 1, (f"toy.layers.{index}",), layer) for index, layer in enumerate(self.toy.layers)
        ]
        return [
            Stage(0, ("toy.tokens",), lambda ids, *_: self.toy.tokens(ids)),
            *layers,
            Stage(len(layers) + 1, (), lambda x, *_: x * (1.0 + self.toy.scale)),
        ]


ROLES = {"mix": Role.VALUE, "gate": Role.GATE}
SPLITS: SplitRules = {
    "toy.tokens.weight": Split(0, "vocab_size"),
    "toy.places.weight": None,
    "toy.layers.*.mix.weight": Split(0, "num_attention_heads"),
    "toy.layers.*.gate.weight": Split(0, "num_attention_heads"),
    "toy.layers.*.gate.bias": Split(0, "num_attention_heads"),
    "toy.scale": None,
}
FAMILY = Family(ToyConfig, Toy, ROLES, SPLITS)
