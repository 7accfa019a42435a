"""A merged model computes what base and adapter compute together."""

import json
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file

import trainer
from tests.trainer.models.test_weights_paddlenlp import paddlenlp_tensors
from tests.trainer.models.test_weights_paddlenlp import write as write_paddlenlp
from tests.training import Recorder
from trainer import load_model, load_tokenizer
from trainer.config import read_config
from trainer.config.adapters import ADAPTER_WEIGHTS, LoraSettings
from trainer.config.preflight import check_job
from trainer.config.problems import DataError
from trainer.models.base import CausalLM
from trainer.models.safetensors_file import SafetensorsFile
from trainer.models.weights import SINGLE_FILE
from trainer.models.weights_save import save_weights
from trainer.peft.files import disk_tensors, write_tensors
from trainer.peft.lora.adapter import add_lora
from trainer.peft.prefix.adapter import add_prefix
from trainer.run import run_task
from trainer.tools.merge import MergeStoppedError, as_stored, merge_adapter
from trainer.tools.merge_base import base_files
from trainer.tools.tiny_model import build_tiny_model

from .conftest import BASES, GOLDEN
from .test_lora import disturb

FAMILIES = pytest.mark.parametrize("family", ["gemma", "bloom"])


def save_adapter_of(base: Path, directory: Path, **changes: object) -> CausalLM:
    """A disturbed adapter on a base, saved; returns both together."""
    model = load_model(base)
    disturb(add_lora(model, replace(LoraSettings(4, 6, base=str(base)), **changes)))
    trainer.save_model(model, directory)
    return model


@FAMILIES
def test_the_merged_model_gives_the_same_logits(family: str, ids: paddle.Tensor, tmp_path: Path) -> None:
    adapted = save_adapter_of(BASES[family], tmp_path / "adapter")
    told: list[tuple[int, int]] = []
    merged = merge_adapter(tmp_path / "adapter", tmp_path / "merged", progress=lambda *n: told.append(n))
    model = load_model(tmp_path / "merged")
    assert model.adapter is None
    np.testing.assert_allclose(model(ids).numpy(), adapted(ids).numpy(), atol=2e-5)
    assert merged.changed == len(adapted.trained_weights()) // 2
    assert told == [(done, merged.tensors) for done in range(1, merged.tensors + 1)]


def test_the_shards_of_the_base_stay_as_they_are(ids: paddle.Tensor, tmp_path: Path) -> None:
    base = tmp_path / "base"
    trainer.save_model(load_model(BASES["gemma"]), base)
    (base / "model.safetensors").unlink()
    save_weights(load_model(BASES["gemma"]), base, max_shard_bytes=20_000)
    adapted = save_adapter_of(base, tmp_path / "adapter")
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    names = {path.name for path in base.glob("model*")}
    assert len(names) > 3
    assert {path.name for path in (tmp_path / "merged").glob("model*")} == names
    np.testing.assert_allclose(load_model(tmp_path / "merged")(ids).numpy(), adapted(ids).numpy(), atol=2e-5)


def test_a_base_with_bare_names_is_found(tmp_path: Path) -> None:
    base = BASES["bloom"].parent / "bare_names_float16"
    save_adapter_of(base, tmp_path / "adapter")
    merged = merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    assert merged.changed == 4 * load_model(base).config.num_hidden_layers
    before, after = (SafetensorsFile(folder / "model.safetensors") for folder in (base, tmp_path / "merged"))
    assert before.headers == after.headers


@pytest.mark.parametrize("form", ["np", None])
@pytest.mark.parametrize("name", ["one_kv_head", "three_heads", "long_with_biases"])
def test_a_base_in_paddlenlps_layout_is_merged_into_hugging_faces(
    name: str, form: str | None, ids: paddle.Tensor, tmp_path: Path
) -> None:
    plain = next(path / name for path in (GOLDEN / "gemma", GOLDEN / "bloom") if (path / name).is_dir())
    base = Path(shutil.copytree(plain, tmp_path / "base"))
    write_paddlenlp(base, paddlenlp_tensors(plain), {"format": form} if form else None)
    adapted = save_adapter_of(plain, tmp_path / "adapter")
    merge_adapter(tmp_path / "adapter", tmp_path / "expected")
    merged = merge_adapter(tmp_path / "adapter", tmp_path / "merged", base=base)
    assert merged.changed == len(adapted.trained_weights()) // 2
    found, expected = (load_file(tmp_path / folder / SINGLE_FILE) for folder in ("merged", "expected"))
    assert found.keys() == expected.keys()
    assert all((found[tensor] == expected[tensor]).all() for tensor in expected)
    np.testing.assert_allclose(load_model(tmp_path / "merged")(ids).numpy(), adapted(ids).numpy(), atol=2e-5)


def test_a_large_base_in_paddlenlps_layout_has_several_files_that_share_its_tensors(tmp_path: Path) -> None:
    base = Path(shutil.copytree(BASES["gemma"], tmp_path / "base"))
    tensors = {name: tensor.astype(np.float16) for name, tensor in paddlenlp_tensors(base).items()}
    write_paddlenlp(base, tensors, {"format": "np"})
    files = base_files(base, max_shard_bytes=20_000)
    assert len(files) > 1
    names = [name for file in files for name in file.headers]
    assert sorted(names) == sorted(load_model(base).parameter_names())
    assert {header.dtype for file in files for header in file.headers.values()} == {"F16"}


