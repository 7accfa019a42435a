"""A rank reads its part of the weights from files of either layout, and nothing else."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.ranks import RankError, run_ranks
from tests.trainer.models.split_models import Parts, bloom, gemma, model_of, placement_of, whole_of
from trainer.models import load_model, new_model, save_model
from trainer.models.configuration import ModelConfig
from trainer.models.parts import split_of
from trainer.models.placement import Placement
from trainer.models.registry import family
from trainer.models.safetensors_file import SafetensorsFile
from trainer.models.weights import SINGLE_FILE

CASES = {
    "gemma": gemma(vocab_size=63, attention_bias=True),
    "gemma, fused, a head of its own": gemma(
        fuse_attention_qkv=True, fuse_attention_ffn=True, tie_word_embeddings=False
    ),
    "gemma, one key head": gemma(num_key_value_heads=1),
    "bloom": bloom(),
}


def count_numbers() -> list[int]:
    """A list that gets the count of numbers of each later read."""
    counts: list[int] = []
    numbers, columns = SafetensorsFile.numbers, SafetensorsFile._columns

    def of_rows(self: SafetensorsFile, name: str, first: int, count: int) -> np.ndarray:
        counts.append(count)
        return numbers(self, name, first, count)

    def of_columns(self: SafetensorsFile, *where: object) -> np.ndarray:
        found = columns(self, *where)  # type: ignore[arg-type]
        counts.append(found.size)
        return found

    for name, replacement in (("numbers", of_rows), ("_columns", of_columns)):
        setattr(SafetensorsFile, name, replacement)
    return counts


def loaded(folder: Path, ranks: int, stages: frozenset[int] | None) -> tuple[Parts, int]:
    """What a rank has after loading, and how many numbers it read for that."""
    counts = count_numbers()
    tensor = placement_of(ranks, False).tensor
    options = json.loads((folder / "config.json").read_text())
    model = load_model(folder, options=options, place=lambda config: Placement(tensor, stages))
    parts: Parts = {
        name: (weight.region, weight.disk_shape, weight.turned(weight.parameter).numpy())
        for name, weight in model.parameter_names().items()
    }
    return parts, sum(counts)


def check(folder: Path, config: ModelConfig, stages: frozenset[int] | None = None) -> None:
    expected = {n: w.turned(w.parameter).numpy() for n, w in model_of(config).parameter_names().items()}
    rules = family(config.model_type).splits
    ranks = run_ranks(2, loaded, folder, 2, stages)
    for parts, read in ranks:
        assert read == sum(part.size for _, _, part in parts.values())
        for name, (region, shape, _) in parts.items():
            cut = [axis for axis, size in enumerate(shape) if region[axis] != slice(0, size)]
            rule = split_of(rules, name)
            whole = rule is None or (rule.whole_when_uneven and config.num_key_value_heads == 1)
            assert cut == ([] if whole or rule is None else [rule.axis]), name
    found = whole_of([parts for parts, _ in ranks])
    assert found.keys() == expected.keys() if stages is None else found.keys() < expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.fixture
def folder(tmp_path: Path, case: str) -> Path:
    save_model(model_of(CASES[case]), tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_ranks_load_their_parts_of_hugging_face_files(folder: Path, case: str):
    check(folder, CASES[case])


@pytest.mark.parametrize("case", ["gemma", "gemma, fused, a head of its own"])
def test_ranks_load_their_parts_of_one_stage(folder: Path, case: str):
    check(folder, CASES[case], frozenset({2, 3}))


@pytest.mark.parametrize("case", CASES)
def test_ranks_load_their_parts_of_paddlenlp_files(folder: Path, case: str):
    write_paddlenlp(folder, CASES[case])
    check(folder, CASES[case])


def write_paddlenlp(folder: Path, config: ModelConfig) -> None:
    """The file in PaddleNLP's layout, with fused matrices where the configuration says so."""
    tensors = load_file(folder / SINGLE_FILE)
    linear = {n for n, w in model_of(config).parameter_names().items() if w.transposed}
    turned = {n: np.ascontiguousarray(x.T) if n in linear else x for n, x in tensors.items()}
    if getattr(config, "fuse_attention_qkv", False):
        for layer in range(config.num_hidden_layers):
            place = f"model.layers.{layer}."
            parts = [turned.pop(f"{place}self_attn.{name}.weight") for name in ("q_proj", "k_proj", "v_proj")]
            groups = [part.reshape(part.shape[0], config.num_key_value_heads, -1) for part in parts]
            fused = np.concatenate(groups, axis=2).reshape(parts[0].shape[0], -1)
            turned[f"{place}self_attn.qkv_proj.weight"] = fused
            pair = [turned.pop(f"{place}mlp.{name}.weight") for name in ("gate_proj", "up_proj")]
            turned[f"{place}mlp.gate_up_fused_proj.weight"] = np.concatenate(pair, axis=1)
    save_file(turned, folder / SINGLE_FILE, {"format": "np"})


def test_a_tensor_of_another_stage_that_is_missing_is_found_too(tmp_path: Path):
    save_model(model_of(gemma()), tmp_path)
    tensors = load_file(tmp_path / SINGLE_FILE)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / SINGLE_FILE, {"format": "pt"})
    with pytest.raises(RankError, match=r"model\.layers\.0\.mlp\.up_proj\.weight.*is missing"):
        run_ranks(1, one_stage, tmp_path)


def one_stage(folder: Path) -> None:
    load_model(folder, place=lambda config: Placement(stages=frozenset({2, 3})))


def test_a_model_that_cannot_be_split_is_refused():
    with pytest.raises(RankError, match=r"tensor_parallel_degree.*num_attention_heads is 4"):
        run_ranks(3, fresh, gemma())


def fresh(config: ModelConfig) -> None:
    new_model(config, placement=placement_of(3, False))
