"""Prefixes in front of every document: exact in training, evaluation and generation."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest

import trainer
from trainer import load_model
from trainer.config.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, PREFIX_ENCODER
from trainer.config.problems import DataError
from trainer.models.base import CausalLM
from trainer.models.safetensors_file import SafetensorsFile
from trainer.peft.prefix.adapter import PrefixAdapter, add_prefix
from trainer.peft.prefix.encoder import PROMPT
from trainer.tools.generate import generate_ids

from .conftest import BASES

FAMILIES = pytest.mark.parametrize("family", ["gemma", "bloom"])
PROJECTIONS = pytest.mark.parametrize("projection", [None, 12])
TOKENS = 5
Base = Callable[[str], CausalLM]


def prefixed(model: CausalLM, projection: int | None = None, spread: float = 0.5) -> PrefixAdapter:
    """A prefix with numbers that matter."""
    adapter = add_prefix(model, TOKENS, projection, base="base")
    adapter.encoder.draw(3, spread)
    return adapter


@FAMILIES
@PROJECTIONS
def test_only_the_prefix_gets_gradients(
    family: str, projection: int | None, base: Base, ids: paddle.Tensor
) -> None:
    model = base(family)
    adapter = prefixed(model, projection)
    model.train()
    model.loss(ids, ids).sum.backward()
    assert all(weight.parameter.grad is None for weight in model.parameter_names().values())
    for weight in adapter.weights().values():
        assert weight.parameter.grad is not None
        assert float(weight.parameter.grad.abs().sum()) > 0


@FAMILIES
def test_a_prefix_of_a_texts_own_keys_and_values_stands_for_that_text(
    family: str, base: Base, ids: paddle.Tensor
) -> None:
    model = base(family)
    whole = model(ids).numpy()
    cache = model.new_cache(1)
    head = ids.numpy()[:1, :TOKENS]
    model.next_logits(head, np.arange(TOKENS)[None], np.ones((1, TOKENS), bool), cache)
    adapter = prefixed(model)
    pairs = zip(cache._keys, cache._values, strict=True)
    flat = [x.transpose([0, 2, 1, 3]).reshape([TOKENS, -1]) for pair in pairs for x in pair if x is not None]
    paddle.assign(paddle.concat(flat, axis=1), adapter.encoder.embedding)
    rest = model(ids[:1, TOKENS:]).numpy()
    np.testing.assert_allclose(rest, whole[:1, TOKENS:], atol=1e-5)


@FAMILIES
def test_padding_and_company_change_nothing(family: str, base: Base, ids: paddle.Tensor) -> None:
    model = base(family)
    prefixed(model)
    alone = model(ids[:1, 3:]).numpy()
    mask = np.ones((2, 9), np.int64)
    mask[0, :3] = 0
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    padded = model(ids, paddle.to_tensor(positions), paddle.to_tensor(mask)).numpy()
    np.testing.assert_allclose(padded[0, 3:], alone[0], atol=1e-5)


@FAMILIES
def test_packed_documents_each_have_the_prefix(family: str, base: Base, ids: paddle.Tensor) -> None:
    model = base(family)
    adapter = prefixed(model)
    rows = ids.numpy()
    packed = np.concatenate([rows[0], rows[1, :4]])[None]
    documents = np.array([[1] * 9 + [2] * 4])
    positions = np.concatenate([np.arange(9), np.arange(4)])[None]

    def gradient(losses: list[paddle.Tensor]) -> np.ndarray:
        for loss in losses:
            loss.backward()
        found = adapter.encoder.embedding.grad
        assert found is not None
        copied = found.numpy().copy()
        adapter.encoder.clear_gradients()
        return copied

    apart = [model.loss(x, x).sum for x in (ids[:1], ids[1:, :4])]
    x, where, which = map(paddle.to_tensor, (packed, positions, documents))
    together = model.loss(x, x, where, which).sum
    assert float(together) == pytest.approx(sum(map(float, apart)), rel=1e-6)
    expected, found = gradient(apart), gradient([together])
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@FAMILIES
def test_generation_with_a_cache_is_generation_without(family: str, base: Base) -> None:
    model = base(family)
    prompts = [[5, 9, 23], [7], [11, 12, 13, 14, 15]]
    plain = generate_ids(model, prompts, 8, ())
    prefixed(model, spread=2.0)
    cached = generate_ids(model, prompts, 8, ())
    assert cached == generate_ids(model, prompts, 8, (), use_cache=False)
    assert cached == [generate_ids(model, [prompt], 8, ())[0] for prompt in prompts]
    assert cached != plain
    beams = generate_ids(model, prompts, 6, (), num_beams=3)
    assert beams == generate_ids(model, prompts, 6, (), num_beams=3, use_cache=False)


@FAMILIES
@PROJECTIONS
def test_saved_and_loaded_it_is_the_same(
    family: str, projection: int | None, base: Base, ids: paddle.Tensor, tmp_path: Path
) -> None:
    model = base(family)
    adapter = prefixed(model, projection)
    trainer.save_model(model, tmp_path)
    loaded = load_model(tmp_path, base=BASES[family])
    assert (loaded(ids).numpy() == model(ids).numpy()).all()
    assert loaded.trained_weights().keys() == adapter.weights().keys()


@FAMILIES
def test_the_file_is_pefts(family: str, base: Base, tmp_path: Path) -> None:
    model = base(family)
    adapter = prefixed(model, projection=12)
    trainer.save_model(model, tmp_path)
    config = model.config
    width = config.num_key_value_heads * config.head_dim
    file = SafetensorsFile(tmp_path / ADAPTER_WEIGHTS)
    assert {name: header.shape for name, header in file.headers.items()} == {
        PROMPT: (TOKENS, 2 * config.num_hidden_layers * width)
    }
    stored = file.read(PROMPT).reshape(TOKENS, config.num_hidden_layers, 2, width)
    for layer, (keys, values) in enumerate(adapter.pairs()):
        assert (stored[:, layer, 0] == keys.numpy()).all()
        assert (stored[:, layer, 1] == values.numpy()).all()
    settings = json.loads((tmp_path / ADAPTER_CONFIG).read_text())
    assert settings["peft_type"] == "PREFIX_TUNING"
    assert settings["token_dim"] == width
    assert settings["num_attention_heads"] == config.num_key_value_heads


def test_without_its_network_the_keys_and_values_are_trained_on(
    base: Base, ids: paddle.Tensor, tmp_path: Path
) -> None:
    model = base("bloom")
    prefixed(model, projection=12)
    trainer.save_model(model, tmp_path)
    (tmp_path / PREFIX_ENCODER).unlink()
    loaded = load_model(tmp_path, base=BASES["bloom"])
    assert loaded.trained_weights().keys() == {PROMPT}
    np.testing.assert_allclose(loaded(ids).numpy(), model(ids).numpy(), atol=1e-6)


def test_switched_off_it_is_the_base_model(base: Base, ids: paddle.Tensor) -> None:
    model = base("gemma")
    before = model(ids).numpy()
    adapter = prefixed(model)
    assert np.abs(model(ids).numpy() - before).max() > 0.01
    with adapter.disabled():
        assert (model(ids).numpy() == before).all()


def test_a_prefix_of_another_model_is_refused_with_both_sizes(base: Base, tmp_path: Path) -> None:
    model = base("gemma")
    prefixed(model)
    trainer.save_model(model, tmp_path)
    other = BASES["bloom"]
    with pytest.raises(DataError) as caught:
        load_model(tmp_path, base=other)
    assert {problem.loc[1] for problem in caught.value.problems} >= {"num_attention_heads", "token_dim"}


@pytest.mark.parametrize(
    ("projection", "field", "value"),
    [
        (None, "num_virtual_tokens", 10**9),
        (12, "encoder_hidden_size", 10**9),
        (12, "encoder_hidden_size", "x"),
    ],
)
def test_sizes_that_the_file_does_not_have_are_refused_before_memory_is_taken(
    base: Base, tmp_path: Path, projection: int | None, field: str, value: object
) -> None:
    model = base("gemma")
    prefixed(model, projection)
    trainer.save_model(model, tmp_path)
    path = tmp_path / ADAPTER_CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(DataError, match="expected"):
        load_model(tmp_path, base=BASES["gemma"])


@FAMILIES
def test_a_trained_prefix_continues_a_learned_pattern(family: str, base: Base) -> None:
    model = base(family)
    pattern = [11, 29, 7, 41]
    prompt = [[5, 17]]
    text = np.array([prompt[0] + pattern])
    labels = np.array([[-100, *pattern, -100]])
    assert generate_ids(model, prompt, 4, ()) != [pattern]
    adapter = add_prefix(model, 8, base="base")
    optimizer = paddle.optimizer.AdamW(3e-2, parameters=[adapter.encoder.embedding], weight_decay=0.0)
    model.train()
    for _ in range(400):
        loss = model.loss(paddle.to_tensor(text), paddle.to_tensor(labels)).sum
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if float(loss) < 0.4:
            break
    assert generate_ids(model, prompt, 4, ()) == [pattern]


def test_the_settings_know_their_base(base: Base) -> None:
    adapter = prefixed(base("gemma"))
    assert replace(adapter.settings, base=None).to_dict()["base_model_name_or_path"] is None
