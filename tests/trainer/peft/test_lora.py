"""LoRA on the linear layers of a model."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest

import trainer
from trainer import load_model
from trainer.config.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, LoraSettings
from trainer.config.problems import ConfigError, DataError
from trainer.models.base import CausalLM
from trainer.peft.files import disk_tensors, write_tensors
from trainer.peft.lora.adapter import LoraAdapter, add_lora

from .conftest import BASES

FAMILIES = pytest.mark.parametrize("family", ["gemma", "bloom"])
SETTINGS = LoraSettings(8, 16)
NAMES = {
    "gemma": ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"),
    "bloom": ("dense", "dense_4h_to_h", "dense_h_to_4h", "query_key_value"),
}
Base = Callable[[str], CausalLM]


def disturb(adapter: LoraAdapter, seed: int = 1) -> None:
    """Give every B some numbers, so that the adapter changes the output."""
    generator = np.random.default_rng(seed)
    for part in adapter.parts.values():
        paddle.assign(generator.normal(0, 0.05, part.lora_B.shape).astype(np.float32), part.lora_B)


@FAMILIES
def test_every_linear_layer_of_the_decoder_gets_one(family: str, base: Base) -> None:
    model = base(family)
    adapter = add_lora(model, SETTINGS)
    assert adapter.settings.targets == NAMES[family]
    assert len(adapter.parts) == len(NAMES[family]) * model.config.num_hidden_layers


def test_the_number_of_parameters_is_that_of_the_formula(base: Base) -> None:
    model = base("bloom")
    adapter = add_lora(model, SETTINGS)
    hidden = model.config.hidden_size
    per_layer = 8 * (4 * hidden + 2 * hidden + 2 * 5 * hidden)
    numbers = sum(weight.parameter.size for weight in adapter.weights().values())
    assert numbers == per_layer * model.config.num_hidden_layers


@FAMILIES
def test_a_fresh_adapter_changes_nothing(family: str, base: Base, ids: paddle.Tensor) -> None:
    model = base(family)
    before = model(ids).numpy()
    add_lora(model, SETTINGS)
    assert (model(ids).numpy() == before).all()


def test_a_comes_from_the_seed_and_within_kaimings_bound(base: Base) -> None:
    first, again, other = (
        disk_tensors(add_lora(base("gemma"), SETTINGS, seed).weights()) for seed in (1, 1, 2)
    )
    for name, tensor in first.items():
        assert (tensor == again[name]).all()
        if "lora_A" in name:
            bound = 1 / np.sqrt(tensor.shape[1])
            assert 0.8 * bound < np.abs(tensor).max() <= bound
            assert (tensor != other[name]).any()
        else:
            assert not tensor.any()


@FAMILIES
def test_only_the_adapter_gets_gradients_and_it_is_float32(
    family: str, base: Base, ids: paddle.Tensor
) -> None:
    model = base(family)
    adapter = add_lora(model, SETTINGS)
    disturb(adapter)
    model.train()
    model.loss(ids, ids).sum.backward()
    assert all(weight.parameter.grad is None for weight in model.parameter_names().values())
    for weight in adapter.weights().values():
        assert weight.parameter.dtype == paddle.float32
        assert weight.parameter.grad is not None
        assert float(weight.parameter.grad.abs().sum()) > 0


@FAMILIES
def test_switched_off_it_is_the_base_model_exactly(family: str, base: Base, ids: paddle.Tensor) -> None:
    model = base(family)
    before = model(ids).numpy()
    adapter = add_lora(model, SETTINGS)
    disturb(adapter)
    adapted = model(ids).numpy()
    assert np.abs(adapted - before).max() > 0.01
    with adapter.disabled():
        assert (model(ids).numpy() == before).all()
    assert (model(ids).numpy() == adapted).all()


@FAMILIES
def test_it_computes_what_the_formula_says(family: str, base: Base, ids: paddle.Tensor) -> None:
    model, merged = base(family), base(family)
    adapter = add_lora(model, LoraSettings(4, 3, rslora=True))
    disturb(adapter)
    weights = merged.parameter_names()
    for path, part in adapter.parts.items():
        weight = weights[f"{path}.weight"].parameter
        delta = paddle.matmul(part.lora_A, part.lora_B) * (3 / 2)
        paddle.assign(weight + delta, weight)
    np.testing.assert_allclose(model(ids).numpy(), merged(ids).numpy(), atol=2e-5)


def test_fused_projections_give_the_same(ids: paddle.Tensor, tmp_path: Path) -> None:
    model = load_model(BASES["gemma"])
    adapter = add_lora(model, replace(SETTINGS, base=str(BASES["gemma"])))
    disturb(adapter)
    trainer.save_model(model, tmp_path)
    fused = load_model(tmp_path, options={"fuse_attention_qkv": True, "fuse_attention_ffn": True})
    np.testing.assert_allclose(fused(ids).numpy(), model(ids).numpy(), atol=1e-5)
    assert fused.adapter is not None
    assert fused.adapter.weights().keys() == adapter.weights().keys()


def test_targets_may_be_chosen_by_name_and_by_path(base: Base, tmp_path: Path) -> None:
    targets = ("q_proj", "layers.0.mlp.down_proj")
    model = base("gemma")
    adapter = add_lora(model, replace(SETTINGS, targets=targets, base=str(BASES["gemma"])))
    assert adapter.settings.targets == ("model.layers.0.mlp.down_proj", "q_proj")
    assert "model.layers.1.mlp.down_proj" not in adapter.parts
    trainer.save_model(model, tmp_path)
    loaded = load_model(tmp_path).adapter
    assert loaded is not None
    assert loaded.weights().keys() == adapter.weights().keys()


def test_a_target_that_is_no_layer_is_refused_with_the_choice(base: Base) -> None:
    with pytest.raises(ConfigError, match="got attn_out, expected linear layers of the model: down_proj"):
        add_lora(base("gemma"), replace(SETTINGS, targets=("q_proj", "attn_out")))


def test_dropout_acts_in_training_only(base: Base, ids: paddle.Tensor) -> None:
    model = base("gemma")
    adapter = add_lora(model, replace(SETTINGS, dropout=0.5))
    disturb(adapter)
    assert (model(ids).numpy() == model(ids).numpy()).all()
    model.train()
    paddle.seed(0)
    first = model(ids).numpy()
    assert (first != model(ids).numpy()).any()
    paddle.seed(0)
    assert (first == model(ids).numpy()).all()


@FAMILIES
def test_saved_and_loaded_it_is_the_same(family: str, base: Base, ids: paddle.Tensor, tmp_path: Path) -> None:
    model = base(family)
    disturb(add_lora(model, replace(SETTINGS, base=str(BASES[family]))))
    trainer.save_model(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [ADAPTER_CONFIG, ADAPTER_WEIGHTS]
    assert (load_model(tmp_path)(ids).numpy() == model(ids).numpy()).all()


@pytest.fixture
def saved(base: Base, tmp_path: Path) -> Path:
    """A saved adapter of the small Gemma."""
    model = base("gemma")
    disturb(add_lora(model, replace(SETTINGS, base=str(BASES["gemma"]))))
    trainer.save_model(model, tmp_path / "adapter")
    return tmp_path / "adapter"


def change_config(adapter: Path, **changes: object) -> None:
    path = adapter / ADAPTER_CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_base_that_is_gone_is_named_and_another_may_be_given(saved: Path, ids: paddle.Tensor) -> None:
    expected = load_model(saved)(ids).numpy()
    change_config(saved, base_model_name_or_path="/models/gone")
    with pytest.raises(DataError, match="got /models/gone, which is no folder here"):
        load_model(saved)
    assert (load_model(saved, base=BASES["gemma"])(ids).numpy() == expected).all()


def test_an_adapter_of_another_model_is_refused(saved: Path) -> None:
    with pytest.raises(DataError, match="has no matrices for any linear layer of this model"):
        load_model(saved, base=BASES["bloom"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 4}}, "alpha_pattern"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "trained biases"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "a changed base model"),
        ({"peft_type": "IA3"}, "expected LORA or PREFIX_TUNING"),
        ({"r": 0}, "got 0, expected a whole number between 1 and"),
        ({"r": 10**400}, "expected a whole number between 1 and"),
        ({"r": 10**9}, r"got shape \[8, \d+\], expected \[1000000000, \d+\]"),
        ({"lora_alpha": "x"}, "number above 0"),
        ({"lora_alpha": float("nan")}, "got NaN, expected a number above 0"),
        ({"lora_alpha": float("inf")}, "got Infinity, expected a number above 0"),
        ({"lora_alpha": 10**400}, "number above 0"),
        ({"use_rslora": "no"}, "expected true or false"),
        ({"target_modules": [1, "q_proj"]}, "expected names of layers"),
    ],
)
def test_what_changes_the_result_and_is_not_supported_is_refused(
    saved: Path, changes: dict[str, object], words: str
) -> None:
    change_config(saved, **changes)
    with pytest.raises(DataError, match=words):
        load_model(saved)


def test_all_tensors_that_do_not_fit_are_named(saved: Path, base: Base) -> None:
    model = base("gemma")
    tensors = disk_tensors(add_lora(model, SETTINGS).weights())
    first, second = sorted(tensors)[:2]
    tensors[first] = tensors[first][:, :-1]
    del tensors[second]
    tensors["base_model.model.model.embed_tokens.lora_embedding_A"] = np.zeros((2, 2), np.float32)
    write_tensors(saved / ADAPTER_WEIGHTS, tensors)
    with pytest.raises(DataError) as caught:
        load_model(saved)
    assert {problem.loc[1] for problem in caught.value.problems} == {
        first,
        second,
        "base_model.model.model.embed_tokens.lora_embedding_A",
    }


def test_a_pickled_adapter_is_not_read(saved: Path) -> None:
    (saved / ADAPTER_WEIGHTS).rename(saved / "adapter_model.bin")
    with pytest.raises(DataError, match="pickled"):
        load_model(saved)
