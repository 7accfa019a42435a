import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.config.conftest import write_safetensors
from trainer.config import FinetuneConfig, Problem
from trainer.config.preflight import Roots, check_job
from trainer.config.preflight.model import MODEL_TYPES

Config = Callable[..., FinetuneConfig]
INDEX = "model.safetensors.index.json"


def only_problem(config: FinetuneConfig, roots: Roots) -> Problem:
    (problem,) = check_job(config, roots).problems
    assert problem.hint
    return problem


def shard(model: Path) -> None:
    """Split the model of the fixture in two files."""
    (model / "model.safetensors").unlink()
    write_safetensors(model / "model-1.safetensors", {"model.embed_tokens.weight": [4, 2]})
    write_safetensors(model / "model-2.safetensors", {"model.norm.weight": [2]})
    names = {"model.embed_tokens.weight": "model-1.safetensors", "model.norm.weight": "model-2.safetensors"}
    (model / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))


def test_shards_are_followed_through_their_index(config: Config, roots: Roots, model: Path) -> None:
    shard(model)
    checked = check_job(config(), roots)
    assert checked.problems == ()
    assert checked.statistics["model"] == {"model_type": "gemma", "tensors": 2, "bytes": 40}


def test_a_missing_shard_is_named(config: Config, roots: Roots, model: Path) -> None:
    shard(model)
    (model / "model-2.safetensors").unlink()
    assert "the shard model-2.safetensors that" in only_problem(config(), roots).msg


def test_a_tensor_that_the_index_promises_must_be_there(config: Config, roots: Roots, model: Path) -> None:
    shard(model)
    write_safetensors(model / "model-2.safetensors", {"other": [2]})
    assert 'model-2.safetensors lacks the tensor "model.norm.weight"' in only_problem(config(), roots).msg


@pytest.mark.parametrize("name", ["../model-1.safetensors", "/etc/passwd", "", ".."])
def test_an_index_names_files_of_its_folder_only(
    config: Config, roots: Roots, model: Path, name: str
) -> None:
    (model / INDEX).write_text(json.dumps({"weight_map": {"w": name}}))
    assert "expected a file of the same folder" in only_problem(config(), roots).msg


