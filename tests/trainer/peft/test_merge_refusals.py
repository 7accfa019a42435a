"""A merge that cannot give the model of base and adapter gives none, and says why."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file

from trainer import load_model, save_model
from trainer.config.adapters import ADAPTER_WEIGHTS
from trainer.config.problems import DataError
from trainer.models.weights import INDEX_FILE, SINGLE_FILE
from trainer.models.weights_save import save_weights
from trainer.tools.merge import all_finite, as_stored, merge_adapter

from .conftest import BASES
from .test_merge import save_adapter_of

LAYER = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base model in one float32 file."""
    save_model(load_model(BASES["gemma"]), tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """An adapter of it."""
    save_adapter_of(base, tmp_path / "adapter")
    return tmp_path / "adapter"


def change(path: Path, edit: Callable[[dict[str, np.ndarray]], object]) -> None:
    """Edit the tensors of a safetensors file."""
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, {"format": "pt"})


def test_weights_of_an_earlier_model_do_not_hide_the_merged_ones(
    base: Path, adapter: Path, ids: paddle.Tensor, tmp_path: Path
) -> None:
    output = tmp_path / "merged"
    output.mkdir()
    save_weights(load_model(base), output, max_shard_bytes=20_000)
    merge_adapter(adapter, output)
    assert [path.name for path in output.glob("model*")] == [SINGLE_FILE]
    np.testing.assert_allclose(load_model(output)(ids).numpy(), load_model(adapter)(ids).numpy(), atol=2e-5)


def test_a_single_shard_is_named_by_an_index(base: Path, adapter: Path, tmp_path: Path) -> None:
    (base / SINGLE_FILE).rename(base / "model-00001-of-00001.safetensors")
    merge_adapter(adapter, tmp_path / "merged")
    index = json.loads((tmp_path / "merged" / INDEX_FILE).read_text())
    assert set(index["weight_map"].values()) == {"model-00001-of-00001.safetensors"}


def test_neither_the_adapter_nor_the_base_is_written_over(base: Path, adapter: Path) -> None:
    before = {path: path.read_bytes() for folder in (base, adapter) for path in folder.iterdir()}
    with pytest.raises(DataError, match="is the folder of the base model"):
        merge_adapter(adapter, base)
    with pytest.raises(DataError, match="is the folder of the adapter"):
        merge_adapter(adapter, adapter)
    assert {path: path.read_bytes() for folder in (base, adapter) for path in folder.iterdir()} == before


def test_numbers_that_the_dtype_cannot_hold_are_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    def enlarge(tensors: dict[str, np.ndarray]) -> None:
        tensors[f"{LAYER}.weight"] *= np.float32(1e8)

    change(base / SINGLE_FILE, enlarge)
    with pytest.raises(DataError, match=f"{LAYER}.weight: has numbers that are infinite or NaN as F16"):
        merge_adapter(adapter, tmp_path / "merged", dtype="float16")
    assert not (tmp_path / "merged" / "config.json").exists()
    merge_adapter(adapter, tmp_path / "merged", dtype="bfloat16")


def test_a_nan_in_the_adapter_is_refused(adapter: Path, tmp_path: Path) -> None:
    def spoil(tensors: dict[str, np.ndarray]) -> None:
        tensors[f"base_model.model.{LAYER}.lora_A.weight"][0, 0] = np.nan

    change(adapter / ADAPTER_WEIGHTS, spoil)
    with pytest.raises(DataError, match=f"{LAYER}.weight: has numbers that are infinite or NaN as F32"):
        merge_adapter(adapter, tmp_path / "merged")


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_infinities_and_nan_are_seen_in_every_dtype(dtype: str) -> None:
    assert all_finite(as_stored(np.array([0.0, -1.0, 65504.0], np.float32), dtype), dtype)
    for number in (np.inf, -np.inf, np.nan):
        assert not all_finite(as_stored(np.array([0.0, number], np.float32), dtype), dtype)


def test_two_layers_of_the_adapter_cannot_change_one_tensor(adapter: Path, tmp_path: Path) -> None:
    def double(tensors: dict[str, np.ndarray]) -> None:
        for name in [name for name in tensors if LAYER in name]:
            tensors[name.replace("base_model.model.model.", "base_model.model.")] = tensors[name]

    change(adapter / ADAPTER_WEIGHTS, double)
    with pytest.raises(DataError, match=f"changes {LAYER}.weight, and so does"):
        merge_adapter(adapter, tmp_path / "merged")


def _cut(base: Path) -> None:
    path = base / SINGLE_FILE
    path.write_bytes(path.read_bytes()[:-10])


def _add_integers(base: Path) -> None:
    change(base / SINGLE_FILE, lambda tensors: tensors.update(mask=np.ones(3, np.int64)))


BREAKS: dict[str, Callable[[Path], object]] = {
    "is not a whole safetensors file": _cut,
    "mask: is I64, expected": _add_integers,
    "config.json: cannot be read": lambda base: (base / "config.json").unlink(),
    "config.json: is not a JSON object": lambda base: (base / "config.json").write_text("[]"),
    "has neither model.safetensors": lambda base: (base / SINGLE_FILE).unlink(),
}


@pytest.mark.parametrize("words", BREAKS)
def test_a_broken_base_is_refused_and_nothing_is_written(
    base: Path, adapter: Path, tmp_path: Path, words: str
) -> None:
    broken = Path(shutil.copytree(base, tmp_path / "broken"))
    BREAKS[words](broken)
    with pytest.raises(DataError, match=words):
        merge_adapter(adapter, tmp_path / "merged", base=broken)
    assert not (tmp_path / "merged").exists()
