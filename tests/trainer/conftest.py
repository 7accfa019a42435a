"""Fixtures of training: a tiny model with its tokenizer, small data sets, configs read as users' are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training import PAIRS, Recorder, write_records
from trainer import load_tokenizer
from trainer.config import FinetuneConfig, read_config
from trainer.ops.host import configure_cpu
from trainer.tokenizers import Tokenizer
from trainer.tools.tiny_model import build_tiny_model

configure_cpu()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="session")
def tiny_gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Gemma of some 40 thousand parameters with a tokenizer of 512 pieces."""
    return build_tiny_model(
        "gemma",
        tmp_path_factory.mktemp("models") / "tiny-gemma",
        vocab_size=512,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
    )


@pytest.fixture(scope="session")
def tiny_bloom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BLOOM of some 40 thousand parameters, with dropouts and a byte-level tokenizer of 512 ids."""
    return build_tiny_model(
        "bloom",
        tmp_path_factory.mktemp("models") / "tiny-bloom",
        vocab_size=512,
        hidden_size=30,
        num_hidden_layers=2,
        num_attention_heads=3,
        hidden_dropout=0.1,
        attention_dropout=0.1,
    )


@pytest.fixture(scope="session")
def tokenizer(tiny_gemma: Path) -> Tokenizer:
    return load_tokenizer(tiny_gemma)


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """14 training records and 6 for evaluation."""
    folder = tmp_path_factory.mktemp("data")
    write_records(folder / "train.json", [*PAIRS[:14]])
    write_records(folder / "dev.json", [*PAIRS[14:]])
    return folder


@pytest.fixture
def arguments(tiny_gemma: Path, small_data: Path, tmp_path: Path) -> dict[str, Any]:
    """Arguments of a short run: 4 steps an epoch (the last one smaller), 8 in all."""
    return {
        "model_name_or_path": str(tiny_gemma),
        "dataset_name_or_path": str(small_data),
        "output_dir": str(tmp_path / "output"),
        "do_train": True,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "src_length": 64,
        "max_length": 128,
        "seed": 7,
    }


@pytest.fixture
def make_config(arguments: dict[str, Any], tmp_path: Path) -> Callable[..., FinetuneConfig]:
    """A config: the short run's arguments with changes. Its output_dir is inside the test's folder."""

    def make(**changes: Any) -> FinetuneConfig:
        if "output_dir" in changes:
            changes["output_dir"] = str(tmp_path / changes["output_dir"])
        reading = read_config("finetune", {**arguments, **changes})
        assert isinstance(reading.config, FinetuneConfig), reading.problems
        return reading.config

    return make