def test_a_low_precision_base_is_merged_in_float32_and_rounded_once(tmp_path: Path) -> None:
    base = BASES["gemma"].parent / "sharded_bfloat16"
    adapted = save_adapter_of(base, tmp_path / "adapter")
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    merged = load_model(tmp_path / "merged").parameter_names()
    exact = load_model(base).parameter_names()
    assert adapted.adapter is not None
    for path, part in adapted.adapter.parts.items():  # type: ignore[attr-defined]
        weight = exact[f"{path}.weight"].parameter + paddle.matmul(part.lora_A, part.lora_B) * 1.5
        found = merged[f"{path}.weight"].parameter.numpy()
        np.testing.assert_allclose(found, weight.astype("bfloat16").astype("float32").numpy(), rtol=8e-3)
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert "bfloat16" in (config.get("dtype"), config.get("torch_dtype"))


def test_the_dtype_may_be_another(tmp_path: Path) -> None:
    save_adapter_of(BASES["gemma"], tmp_path / "adapter")
    merge_adapter(tmp_path / "adapter", tmp_path / "merged", dtype="bfloat16")
    headers = SafetensorsFile(tmp_path / "merged" / "model.safetensors").headers
    assert {header.dtype for header in headers.values()} == {"BF16"}


def test_bfloat16_is_rounded_to_the_nearest_and_ties_to_even() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    values[:5] = [1.00390625, 1.01171875, np.inf, -np.inf, np.nan]  # two ties, and what is no number
    expected = paddle.to_tensor(values).astype("bfloat16").astype("float32").numpy()
    found = (as_stored(values, "BF16").astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(found, expected)


def test_an_adapter_that_matches_nothing_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    save_adapter_of(BASES["gemma"], tmp_path / "adapter")
    with pytest.raises(DataError, match="is adapted, and the base model has no such layer"):
        merge_adapter(tmp_path / "adapter", tmp_path / "merged", base=BASES["bloom"])
    assert not (tmp_path / "merged").exists()


def test_an_adapter_of_another_shape_is_refused(tmp_path: Path) -> None:
    save_adapter_of(BASES["gemma"], tmp_path / "adapter")
    other = BASES["gemma"].parent / "untied_right_padded"
    with pytest.raises(DataError, match=r"is adapted as \[\d+, \d+\], the base model has \[\d+, \d+\]"):
        merge_adapter(tmp_path / "adapter", tmp_path / "merged", base=other)


def test_a_lost_matrix_is_named(tmp_path: Path) -> None:
    model = save_adapter_of(BASES["bloom"], tmp_path / "adapter")
    tensors = disk_tensors(model.trained_weights())
    del tensors[next(name for name in tensors if "lora_B" in name)]
    write_tensors(tmp_path / "adapter" / ADAPTER_WEIGHTS, tensors)
    with pytest.raises(DataError, match=r"B None, expected \[4, in\] and \[out, 4\]"):
        merge_adapter(tmp_path / "adapter", tmp_path / "merged")


def test_a_prefix_cannot_be_merged(base: Callable[[str], CausalLM], tmp_path: Path) -> None:
    model = base("bloom")
    add_prefix(model, 3, base=str(BASES["bloom"]))
    trainer.save_model(model, tmp_path / "prefix")
    with pytest.raises(DataError, match="only LoRA adapters can be merged"):
        merge_adapter(tmp_path / "prefix", tmp_path / "merged")


def test_a_merge_that_is_stopped_leaves_no_config_behind(tmp_path: Path) -> None:
    save_adapter_of(BASES["gemma"], tmp_path / "adapter")
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    with pytest.raises(MergeStoppedError):
        merge_adapter(tmp_path / "adapter", tmp_path / "merged", should_stop=lambda: True)
    assert not (tmp_path / "merged" / "config.json").exists()


def test_the_task_merges_and_reports(tiny_gemma: Path, recorder: Recorder, tmp_path: Path) -> None:
    save_adapter_of(tiny_gemma, tmp_path / "adapter")
    raw = {"lora_path": str(tmp_path / "adapter"), "output_path": str(tmp_path / "merged")}
    reading = read_config("merge", raw)
    assert [warning.loc for warning in reading.warnings] == [("output_path",)]
    assert reading.config is not None
    checked = check_job(reading.config, None)
    assert checked.problems == ()
    result = run_task("merge", checked.config, recorder.writer, lambda: False)
    assert result["path"] == str(tmp_path / "merged")
    assert result["metrics"]["changed"] == 14
    assert recorder.of("progress")[-1]["step"] == result["metrics"]["tensors"]
    assert recorder.of("result") == [recorder.events[-1]]
    assert load_tokenizer(tmp_path / "merged").encode("a") == load_tokenizer(tiny_gemma).encode("a")


def test_memory_holds_some_tensors_and_never_the_model(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "vocab_size": 512,
        "hidden_size": 96,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
    }
    base = build_tiny_model("bloom", tmp_path / "base", **sizes)
    save_adapter_of(base, tmp_path / "adapter")
    tracemalloc.start()
    try:
        merged = merge_adapter(tmp_path / "adapter", tmp_path / "merged")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    largest = 4 * 96 * 4 * 96
    assert merged.bytes > 30 * largest
    assert peak < 8 * largest
