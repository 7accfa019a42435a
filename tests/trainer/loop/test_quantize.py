"""The quantize task in this process: what comes out, what is told, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file

from tests.training import PAIRS, Recorder, write_records
from trainer import load_model, load_tokenizer
from trainer.config import CONFIGS, ConfigError, DataError, read_config
from trainer.loop import quantize as task
from trainer.quantization.model import is_quantized
from trainer.run import run_task
from trainer.tools.generate import generate
from trainer.tools.tiny_model import build_tiny_model

Quantize = Callable[..., tuple[dict[str, Any], Recorder]]
FAMILIES = ("gemma", "bloom")
METHODS: dict[str, dict[str, Any]] = {
    "a8w8": {"do_ptq": True},
    "a8w8-smooth": {"do_ptq": True, "smooth": True, "smooth_all_linears": True, "shift": True},
    "int8": {"do_ptq": True, "quant_type": "weight_only_int8"},
    "int4-groups": {"do_ptq": True, "quant_type": "weight_only_int4", "weight_quant_method": "groupwise"},
    "gptq": {"do_gptq": True},
    "gptq-8-groups": {
        "do_gptq": True,
        "quant_type": "weight_only_int8",
        "weight_quant_method": "groupwise",
    },
    "awq": {"do_awq": True, "auto_clip": True},
}
LAYERS = {"gemma": 14, "bloom": 8}
IDS = np.array([[2, 5, 9, 40, 31, 7]])


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model of each family, two layers of width 64."""
    folder = tmp_path_factory.mktemp("models")
    return {
        family: build_tiny_model(family, folder / family, vocab_size=512, hidden_size=64, num_hidden_layers=2)
        for family in FAMILIES
    }


@pytest.fixture
def quantize(models: dict[str, Path], tmp_path: Path) -> Quantize:
    """Run the task on a family's model; arguments as in a file. Data: train.json and dev.json."""
    data = tmp_path / "data"
    write_records(data / "train.json", PAIRS)
    write_records(data / "dev.json", PAIRS[:4])

    def run(
        family: str = "gemma", should_stop: Callable[[], bool] = lambda: False, **arguments: Any
    ) -> tuple[dict[str, Any], Recorder]:
        needed = {
            "model_name_or_path": str(models[family]),
            "dataset_name_or_path": str(data),
            "output_dir": str(tmp_path / "out"),
            "per_device_train_batch_size": 4,
            "src_length": 32,
            "max_length": 48,
            "ptq_step": 3,
            "gptq_step": 3,
            "awq_step": 3,
        }
        reading = read_config("quantize", needed | arguments)
        assert reading.config is not None, reading.problems
        recorder = Recorder()
        return run_task("quantize", reading.config, recorder.writer, should_stop), recorder

    return run


def report_of(result: dict[str, Any]) -> dict[str, Any]:
    return json.loads((Path(result["path"]) / "quantization_report.json").read_text())


def logits(folder: str | Path) -> np.ndarray:
    with paddle.no_grad():
        return load_model(folder)(paddle.to_tensor(IDS)).numpy()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_the_result_is_a_quantized_model_that_loads_and_is_near_the_float_one(
    quantize: Quantize, models: dict[str, Path], family: str, method: str
) -> None:
    result, _ = quantize(family, do_eval=True, **METHODS[method])
    assert not result["stopped"]
    model = load_model(result["path"])
    assert is_quantized(model)
    before = logits(models[family])
    difference = np.abs(logits(result["path"]) - before).max() / np.abs(before).max()
    assert 0 < difference < (0.3 if "8" not in method else 0.05)
    metrics = result["metrics"]
    assert metrics["quantized_layers"] == LAYERS[family]
    assert metrics["eval_ppl"] == pytest.approx(metrics["eval_ppl_before"], rel=0.05)
    assert metrics["eval_ppl"] != metrics["eval_ppl_before"]
    assert 0 < metrics["worst_layer_error"] < 0.1
    assert metrics["bytes_after"] < metrics["bytes_before"]
    files = sum(path.stat().st_size for path in Path(result["path"]).glob("*.safetensors"))
    assert metrics["bytes_after"] == files


