"""Quantized models into directories and back."""

import json
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file

from tests.trainer.quantization.quantized import SCHEMES, quantized, tiny
from trainer import load_model, load_tokenizer, save_model
from trainer.config.problems import DataError
from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.loop.setup import count_parameters
from trainer.models import CausalLM, linear_layers
from trainer.models.weights_save import save_weights
from trainer.parallel.layout import Layout
from trainer.quantization import loading
from trainer.quantization.layers import QuantizedLinear
from trainer.quantization.model import is_quantized, put_layer
from trainer.tools.generate import generate

IDS = paddle.to_tensor([[5, 9, 77, 300, 8, 41]])


@pytest.fixture(scope="module")
def bloom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("bloom", tmp_path_factory.mktemp("models") / "bloom")


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("gemma", tmp_path_factory.mktemp("models") / "gemma")


def logits(model: CausalLM) -> np.ndarray:
    with paddle.no_grad():
        return model(IDS).numpy()


def rewrite(folder: Path, change: str, value: np.ndarray | None) -> None:
    """Change one tensor of a directory with a single file, or remove it."""
    tensors = load_file(folder / "model.safetensors")
    if value is None:
        del tensors[change]
    else:
        tensors[change] = value
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("name", SCHEMES)
def test_a_saved_model_computes_the_same_when_it_is_loaded(name: str, bloom: Path, tmp_path: Path):
    model = quantized(bloom, SCHEMES[name])
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert is_quantized(again)
    assert list(linear_layers(again)) == []
    np.testing.assert_array_equal(logits(again), logits(model))
    save_model(again, tmp_path / "again")
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / file).read_bytes()


@pytest.mark.parametrize("name", ["a8w8", "gptq4"])
def test_a_gemma_does_so_too_and_generates(name: str, gemma: Path, tmp_path: Path):
    model = quantized(gemma, SCHEMES[name])
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    np.testing.assert_array_equal(logits(again), logits(model))
    tokenizer = load_tokenizer(gemma)
    assert generate(again, tokenizer, ["The harbour"], 4) == generate(model, tokenizer, ["The harbour"], 4)


