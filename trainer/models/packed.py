"""Layers whose tensors in files are no parameters of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from paddle import nn

from trainer.models.safetensors_file import TensorHeader


class PackedLayer(nn.Layer):
    """A layer that says itself what files hold for it, besides its parameters; `save_model` asks it."""

    @property
    def weight_count(self) -> int:
        """How many weights it has that are no parameters."""
        raise NotImplementedError

    def packed_headers(self) -> Mapping[str, TensorHeader]:
        """What these tensors are, by the last part of their names."""
        raise NotImplementedError

    def packed_tensors(self) -> Mapping[str, np.ndarray]:
        """The tensors, as their headers say; made anew at every call."""
        raise NotImplementedError
