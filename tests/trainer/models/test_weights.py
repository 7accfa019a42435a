import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file

from trainer.config.problems import DataError
from trainer.models import load_model, save_model
from trainer.models.weights import INDEX_FILE, SINGLE_FILE
from trainer.models.weights_save import save_weights

GOLDEN = Path(__file__).parents[2] / "golden" / "gemma"
IDS = paddle.arange(4, 24).reshape([2, 10])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of a model that transformers saved."""
    return Path(shutil.copytree(GOLDEN / "one_kv_head", tmp_path / "model"))


def rewrite(directory: Path, tensors: dict[str, np.ndarray]) -> None:
    save_file(tensors, directory / SINGLE_FILE, metadata={"format": "pt"})


def logits(directory: Path) -> np.ndarray:
    return load_model(directory)(IDS).numpy()


def messages(directory: Path) -> dict[str, str]:
    with pytest.raises(DataError) as caught:
        load_model(directory)
    return {str(problem.loc[-1]): problem.msg for problem in caught.value.problems}


class TestSaving:
    @pytest.mark.parametrize("name", ["one_kv_head", "untied_right_padded", "long_with_biases"])
    def test_a_saved_model_is_the_loaded_file_byte_for_byte(self, name: str, tmp_path: Path):
        save_model(load_model(GOLDEN / name), tmp_path)
        assert (tmp_path / SINGLE_FILE).read_bytes() == (GOLDEN / name / SINGLE_FILE).read_bytes()

    def test_bfloat16_weights_come_back_bit_for_bit(self, tmp_path: Path):
        save_model(load_model(GOLDEN / "sharded_bfloat16", dtype="bfloat16"), tmp_path / "once")
        save_model(load_model(tmp_path / "once", dtype="float32"), tmp_path / "wide")
        save_model(load_model(tmp_path / "wide", dtype="bfloat16"), tmp_path / "twice")
        assert (tmp_path / "once" / SINGLE_FILE).read_bytes() == (
            tmp_path / "twice" / SINGLE_FILE
        ).read_bytes()

    def test_the_config_names_the_dtype_of_the_weights(self, tmp_path: Path):
        save_model(load_model(GOLDEN / "sharded_bfloat16"), tmp_path)
        assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "float32"

    def test_a_large_model_is_cut_into_shards_below_the_limit(self, directory: Path, tmp_path: Path):
        model = load_model(directory)
        save_weights(model, tmp_path, max_shard_bytes=50_000)
        index = json.loads((tmp_path / INDEX_FILE).read_text())
        shards = {name: load_file(tmp_path / name) for name in set(index["weight_map"].values())}
        assert len(shards) > 1
        assert all(sum(tensor.nbytes for tensor in shard.values()) <= 50_000 for shard in shards.values())
        assert index["metadata"]["total_size"] == sum(4 * parameter.size for parameter in model.parameters())
        assert {name: file for file, shard in shards.items() for name in shard} == index["weight_map"]

    def test_files_of_an_earlier_save_do_not_stay_behind(self, directory: Path):
        model = load_model(directory)
        before = logits(directory)
        save_weights(model, directory, max_shard_bytes=50_000)
        assert not (directory / SINGLE_FILE).exists()
        assert (logits(directory) == before).all()
        save_weights(model, directory)
        assert [path.name for path in directory.glob("model*")] == [SINGLE_FILE]

    def test_nothing_but_the_model_is_left_in_the_directory(self, directory: Path, tmp_path: Path):
        save_model(load_model(directory), tmp_path / "saved")
        names = {path.name for path in (tmp_path / "saved").iterdir()}
        assert names == {"config.json", "generation_config.json", SINGLE_FILE}


class TestLoading:
    def test_names_without_the_model_prefix_are_read(self, directory: Path):
        before = logits(directory)
        tensors = load_file(directory / SINGLE_FILE)
        rewrite(directory, {name.removeprefix("model."): tensor for name, tensor in tensors.items()})
        assert (logits(directory) == before).all()

    def test_a_stored_tied_head_and_rotary_buffers_are_passed_over(self, directory: Path):
        before = logits(directory)
        tensors = load_file(directory / SINGLE_FILE)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
        rewrite(directory, tensors)
        assert (logits(directory) == before).all()

    @pytest.mark.parametrize("dtype", [np.float16, np.float64])
    def test_other_float_types_on_disk_are_converted(self, directory: Path, dtype: type):
        tensors = {name: tensor.astype(dtype) for name, tensor in load_file(directory / SINGLE_FILE).items()}
        rewrite(directory, tensors)
        model = load_model(directory)
        for name, weight in model.parameter_names().items():
            stored = weight.turned(weight.parameter).numpy()
            assert (stored == tensors[name].astype(np.float32)).all(), name

    def test_square_matrices_are_transposed_too(self, directory: Path):
        config = json.loads((directory / "config.json").read_text())
        config["hidden_size"] = config["intermediate_size"] = 48
        config["num_attention_heads"], config["head_dim"] = 3, 16
        (directory / "config.json").write_text(json.dumps(config))
        generator = np.random.default_rng(0)
        shapes = {name: tensor.shape for name, tensor in load_file(directory / SINGLE_FILE).items()}
        square = {"q_proj": (48, 48), "o_proj": (48, 48), "gate_proj": (48, 48), "up_proj": (48, 48)}
        square["down_proj"] = (48, 48)
        tensors = {
            name: generator.standard_normal(square.get(name.split(".")[-2], shape)).astype(np.float32)
            for name, shape in shapes.items()
        }
        rewrite(directory, tensors)
        parameters = dict(load_model(directory).named_parameters())
        name = "model.layers.0.mlp.gate_proj.weight"
        assert (parameters[name].numpy() == tensors[name].T).all()

    def test_missing_misshapen_and_unknown_tensors_are_refused_by_name_at_once(self, directory: Path):
        tensors = load_file(directory / SINGLE_FILE)
        del tensors["model.norm.weight"]
        tensors["model.layers.0.mlp.up_proj.weight"] = np.zeros((3, 5), np.float32)
        tensors["model.layers.9.mlp.up_proj.weight"] = np.zeros((3, 5), np.float32)
        tensors["model.layers.1.mlp.up_proj.weight"] = np.zeros((56, 48), np.int8)
        rewrite(directory, tensors)
        found = messages(directory)
        assert found.keys() == {
            "model.norm.weight",
            "model.layers.0.mlp.up_proj.weight",
            "model.layers.1.mlp.up_proj.weight",
            "model.layers.9.mlp.up_proj.weight",
        }
        assert "missing" in found["model.norm.weight"]
        assert "got shape [3, 5], expected [56, 48]" in found["model.layers.0.mlp.up_proj.weight"]
        assert "I8" in found["model.layers.1.mlp.up_proj.weight"]
        assert "not a tensor of this model" in found["model.layers.9.mlp.up_proj.weight"]

    def test_a_truncated_file_is_refused_by_name(self, directory: Path):
        path = directory / SINGLE_FILE
        path.write_bytes(path.read_bytes()[:-10])
        assert "not a whole safetensors file" in messages(directory)[str(path)]

    def test_a_directory_without_weights_is_refused(self, directory: Path):
        (directory / SINGLE_FILE).unlink()
        assert SINGLE_FILE in messages(directory)[str(directory)]

    def test_a_missing_shard_is_refused_by_name(self, tmp_path: Path):
        directory = Path(shutil.copytree(GOLDEN / "sharded_bfloat16", tmp_path / "model"))
        (directory / "model-00002-of-00003.safetensors").unlink()
        assert "model-00002-of-00003.safetensors" in messages(directory)[str(directory / INDEX_FILE)]

    def test_an_index_cannot_name_files_elsewhere(self, tmp_path: Path):
        directory = Path(shutil.copytree(GOLDEN / "sharded_bfloat16", tmp_path / "model"))
        (directory / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
        assert "not a file name" in messages(directory)[str(directory / INDEX_FILE)]
