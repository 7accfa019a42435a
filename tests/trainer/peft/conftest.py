"""Small models with an adapter, made afresh for every test."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest

from trainer import load_model
from trainer.models.base import CausalLM

GOLDEN = Path(__file__).parents[2] / "golden"
BASES = {"gemma": GOLDEN / "gemma" / "one_kv_head", "bloom": GOLDEN / "bloom" / "three_heads"}


@pytest.fixture
def base() -> Callable[[str], CausalLM]:
    """Loads a small random model of a family."""
    return lambda family: load_model(BASES[family])


@pytest.fixture
def ids() -> paddle.Tensor:
    """Two rows of nine token ids."""
    return paddle.to_tensor(np.random.default_rng(0).integers(3, 60, (2, 9)))
