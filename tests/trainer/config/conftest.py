"""A valid argument file, a model folder made of headers, and a data folder."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.config import FinetuneConfig, Reading, read_config
from trainer.config.preflight import Roots

MINIMAL = {
    "model_name_or_path": "gemma",
    "dataset_name_or_path": "sft",
    "output_dir": "out",
    "do_train": True,
}


@pytest.fixture
def read() -> Callable[..., Reading]:
    """Read a minimal finetune config with these arguments added."""

    def add(**arguments: Any) -> Reading:
        return read_config("finetune", MINIMAL | arguments)

    return add


def write_safetensors(path: Path, shapes: dict[str, list[int]]) -> None:
    """A float32 safetensors file of zeros."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def write_lines(path: Path, records: list[Any]) -> None:
    """A JSON-lines file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """Roots with a model folder `gemma` and a data folder `sft`, both sound."""
    model = tmp_path / "models" / "gemma"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"model_type": "gemma"}))
    (model / "tokenizer.json").write_text("{}")
    write_safetensors(
        model / "model.safetensors", {"model.embed_tokens.weight": [4, 2], "model.norm.weight": [2]}
    )
    for split, count in (("train", 20), ("dev", 3)):
        records = [{"src": f"question {n}", "tgt": f"answer {n}"} for n in range(count)]
        write_lines(tmp_path / "data" / "sft" / f"{split}.json", records)
    return Roots((tmp_path / "models",), (tmp_path / "data",))


@pytest.fixture
def model(roots: Roots) -> Path:
    return roots.models[0] / "gemma"


@pytest.fixture
def data(roots: Roots) -> Path:
    return roots.data[0] / "sft"


@pytest.fixture
def config(read: Callable[..., Reading]) -> Callable[..., FinetuneConfig]:
    """A minimal finetune config with these arguments added."""

    def make(**arguments: Any) -> FinetuneConfig:
        reading = read(**arguments)
        assert isinstance(reading.config, FinetuneConfig), reading.problems
        return reading.config

    return make