def test_the_report_has_the_error_of_every_layer(quantize: Quantize) -> None:
    result, _ = quantize(do_gptq=True)
    report = report_of(result)
    assert report["method"] == "gptq"
    assert report["scheme"]["bits"] == 4
    assert report["calibration"]["split"] == "train"
    assert report["calibration"]["batches"] == 3
    assert report["calibration"]["rows"] == 12
    assert len(report["layers"]) == LAYERS["gemma"]
    for layer in report["layers"]:
        assert layer["error"] <= layer["rtn_error"] * 1.001
    assert report["eval"] == {"before": {}, "after": {}}
    assert "eval_ppl" not in result["metrics"]


def test_the_result_generates(quantize: Quantize) -> None:
    result, _ = quantize(do_ptq=True)
    model, tokenizer = load_model(result["path"]), load_tokenizer(result["path"])
    (text,) = generate(model, tokenizer, ["What follows 3?"], max_new_tokens=4)
    assert isinstance(text, str)


def test_progress_is_told_for_every_decoder_layer(quantize: Quantize) -> None:
    _, recorder = quantize(do_ptq=True, do_eval=True)
    progress = [(event["step"], event["total_steps"]) for event in recorder.of("progress")]
    assert progress == [(1, 2), (2, 2)]
    assert len(recorder.of("eval")) == 2


def test_quant_json_is_calibrated_on_rather_than_train_json(quantize: Quantize, tmp_path: Path) -> None:
    _, recorder = quantize(do_ptq=True)
    assert any("there is no quant.json" in event["msg"] for event in recorder.of("warning"))
    write_records(tmp_path / "data" / "quant.json", PAIRS[:6])
    result, recorder = quantize(do_ptq=True)
    assert not any("there is no quant.json" in event["msg"] for event in recorder.of("warning"))
    assert any("makes 2 batches of 4" in event["msg"] for event in recorder.of("warning"))
    calibration = report_of(result)["calibration"]
    assert (calibration["split"], calibration["rows"]) == ("quant", 6)


def test_named_layers_stay_as_they_are(quantize: Quantize, models: dict[str, Path]) -> None:
    result, recorder = quantize(do_ptq=True, skip_list_names=["o_proj", "*.layers.0.mlp.*", "dense"])
    report = report_of(result)
    assert len(report["layers"]) == 9
    assert len(report["skipped"]) == 5
    assert any(
        event["loc"] == ["skip_list_names"] and "dense" in event["msg"] for event in recorder.of("warning")
    )
    name = "model.layers.1.self_attn.o_proj.weight"
    saved, given = (
        load_file(Path(folder) / "model.safetensors") for folder in (result["path"], models["gemma"])
    )
    assert np.array_equal(saved[name], given[name])
    with pytest.raises(DataError, match="nothing is left to quantize"):
        quantize(do_ptq=True, skip_list_names=["*"])


SEARCH = {"do_ptq": True, "smooth": True, "smooth_piecewise_search": True}


@pytest.mark.parametrize(
    ("arguments", "asked_before"),
    [({"do_gptq": True}, 200), (SEARCH, 100), ({"do_awq": True, "auto_clip": True}, 60)],
    ids=["the columns of GPTQ", "the search of smoothing", "the grid of AWQ"],
)
def test_a_stop_request_ends_it_in_the_middle_of_a_layer(
    quantize: Quantize, arguments: dict[str, Any], asked_before: int
) -> None:
    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(1)
        return len(asked) > asked_before

    result, recorder = quantize(should_stop=should_stop, **arguments)
    assert result["stopped"]
    assert len(asked) == asked_before + 1
    assert recorder.of("progress") == []
    assert not list(Path(result["path"]).glob("*.safetensors"))