def test_names_are_those_of_the_files_and_a_fused_projection_of_bloom_stays_one(bloom: Path, tmp_path: Path):
    save_model(quantized(bloom, SCHEMES["gptq4"]), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    layer = "transformer.h.1.self_attention.query_key_value"
    of_layer = {name: tensor.shape for name, tensor in tensors.items() if name.startswith(layer)}
    assert of_layer == {
        f"{layer}.qweight": (8, 192),
        f"{layer}.qzeros": (2, 24),
        f"{layer}.scales": (2, 192),
        f"{layer}.g_idx": (64,),
        f"{layer}.bias": (192,),
    }
    assert "transformer.word_embeddings.weight" in tensors


@pytest.mark.parametrize("name", ["int4", "gptq4"])
def test_layers_may_be_left_as_they_are_and_config_json_names_them(name: str, bloom: Path, tmp_path: Path):
    model = quantized(bloom, SCHEMES[name], skip=("dense",))
    save_model(model, tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    if name == "int4":
        left = [f"transformer.h.{number}.self_attention.dense" for number in range(2)]
        assert content["ignore"] == [*left, "lm_head"]
    else:
        assert r"-:^transformer\.h\.0\.self_attention\.dense$" in content["dynamic"]
        assert "transformer.h.1.mlp.dense_h_to_4h" in content["modules_in_block_to_quantize"][0]
    again = load_model(tmp_path)
    assert len(list(linear_layers(again))) == 2
    np.testing.assert_array_equal(logits(again), logits(model))


def test_weights_are_written_in_shards_like_those_of_any_model(bloom: Path, tmp_path: Path):
    model = quantized(bloom, SCHEMES["a8w8"])
    save_model(model, tmp_path)
    save_weights(model, tmp_path, max_shard_bytes=40_000)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert not (tmp_path / "model.safetensors").exists()
    np.testing.assert_array_equal(logits(load_model(tmp_path)), logits(model))


def test_fusing_projections_is_passed_over_since_the_files_have_each_of_them(gemma: Path, tmp_path: Path):
    model = quantized(gemma, SCHEMES["int8"])
    save_model(model, tmp_path)
    again = load_model(tmp_path, options={"fuse_attention_qkv": True, "fuse_attention_ffn": True})
    np.testing.assert_array_equal(logits(again), logits(model))


def test_what_is_not_quantized_has_the_precision_that_is_asked_for(bloom: Path, tmp_path: Path):
    save_model(quantized(bloom, SCHEMES["int8"]), tmp_path)
    again = load_model(tmp_path, "bfloat16")
    assert {parameter.dtype for parameter in again.parameters()} == {paddle.bfloat16}
    assert again.parameter_names()["transformer.h.0.mlp.dense_h_to_4h.bias"].disk_shape == [256]


def test_linear_layers_get_no_memory_before_quantized_ones_take_their_places(
    bloom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    save_model(quantized(bloom, SCHEMES["int8"]), tmp_path)
    has_memory = []

    def watched(model: CausalLM, path: str, layer: QuantizedLinear) -> None:
        has_memory.append(dict(model.named_sublayers())[path].weight._is_initialized())
        put_layer(model, path, layer)

    monkeypatch.setattr(loading, "put_layer", watched)
    again = load_model(tmp_path)
    assert has_memory == [False] * 8
    assert all(parameter._is_initialized() for parameter in again.parameters())


def test_missing_and_misshapen_tensors_are_named(bloom: Path, tmp_path: Path):
    save_model(quantized(bloom, SCHEMES["gptq4"]), tmp_path)
    first, second = (f"transformer.h.{number}.mlp.dense_h_to_4h" for number in range(2))
    rewrite(tmp_path, f"{first}.scales", None)
    rewrite(tmp_path, f"{second}.qzeros", np.zeros((2, 1), np.int32))
    with pytest.raises(DataError) as raised:
        load_model(tmp_path)
    text = str(raised.value)
    assert f"{first}.scales" in text
    assert "is missing" in text
    assert f"{second}.qzeros" in text
    assert "got shape [2, 1], expected [2, 32]" in text


def test_a_float_model_that_claims_to_be_quantized_is_refused(bloom: Path, tmp_path: Path):
    model = load_model(bloom)
    save_model(model, tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content["quantization_config"] = SCHEMES["gptq4"].content([], [], "lm_head")
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="no layer has a tensor qweight"):
        load_model(tmp_path)
    content["quantization_config"] = {"quant_method": "bitsandbytes"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match='got "bitsandbytes", expected gptq or compressed-tensors'):
        load_model(tmp_path)


MLP = "transformer.h.0.mlp.dense_h_to_4h"
#: Of a scheme: a tensor, what one of its numbers becomes, and what is said of it.
BROKEN = [
    ("int4", "weight_scale", np.nan, r"got nan at \[1, 0\], expected finite scales"),
    ("gptq4", "scales", np.inf, r"got inf at \[1, 0\], expected finite scales"),
    ("a8w8", "input_scale", np.inf, r"got inf at \[0\], expected a finite number above 0"),
    ("a8w8", "input_scale", 0.0, r"got 0\.0 at \[0\], expected a finite number above 0"),
    ("int8-in-4", "weight", 9, r"got 9 at \[1, 0\], expected -8 to 7, which 4 bits hold"),
    ("int4", "weight_shape", 65, r"got \[256, 65\], expected \[256, 64\]"),
    ("gptq4", "qzeros", 0x77777770, r"got 0 at \[1, 0\], expected 7 or 8 everywhere"),
    ("gptq4", "g_idx", 2, r"got 2 at \[1\], expected groups from 0 to 1"),
    ("gptq4", "g_idx", -1, r"got -1 at \[1\], expected groups from 0 to 1"),
    ("int8-plain", "weight_zero_point", 3, r"got 3 at \[1, 0\], expected 0"),
    ("int4", "weight_zero_point", -0x77777779, r"got -1 at \[1, 0\], expected 0"),
]


@pytest.mark.parametrize(("name", "part", "value", "words"), BROKEN)
def test_numbers_that_cannot_be_are_refused_with_file_and_tensor(
    name: str, part: str, value: float, words: str, bloom: Path, tmp_path: Path
):
    in_four = QuantizationScheme(StoredAs.INT_QUANTIZED, 4)
    save_model(quantized(bloom, SCHEMES.get(name, in_four)), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    spare = np.zeros((256, 1), np.int8 if name == "int8-plain" else np.int32)
    tensor = tensors.get(f"{MLP}.{part}", spare).copy()
    tensor.reshape(len(tensor), -1)[min(1, len(tensor) - 1), 0] = value
    rewrite(tmp_path, f"{MLP}.{part}", tensor)
    with pytest.raises(DataError, match=words) as raised:
        load_model(tmp_path)
    (problem,) = raised.value.problems
    assert problem.loc == (str(tmp_path / "model.safetensors"), f"{MLP}.{part}")
    assert problem.hint == "Fetch the model again, or name another directory."


def test_zero_points_of_zero_beside_symmetric_weights_are_passed_over(bloom: Path, tmp_path: Path):
    for name, zeros in (
        ("int8-plain", np.zeros((256, 1), np.int8)),
        ("int4", np.full((32, 1), -0x77777778, np.int32)),
    ):
        model = quantized(bloom, SCHEMES[name])
        save_model(model, tmp_path / name)
        rewrite(tmp_path / name, f"{MLP}.weight_zero_point", zeros)
        np.testing.assert_array_equal(logits(load_model(tmp_path / name)), logits(model))


def test_quantized_weights_are_counted_among_the_parameters(bloom: Path):
    counts = [
        count_parameters(Layout.single(), model)
        for model in (load_model(bloom), quantized(bloom, SCHEMES["gptq4"]))
    ]
    assert counts[0][0] == counts[1][0] > 100_000
    assert counts[1][1] < counts[0][1]
