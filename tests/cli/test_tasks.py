"""`regatta merge`, `export` and `evaluate` in a process of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trainer
from tests.training import PAIRS, write_records
from trainer.config.adapters import LoraSettings
from trainer.peft.lora.adapter import add_lora
from trainer.tools.tiny_model import build_tiny_model


def regatta(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh LoRA adapter beside its base model, which it names."""
    folder = tmp_path_factory.mktemp("models")
    sizes: dict[str, Any] = {
        "vocab_size": 512,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    base = build_tiny_model("bloom", folder / "base", **sizes)
    model = trainer.load_model(base)
    add_lora(model, LoraSettings(2, 4, base=str(base)))
    trainer.save_model(model, folder / "adapter")
    return folder / "adapter"


def test_merge_makes_one_model(adapter: Path, tmp_path: Path) -> None:
    done = regatta("merge", adapter, tmp_path / "merged", "--dtype", "bfloat16")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "merged: 8 of 29 tensors were changed" in done.stdout
    assert trainer.load_model(tmp_path / "merged").adapter is None


def test_merge_does_not_write_where_something_is(adapter: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert regatta("merge", adapter, tmp_path).returncode != 0
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_without_an_adapter_is_a_bad_argument(adapter: Path, tmp_path: Path) -> None:
    done = regatta("merge", adapter.parent / "base", tmp_path / "merged")
    assert done.returncode == 2
    assert "has no adapter_config.json, expected a PEFT adapter" in done.stdout
    assert not (tmp_path / "merged").exists()


def test_export_makes_a_graph_of_a_model(adapter: Path, tmp_path: Path) -> None:
    done = regatta("export", adapter.parent / "base", tmp_path / "graph")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"model.json", "model.pdiparams", "export.json"} <= {
        path.name for path in (tmp_path / "graph").iterdir()
    }
    assert regatta("export", adapter.parent / "base", tmp_path / "graph").returncode == 1


def test_export_of_an_adapter_says_how_to_merge_it(adapter: Path, tmp_path: Path) -> None:
    done = regatta("export", adapter, tmp_path / "graph")
    assert done.returncode == 2
    assert "regatta merge ADAPTER DIR" in done.stdout
    assert not (tmp_path / "graph").exists()


def test_evaluate_writes_the_results_of_an_adapter(adapter: Path, tmp_path: Path) -> None:
    write_records(tmp_path / "data" / "dev.json", PAIRS)
    words = ("--set", "max_length=64", "--set", "src_length=32")
    done = regatta("evaluate", adapter, tmp_path / "data", tmp_path / "found", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "found" / "eval_results.json").read_text())
    assert results["eval_loss"] > 0
    assert f"loss {results['eval_loss']:.4f}" in done.stdout
