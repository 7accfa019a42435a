"""Directories in PaddleNLP's layout give the model that Hugging Face's layout gives."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file

from trainer.config.problems import DataError
from trainer.models import load_model
from trainer.models.weights import INDEX_FILE, SINGLE_FILE

GOLDEN = Path(__file__).parents[2] / "golden"
IDS = paddle.arange(4, 24).reshape([2, 10])
SHARD = "model-00001-of-00001.safetensors"
LINEAR = ("_proj.weight", "query_key_value.weight", "dense.weight", "_4h.weight", "_to_h.weight")
PREFIXES = {"gemma": "model.", "bloom": "transformer."}

MODELS = [
    "gemma/one_kv_head",
    "gemma/untied_right_padded",
    "gemma/long_with_biases",
    "bloom/three_heads",
    "bloom/six_heads_untied",
    "bloom/bare_names_float16",
]
EMBEDDINGS = [
    ("gemma/one_kv_head", "gemma.embed_tokens.weight"),
    ("bloom/three_heads", "bloom.word_embeddings.weight"),
]

Tensors = dict[str, np.ndarray]


def paddlenlp_tensors(directory: Path) -> Tensors:
    """The tensors of a Hugging Face directory under PaddleNLP's names and in its orientation."""
    family = json.loads((directory / "config.json").read_text())["model_type"]
    tensors = {}
    for name, tensor in load_file(directory / SINGLE_FILE).items():
        turned = tensor.T if name.endswith(LINEAR) else tensor
        bare = name.removeprefix(PREFIXES[family])
        theirs = bare if bare.startswith("lm_head.") else f"{family}.{bare}"
        tensors[theirs] = np.ascontiguousarray(turned)
    return tensors


def write(directory: Path, tensors: Tensors, metadata: dict[str, str] | None) -> None:
    """Write them as PaddleNLP does: one numbered shard with an index."""
    (directory / SINGLE_FILE).unlink(missing_ok=True)
    save_file(tensors, directory / SHARD, metadata=metadata)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(tensors, SHARD)}
    (directory / INDEX_FILE).write_text(json.dumps(index))


def parameters(directory: Path) -> Tensors:
    return {name: p.numpy() for name, p in load_model(directory).named_parameters()}


def same(one: Tensors, two: Tensors) -> bool:
    return one.keys() == two.keys() and all((one[name] == two[name]).all() for name in one)


