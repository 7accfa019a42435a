"""Exported graphs give the logits of the model that they were made of."""

import json
from pathlib import Path

import numpy as np
import paddle
import pytest

from tests.training import Recorder
from trainer import load_model, load_tokenizer
from trainer.config import read_config
from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.models import linear_layers, save_model
from trainer.quantization.formats import quantize_rows
from trainer.quantization.model import quantize_model
from trainer.run import run_task
from trainer.tools.export import GRAPH, export_model
from trainer.tools.tiny_model import build_tiny_model

FAMILIES = ("gemma", "bloom")
IDS = np.array([[2, 5, 9, 40, 31, 7, 11], [2, 90, 3, 41, 30, 8, 12]])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model of each family, two layers of width 64."""
    folder = tmp_path_factory.mktemp("models")
    return {
        family: build_tiny_model(family, folder / family, vocab_size=512, hidden_size=64, num_hidden_layers=2)
        for family in FAMILIES
    }


def graph_logits(folder: Path) -> np.ndarray:
    graph = paddle.jit.load(str(folder / GRAPH))
    graph.eval()
    with paddle.no_grad():
        return graph(paddle.to_tensor(IDS)).numpy()


def logits(folder: Path) -> np.ndarray:
    with paddle.no_grad():
        return load_model(folder)(paddle.to_tensor(IDS)).numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_task_gives_a_graph_with_the_models_logits(
    models: dict[str, Path], tmp_path: Path, family: str
) -> None:
    arguments = {"model_name_or_path": str(models[family]), "output_dir": str(tmp_path / "out")}
    config = read_config("export", arguments).config
    assert config is not None
    recorder = Recorder()
    result = run_task("export", config, recorder.writer, lambda: False)
    assert result["metrics"]["max_difference"] < 1e-5
    assert result["metrics"]["dequantized_layers"] == 0
    folder = Path(result["path"])
    assert result["metrics"]["bytes"] == sum(path.stat().st_size for path in folder.glob("model.*"))
    np.testing.assert_allclose(graph_logits(folder), logits(models[family]), atol=1e-5)
    assert load_tokenizer(folder).encode("a") == load_tokenizer(models[family]).encode("a")
    assert json.loads((folder / "export.json").read_text())["model_type"] == family
    assert [event["step"] for event in recorder.of("progress")] == [1]


def test_a_run_that_is_stopped_keeps_nothing(models: dict[str, Path], tmp_path: Path) -> None:
    arguments = {"model_name_or_path": str(models["gemma"]), "output_dir": str(tmp_path / "out")}
    config = read_config("export", arguments).config
    assert config is not None
    recorder = Recorder()
    run_task("export", config, recorder.writer, lambda: True)
    (told,) = recorder.of("result")
    assert (told["stopped"], told["kept"]) == (True, False)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_with_quantized_weights_is_dequantized(
    models: dict[str, Path], tmp_path: Path, family: str
) -> None:
    model = load_model(models[family])
    weights = {layer.path: quantize_rows(layer.layer.weight.t(), 4, 16) for layer in linear_layers(model)}
    quantize_model(model, weights, QuantizationScheme(StoredAs.PACK_QUANTIZED, 4, 16))
    save_model(model, tmp_path / "quantized")
    load_tokenizer(models[family]).save(tmp_path / "quantized")
    exported = export_model(tmp_path / "quantized", tmp_path / "out")
    assert exported.dequantized_layers == len(weights)
    found = graph_logits(tmp_path / "out")
    np.testing.assert_allclose(found, logits(tmp_path / "quantized"), atol=1e-4)
    assert np.abs(found - logits(models[family])).max() > 1e-3


def test_a_stop_request_before_it_ends_it(models: dict[str, Path], tmp_path: Path) -> None:
    arguments = {"model_name_or_path": str(models["gemma"]), "output_dir": str(tmp_path / "out")}
    config = read_config("export", arguments).config
    assert config is not None
    assert run_task("export", config, Recorder().writer, lambda: True)["stopped"]
    assert not (tmp_path / "out").exists()
