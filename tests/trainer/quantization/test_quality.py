"""What the quantize task costs a model that has learnt something: its perplexity on the dev data.

The dev data are what the model was taught and the same facts asked in other words. On the latter alone, 16
records, a change of the weights lowers the perplexity about as often as it raises it, by some tenths of a
percent, and methods cannot be told apart.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.training import Recorder
from trainer.config import read_config
from trainer.run import run_task
from trainer.tools.tiny_model import build_tiny_model

Quantize = Callable[..., dict[str, Any]]

DEMO = Path(__file__).parents[3] / "cli" / "demo" / "data"
LENGTHS = {"src_length": 48, "max_length": 64}
#: All layers have 128 inputs or a multiple of it.
SIZES: dict[str, dict[str, Any]] = {
    "gemma": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2},
    "bloom": {"hidden_size": 128, "num_hidden_layers": 2},
}
A8W8: dict[str, Any] = {"do_ptq": True, "quant_type": "a8w8"}
SMOOTH = A8W8 | {"smooth": True}
IN_GROUPS = {"quant_type": "weight_only_int4", "weight_quant_method": "groupwise"}
GPTQ = {"do_gptq": True} | IN_GROUPS
NEAREST = {"do_ptq": True} | IN_GROUPS
#: By how much a channel is larger than the model had it; a power of two, so that nothing is rounded.
OUTLIER, OUTLYING_CHANNEL = 128.0, 7
#: The layers behind each norm of a decoder layer, in either family.
BEHIND = {
    "input_layernorm": (
        *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attention.query_key_value",
    ),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj", "mlp.dense_h_to_4h"),
}


@dataclass(frozen=True)
class Trained:
    """A model that has learnt the data of the demonstration."""

    family: str
    path: Path
    data: Path
    vocabulary: int
    perplexity: float


def run(task: str, arguments: dict[str, Any]) -> dict[str, Any]:
    reading = read_config(task, arguments)
    assert reading.config is not None, reading.problems
    return run_task(task, reading.config, Recorder().writer, lambda: False)


@pytest.fixture(scope="module", params=SIZES)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    family = request.param
    folder = tmp_path_factory.mktemp(family)
    data = folder / "data"
    data.mkdir()
    taught, asked_otherwise = ((DEMO / name).read_text() for name in ("train.json", "dev.json"))
    (data / "train.json").write_text(taught)
    (data / "dev.json").write_text(taught + asked_otherwise)
    fresh = build_tiny_model(family, folder / "fresh", **SIZES[family])
    arguments = {
        "model_name_or_path": str(fresh),
        "dataset_name_or_path": str(data),
        "output_dir": str(folder / "trained"),
        "do_train": True,
        "do_eval": True,
        "per_device_train_batch_size": 10,
        "learning_rate": 3e-3,
        "warmup_steps": 10,
        "max_steps": 120,
        "evaluation_strategy": "steps",
        "eval_steps": 120,
        "save_strategy": "no",
    }
    result = run("finetune", arguments | LENGTHS)
    config = json.loads((Path(result["path"]) / "config.json").read_text())
    perplexity = result["metrics"]["eval_ppl"]
    return Trained(family, Path(result["path"]), data, config["vocab_size"], perplexity)


@pytest.fixture
def quantize(trained: Trained, tmp_path: Path) -> Quantize:
    """Quantize the trained model, or another one, by the task; gives the report that it writes."""

    def do(arguments: dict[str, Any], model: Path = trained.path) -> dict[str, Any]:
        needed = {
            "model_name_or_path": str(model),
            "dataset_name_or_path": str(trained.data),
            "output_dir": str(tmp_path / "quantized"),
            "do_eval": True,
            "per_device_train_batch_size": 8,
            "ptq_step": 6,
            "gptq_step": 6,
            "smooth_step": 6,
        }
        result = run("quantize", needed | LENGTHS | arguments)
        return json.loads((Path(result["path"]) / "quantization_report.json").read_text())

    return do


def perplexities(report: dict[str, Any]) -> tuple[float, float]:
    return report["eval"]["before"]["eval_ppl"], report["eval"]["after"]["eval_ppl"]


def rise(report: dict[str, Any]) -> float:
    """Of the perplexity, relative; below 0 it fell."""
    before, after = perplexities(report)
    return after / before - 1


def with_outliers(trained: Trained, folder: Path) -> Path:
    """The same function in floating point, but one channel behind every norm is far larger than others."""
    folder.mkdir()
    for path in trained.path.iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    tensors = load_file(trained.path / "model.safetensors")
    # Gemma's scale is 1 + weight.
    offset = 1.0 if trained.family == "gemma" else 0.0
    for name in list(tensors):
        layer, _, norm = name.removesuffix(".weight").rpartition(".")
        behind = [f"{layer}.{part}.weight" for part in BEHIND.get(norm, ()) if name.endswith(".weight")]
        for weight in (tensors[path] for path in behind if path in tensors):
            weight[:, OUTLYING_CHANNEL] /= OUTLIER
        if behind:
            scale = tensors[name]
            scale[OUTLYING_CHANNEL] = (scale[OUTLYING_CHANNEL] + offset) * OUTLIER - offset
            if (bias := tensors.get(f"{layer}.{norm}.bias")) is not None:
                bias[OUTLYING_CHANNEL] *= OUTLIER
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, folder / "model.safetensors")
    return folder


def test_the_model_has_learnt(trained: Trained) -> None:
    assert trained.perplexity < trained.vocabulary / 100


def test_perplexity_hardly_rises_with_8_bit_weights_and_smoothed_8_bit_inputs(quantize: Quantize) -> None:
    report = quantize(SMOOTH)
    assert (report["scheme"]["bits"], report["scheme"]["activations"]) == (8, True)
    assert rise(report) < 0.01


def test_smoothing_saves_a_model_with_outliers_that_rounding_its_inputs_ruins(
    trained: Trained, quantize: Quantize, tmp_path: Path
) -> None:
    planted = with_outliers(trained, tmp_path / "planted")
    rounded, smoothed = quantize(A8W8, planted), quantize(SMOOTH, planted)
    for report in (rounded, smoothed):
        assert perplexities(report)[0] == pytest.approx(trained.perplexity, rel=1e-5)
    assert rise(rounded) > 0.05
    assert rise(smoothed) < 0.01


def test_gptq_with_4_bits_in_groups_of_128_costs_little_and_less_than_rounding_to_nearest(
    quantize: Quantize,
) -> None:
    by_gptq, nearest = quantize(GPTQ), quantize(NEAREST)
    for report in (by_gptq, nearest):
        assert (report["scheme"]["bits"], report["scheme"]["group_size"]) == (4, 128)
    assert rise(by_gptq) < 0.03
    assert perplexities(by_gptq)[1] < perplexities(nearest)[1]
    for layer, other in zip(by_gptq["layers"], nearest["layers"], strict=True):
        assert layer["path"] == other["path"]
        assert layer["error"] < other["error"]