def messages(directory: Path) -> dict[str, str]:
    with pytest.raises(DataError) as caught:
        load_model(directory)
    return {str(problem.loc[-1]): problem.msg for problem in caught.value.problems}


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a golden directory."""
    return lambda name: Path(shutil.copytree(GOLDEN / name, tmp_path / name))


@pytest.mark.parametrize("form", ["np", "paddle"])
@pytest.mark.parametrize("name", MODELS)
def test_the_logits_are_those_of_the_hugging_face_directory(
    copy: Callable[[str], Path], name: str, form: str
):
    directory = copy(name)
    expected = load_model(directory)(IDS).numpy()
    write(directory, paddlenlp_tensors(directory), {"format": form})
    assert (load_model(directory)(IDS).numpy() == expected).all()


def test_without_a_format_the_names_tell(copy: Callable[[str], Path]):
    directory = copy("gemma/one_kv_head")
    expected = parameters(directory)
    write(directory, paddlenlp_tensors(directory), None)
    assert same(parameters(directory), expected)


def test_shards_without_an_index_are_read_when_all_are_there(copy: Callable[[str], Path]):
    directory = copy("gemma/one_kv_head")
    expected = parameters(directory)
    write(directory, paddlenlp_tensors(directory), {"format": "np"})
    (directory / INDEX_FILE).unlink()
    assert same(parameters(directory), expected)
    (directory / SHARD).rename(directory / "model-00001-of-00002.safetensors")
    assert INDEX_FILE in messages(directory)[str(directory)]


def test_square_matrices_come_out_right_in_both_layouts(copy: Callable[[str], Path]):
    directory = copy("gemma/one_kv_head")
    config = json.loads((directory / "config.json").read_text())
    config |= {"hidden_size": 48, "num_attention_heads": 3, "head_dim": 16, "intermediate_size": 48}
    (directory / "config.json").write_text(json.dumps(config))
    generator = np.random.default_rng(0)
    tensors = {
        name: generator.standard_normal((48, 48) if name.endswith(LINEAR) else tensor.shape).astype("float32")
        for name, tensor in load_file(directory / SINGLE_FILE).items()
        if not name.endswith(("k_proj.weight", "v_proj.weight"))
    }
    for layer in (0, 1):
        for kind in ("k_proj", "v_proj"):
            narrow = generator.standard_normal((16, 48)).astype("float32")
            tensors[f"model.layers.{layer}.self_attn.{kind}.weight"] = narrow
    save_file(tensors, directory / SINGLE_FILE, metadata={"format": "pt"})
    name = "model.layers.1.self_attn.o_proj.weight"
    expected = parameters(directory)
    assert (expected[name] == tensors[name].T).all()
    write(directory, paddlenlp_tensors(directory), {"format": "np"})
    assert same(parameters(directory), expected)


@pytest.mark.parametrize("prefix", ["", "transformer.", "bloom."])
def test_bloom_may_have_any_prefix(copy: Callable[[str], Path], prefix: str):
    directory = copy("bloom/three_heads")
    expected = parameters(directory)
    tensors = load_file(directory / SINGLE_FILE)
    renamed = {prefix + name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    save_file(renamed, directory / SINGLE_FILE, metadata={"format": "pt"})
    assert same(parameters(directory), expected)


class TestTiedHeads:
    @pytest.mark.parametrize("alias", ["lm_head.weight", "lm_head.decoder_weight"])
    @pytest.mark.parametrize(("name", "embedding"), EMBEDDINGS)
    def test_a_second_copy_is_passed_over(
        self, copy: Callable[[str], Path], name: str, embedding: str, alias: str
    ):
        directory = copy(name)
        expected = parameters(directory)
        tensors = paddlenlp_tensors(directory)
        tensors[alias] = tensors[embedding].copy()
        write(directory, tensors, {"format": "np"})
        assert same(parameters(directory), expected)

    @pytest.mark.parametrize("alias", ["lm_head.weight", "lm_head.decoder_weight"])
    @pytest.mark.parametrize(("name", "embedding"), EMBEDDINGS)
    def test_either_name_will_do_for_the_embedding(
        self, copy: Callable[[str], Path], name: str, embedding: str, alias: str
    ):
        directory = copy(name)
        expected = parameters(directory)
        tensors = paddlenlp_tensors(directory)
        tensors[alias] = tensors.pop(embedding)
        write(directory, tensors, {"format": "np"})
        assert same(parameters(directory), expected)

    def test_a_head_of_its_own_may_lie_the_other_way(self, copy: Callable[[str], Path]):
        directory = copy("gemma/untied_right_padded")
        expected = parameters(directory)
        tensors = paddlenlp_tensors(directory)
        tensors["lm_head.weight"] = np.ascontiguousarray(tensors["lm_head.weight"].T)
        write(directory, tensors, {"format": "np"})
        assert same(parameters(directory), expected)


class TestFusedMatrices:
    @pytest.mark.parametrize(
        "name", ["gemma/one_kv_head", "gemma/all_kv_heads_left_padded", "gemma/long_with_biases"]
    )
    def test_query_key_and_value_in_one(self, copy: Callable[[str], Path], name: str):
        directory = copy(name)
        expected = parameters(directory)
        config = json.loads((directory / "config.json").read_text())
        tensors = paddlenlp_tensors(directory)
        kinds = ("weight", "bias") if config["attention_bias"] else ("weight",)
        for layer in range(2):
            for kind in kinds:
                owner = f"gemma.layers.{layer}.self_attn."
                parts = [tensors.pop(f"{owner}{part}_proj.{kind}") for part in "qkv"]
                fused = fuse_by_key_head(parts, config["num_key_value_heads"])
                tensors[f"{owner}qkv_proj.{kind}"] = np.ascontiguousarray(fused)
        write(directory, tensors, {"format": "np"})
        assert same(parameters(directory), expected)

    def test_gate_and_up_in_one(self, copy: Callable[[str], Path]):
        directory = copy("gemma/one_kv_head")
        expected = parameters(directory)
        tensors = paddlenlp_tensors(directory)
        for layer in range(2):
            owner = f"gemma.layers.{layer}.mlp."
            parts = [tensors.pop(f"{owner}{part}_proj.weight") for part in ("gate", "up")]
            tensors[f"{owner}gate_up_fused_proj.weight"] = np.concatenate(parts, axis=-1)
        write(directory, tensors, {"format": "np"})
        assert same(parameters(directory), expected)

    def test_a_fused_matrix_of_another_shape_is_refused_by_name(self, copy: Callable[[str], Path]):
        directory = copy("gemma/one_kv_head")
        tensors = paddlenlp_tensors(directory)
        name = "gemma.layers.0.mlp.gate_up_fused_proj.weight"
        for part in ("gate", "up"):
            del tensors[f"gemma.layers.0.mlp.{part}_proj.weight"]
        tensors[name] = np.zeros((48, 100), np.float32)
        write(directory, tensors, {"format": "np"})
        assert messages(directory) == {name: "got shape [48, 100], expected [48, 112]"}


def fuse_by_key_head(parts: list[np.ndarray], key_heads: int) -> np.ndarray:
    """The query heads that share a key head, that key head, its value head; then the next key head."""
    cut = [np.split(part, key_heads, axis=-1) for part in parts]
    return np.concatenate([piece for group in zip(*cut, strict=True) for piece in group], axis=-1)


def test_a_layout_that_contradicts_the_format_is_refused_with_the_reason(copy: Callable[[str], Path]):
    directory = copy("gemma/one_kv_head")
    save_file(load_file(directory / SINGLE_FILE), directory / SINGLE_FILE, metadata={"format": "np"})
    text = messages(directory)["model.layers.0.mlp.gate_proj.weight"]
    assert "got shape [56, 48], expected [48, 56]" in text
    assert "whose header says format: np" in text


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("model_state.pdparams", "unified_checkpoint"), ("pytorch_model.bin", "load it in transformers")],
)
def test_pickles_are_refused_with_the_remedy(copy: Callable[[str], Path], name: str, remedy: str):
    directory = copy("gemma/one_kv_head")
    (directory / SINGLE_FILE).rename(directory / name)
    with pytest.raises(DataError, match=f"{name}.*is a pickle.*{remedy}"):
        load_model(directory)