@pytest.mark.parametrize("arguments", [{"do_gptq": True}, SEARCH, {"do_awq": True}])
def test_a_layer_that_takes_long_tells_how_far_it_is(
    quantize: Quantize, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    monkeypatch.setattr(task, "_TOLD_EVERY_S", 0.0)
    _, recorder = quantize(**arguments)
    progress = recorder.of("progress")
    shares = [event["epoch"] for event in progress]
    assert shares == sorted(shares)
    assert len({share for share in shares if 0 < share < 0.5}) >= 4
    assert shares[-1] == 1.0
    assert all(event["step"] == int(2 * event["epoch"] + 1e-9) for event in progress if event["epoch"] % 0.5)


def test_channels_and_weights_that_do_nothing_are_told(
    quantize: Quantize, models: dict[str, Path], tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(models["gemma"], damaged)
    tensors = load_file(damaged / "model.safetensors")
    # Gemma's scale is 1 + weight.
    tensors["model.layers.0.input_layernorm.weight"][[3, 9]] = -1.0
    tensors["model.layers.1.mlp.down_proj.weight"][5] = 0.0
    save_file(tensors, damaged / "model.safetensors", metadata={"format": "pt"})
    for method in ("do_ptq", "do_gptq", "do_awq"):
        result, recorder = quantize(model_name_or_path=str(damaged), **{method: True})
        texts = [event["msg"] for event in recorder.of("warning")]
        assert any(
            "are zero on all calibration data: 2 of model.layers.0.self_attn.q_proj" in t for t in texts
        )
        assert any("whose weights are all zero: 1 of model.layers.1.mlp.down_proj" in text for text in texts)
        layers = {layer["path"]: layer for layer in report_of(result)["layers"]}
        assert layers["model.layers.0.self_attn.q_proj"]["dead_inputs"] == 2
        assert layers["model.layers.1.mlp.down_proj"]["dead_outputs"] == 1


def test_the_same_job_gives_the_same_bytes(quantize: Quantize, tmp_path: Path) -> None:
    arguments = {"do_ptq": True, "smooth": True, "smooth_piecewise_search": True}
    first, _ = quantize(output_dir=str(tmp_path / "a"), **arguments)
    second, _ = quantize(output_dir=str(tmp_path / "b"), **arguments)
    one, two = (Path(result["path"], "model.safetensors").read_bytes() for result in (first, second))
    assert one == two


def test_an_adapter_is_merged_first(quantize: Quantize, models: dict[str, Path], tmp_path: Path) -> None:
    trained = {
        "model_name_or_path": str(models["gemma"]),
        "dataset_name_or_path": str(tmp_path / "data"),
        "output_dir": str(tmp_path / "adapter"),
        "do_train": True,
        "lora": True,
        "max_steps": 8,
        "learning_rate": 0.05,
        "max_length": 48,
        "src_length": 32,
    }
    config = read_config("finetune", trained).config
    assert config is not None
    run_task("finetune", config, Recorder().writer, lambda: False)
    wanted = load_model(tmp_path / "adapter")(paddle.to_tensor(IDS)).numpy()
    result, _ = quantize(
        do_ptq=True, quant_type="weight_only_int8", lora=True, lora_path=str(tmp_path / "adapter")
    )
    found = logits(result["path"])
    assert np.abs(found - wanted).max() < 0.3 * np.abs(wanted - logits(models["gemma"])).max()
    assert not (Path(result["path"]) / "merged").exists()


@pytest.mark.parametrize("method", ["do_ptq", "do_gptq", "do_awq"])
def test_a_model_with_a_broken_number_is_refused_and_nothing_is_written(
    quantize: Quantize, models: dict[str, Path], tmp_path: Path, method: str
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(models["gemma"], broken)
    tensors = load_file(broken / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name][0, 0] = np.nan
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=name):
        quantize(model_name_or_path=str(broken), **{method: True})
    assert not (tmp_path / "out" / "config.json").exists()


def test_writing_over_the_model_is_refused(quantize: Quantize, models: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="is the folder of the model"):
        quantize(do_ptq=True, output_dir=str(models["gemma"]))


def test_the_task_has_a_config_class() -> None:
    assert CONFIGS["quantize"].task == "quantize"
