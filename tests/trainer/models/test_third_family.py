"""A family of one file is trained, saved, resumed and asked for its parts, with no other file touched."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest

from tests.trainer.models.toy_family import FAMILY, ToyConfig
from tests.training import Recorder
from trainer import load_model, save_model
from trainer.config import FinetuneConfig
from trainer.models import new_model, registry
from trainer.models.parts import split_of
from trainer.models.registry import linear_layers, register
from trainer.run import run_task
from trainer.tools.generate import generate_ids


@pytest.fixture(autouse=True)
def toy_is_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    register(FAMILY)


@pytest.fixture
def directory(tiny_gemma: Path, tmp_path: Path) -> Path:
    """A toy model with the tokenizer of another one."""
    config = ToyConfig(
        vocab_size=512,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        attention_dropout=0.0,
        initializer_range=0.1,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
    )
    target = tmp_path / "toy"
    save_model(new_model(config), target)
    for name in ("tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(tiny_gemma / name, target)
    return target


def never() -> bool:
    return False


def test_the_loop_trains_it_and_goes_on_from_its_checkpoint(
    directory: Path, make_config: Callable[..., FinetuneConfig]
):
    arguments = {"model_name_or_path": str(directory), "learning_rate": 1e-2, "save_steps": 1}
    config = make_config(**arguments, max_steps=2, save_strategy="steps")
    recorder = Recorder()
    result = run_task("finetune", config, recorder.writer, never)
    losses = [metric["loss"] for metric in recorder.of("metric")]
    assert losses[1] < losses[0]
    trained, before = load_model(result["path"]), load_model(directory)
    for name, weight in trained.parameter_names().items():
        assert not np.array_equal(weight.parameter.numpy(), before.parameter_names()[name].parameter.numpy())
    further = make_config(**arguments, max_steps=3, save_strategy="steps")
    run_task("finetune", further, recorder.writer, never)
    assert [metric["step"] for metric in recorder.of("metric")] == [1, 2, 3]


def test_it_generates_with_a_cache_as_without(directory: Path):
    model = load_model(directory)
    prompts = [[5, 6, 7], [8]]
    with_cache, without = (generate_ids(model, prompts, 5, (), use_cache=use) for use in (True, False))
    assert with_cache == without


def test_its_parts_are_found(directory: Path):
    model = load_model(directory)
    assert [linear.role.value for linear in linear_layers(model)] == ["value", "gate"] * 2
    rules = {name: split_of(FAMILY.splits, name) for name in model.parameter_names()}
    assert rules["toy.layers.1.gate.bias"] == rules["toy.layers.0.mix.weight"]
    assert next(stage.modules for stage in model.stages()) == ("toy.tokens",)


def test_a_name_is_taken_only_once():
    with pytest.raises(ValueError, match="a second family 'toy'"):
        register(FAMILY)


def test_gradients_reach_every_parameter(directory: Path):
    model = load_model(directory)
    ids = paddle.to_tensor([[5, 6, 7, 8]])
    model.loss(ids, ids).sum.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