@pytest.mark.parametrize("text", ["{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_an_index_without_tensors_is_refused(config: Config, roots: Roots, model: Path, text: str) -> None:
    (model / INDEX).write_text(text)
    assert "has no weight_map" in only_problem(config(), roots).msg


@pytest.mark.parametrize("keep", [0, 4, 30, -1])
def test_a_truncated_weight_file_is_refused(config: Config, roots: Roots, model: Path, keep: int) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert path.name in only_problem(config(), roots).msg


@pytest.mark.parametrize("content", [b"\x05\0\0\0\0\0\0\0[1,2]", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0{}extra"])
def test_a_file_that_is_not_safetensors_is_refused(
    config: Config, roots: Roots, model: Path, content: bytes
) -> None:
    (model / "model.safetensors").write_bytes(content)
    assert only_problem(config(), roots).msg == "model.safetensors is not a whole safetensors file"


def test_pickled_weights_are_not_read(config: Config, roots: Roots, model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    problem = only_problem(config(), roots)
    assert "has pytorch_model.bin but no model.safetensors; pickled weights are not read" in problem.msg
    assert problem.hint == "Convert the weights to safetensors."


def test_a_folder_without_weights_is_refused(config: Config, roots: Roots, model: Path) -> None:
    (model / "model.safetensors").unlink()
    assert "has no weights" in only_problem(config(), roots).msg


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"model_type": "llama"}', 'model_type: got "llama", expected gemma'),
        ("{}", "model_type: got null, expected gemma"),
        ("[]", "config.json holds [], expected a JSON object"),
        ("{", "config.json is not JSON"),
        ("", "config.json is empty"),
    ],
)
def test_the_model_must_be_of_a_known_family(
    config: Config, roots: Roots, model: Path, text: str, part: str
) -> None:
    (model / "config.json").write_text(text)
    problem = only_problem(config(), roots)
    assert problem.loc == ("model_name_or_path", "config.json")
    assert part in problem.msg


def test_everything_that_is_wrong_with_a_folder_is_said_at_once(
    config: Config, roots: Roots, model: Path
) -> None:
    for path in model.iterdir():
        path.unlink()
    messages = [problem.msg for problem in check_job(config(), roots).problems]
    assert len(messages) == 3
    assert "has no file config.json" in messages[0]
    assert "has no weights" in messages[1]
    assert "has no tokenizer, expected tokenizer.json or tokenizer.model" in messages[2]


def test_files_may_not_lead_out_of_the_roots(
    config: Config, roots: Roots, model: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.safetensors"
    shutil.move(model / "model.safetensors", outside)
    (model / "model.safetensors").symlink_to(outside)
    assert "is a link to a place outside" in only_problem(config(), roots).msg
    assert check_job(config(), Roots((tmp_path,), roots.data)).problems != ()
    assert check_job(config(model_name_or_path=str(model)), Roots((tmp_path,), roots.data)).problems == ()


def test_the_tokenizer_may_lie_in_another_folder(config: Config, roots: Roots, model: Path) -> None:
    other = roots.models[0] / "tokenizer"
    other.mkdir()
    (model / "tokenizer.json").rename(other / "tokenizer.model")
    checked = check_job(config(tokenizer_name_or_path="tokenizer"), roots)
    assert checked.problems == ()
    assert checked.config.resolved()["tokenizer_name_or_path"] == str(other)


def test_a_bloom_is_accepted(config: Config, roots: Roots, model: Path) -> None:
    content = {"model_type": "bloom", "n_embed": 8, "num_hidden_layers": 1, "n_head": 2}
    (model / "config.json").write_text(json.dumps(content))
    checked = check_job(config(fp16=True), roots)
    assert checked.problems == ()
    assert checked.statistics["model"]["model_type"] == "bloom"
    assert ("fp16",) not in [warning.loc for warning in checked.warnings]


def test_a_bloom_that_leaves_its_sizes_out_is_refused(config: Config, roots: Roots, model: Path) -> None:
    (model / "config.json").write_text(json.dumps({"model_type": "bloom", "n_head": 2}))
    problem = only_problem(config(), roots)
    assert problem.loc == ("model_name_or_path", "config.json")
    assert "lacks hidden_size, n_layer" in problem.msg


def test_the_known_families_are_those_that_can_be_trained() -> None:
    from trainer.models.registry import known_families

    assert set(MODEL_TYPES) == set(known_families())


def test_fp16_on_gemma_is_a_warning(config: Config, roots: Roots) -> None:
    (warning,) = check_job(config(save_strategy="no", fp16=True), roots).warnings
    assert warning.loc == ("fp16",)
    assert warning.hint == "Set bf16 to true in place of fp16."
    assert check_job(config(save_strategy="no", bf16=True), roots).warnings == ()


def test_sequences_longer_than_the_model_knows_are_a_warning(
    config: Config, roots: Roots, model: Path
) -> None:
    (model / "config.json").write_text(json.dumps({"model_type": "gemma", "max_position_embeddings": 1500}))
    (warning,) = check_job(config(save_strategy="no", max_length=2000), roots).warnings
    assert warning.loc == ("max_length",)
    assert "max_length 2000 > max_position_embeddings 1500" in warning.msg
    assert warning.hint == "Set max_length to at most 1500."
    assert check_job(config(save_strategy="no", max_length=1500), roots).warnings == ()


def test_a_vocabulary_with_its_merges_is_a_tokenizer(config: Config, roots: Roots, model: Path) -> None:
    (model / "tokenizer.json").rename(model / "vocab.json")
    assert len(check_job(config(), roots).problems) == 1
    (model / "merges.txt").write_text("a b")
    assert check_job(config(), roots).problems == ()
