"""What a model knows of an adapter that was put on it (`trainer.peft`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from paddle import nn

from trainer.models.weights import WeightMap
from trainer.ops.prefix import KeyValuePair


class Adapter(Protocol):
    """Trainable parameters beside a frozen base model."""

    def weights(self) -> WeightMap:
        """Its tensors by the names they have on disk."""
        ...

    def save(self, directory: Path) -> None:
        """Write it as a Hugging Face PEFT adapter."""
        ...

    def load(self, directory: Path) -> None:
        """Take the tensors of an adapter of the same shape."""
        ...

    def fp32_layers(self) -> list[nn.Layer]:
        """The modules that hold its parameters, which stay float32 in mixed precision."""
        ...


class Prefix(Protocol):
    """Keys and values that every document sees before its own tokens."""

    @property
    def tokens(self) -> int:
        """Its length."""
        ...

    def pairs(self) -> Sequence[KeyValuePair]:
        """Keys and values of every layer; differentiable."""
        ...
