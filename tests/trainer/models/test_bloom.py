"""What BLOOM does beside the numbers that transformers gives (test_golden.py)."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file

from tests.trainer.ops.checks import gradient
from trainer.models import CausalLM, load_model, new_model, save_model
from trainer.models.bloom.configuration import BloomConfig
from trainer.ops.alibi import alibi_slopes

IDS = paddle.to_tensor(np.random.default_rng(0).integers(4, 50, (2, 9)))


def config(**more: Any) -> BloomConfig:
    sizes = {"vocab_size": 50, "hidden_size": 24, "n_layer": 2, "n_head": 3}
    return BloomConfig.from_dict({**sizes, **more})


def loss(model: CausalLM, **masks: paddle.Tensor) -> paddle.Tensor:
    labels = paddle.concat([IDS[:, 1:], paddle.full([2, 1], -100, "int64")], axis=1)
    return model.loss(IDS, labels, **masks).sum


def test_fresh_weights_are_drawn_norms_are_one_and_biases_zero():
    model = new_model(config(initializer_range=0.1, hidden_size=96))
    for name, weight in model.parameter_names().items():
        values = weight.parameter.numpy()
        if values.ndim == 2:
            assert abs(values.std() - 0.1) < 0.01, name
        else:
            is_scale = name.endswith(("layernorm.weight", "ln_f.weight"))
            assert (values == float(is_scale)).all(), name


def test_a_model_built_from_a_configuration_learns():
    model = new_model(config())
    model.train()
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    for _ in range(30):
        value = loss(model)
        value.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(value))
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("name", ["hidden_dropout", "attention_dropout"])
def test_dropout_acts_in_training_only_and_follows_the_seed(name: str):
    model, plain = new_model(config(**{name: 0.3})), new_model(config())

    def trained(seed: int) -> float:
        model.train()
        paddle.seed(seed)
        return float(loss(model))

    assert trained(1) == trained(1) != trained(2)
    model.eval()
    assert float(loss(model)) == float(loss(plain))


def test_gradients_with_dropout_are_the_same_bits_for_the_same_seed():
    model = new_model(config(hidden_dropout=0.2, attention_dropout=0.2))
    model.train()

    def gradients() -> list[bytes]:
        model.clear_gradients()
        paddle.seed(5)
        loss(model).backward()
        return [gradient(parameter).tobytes() for parameter in model.parameters()]

    assert gradients() == gradients()


def test_only_distances_between_positions_matter():
    model = new_model(config(initializer_range=0.3))
    positions = paddle.tile(paddle.arange(9).reshape([1, 9]), [2, 1])
    expected = model(IDS).numpy()
    np.testing.assert_array_equal(model(IDS, position_ids=positions + 1000).numpy(), expected)
    stretched = model(IDS, position_ids=positions * 3).numpy()
    assert np.abs(stretched - expected).max() > 1e-3


def test_a_response_after_a_shared_prompt_is_at_the_distance_its_positions_say():
    """Two answers in one row: what positions restart for is the same as the answer following the prompt."""
    model = new_model(config(initializer_range=0.3))
    near = paddle.to_tensor([[0, 1, 2, 3, 4, 3, 4, 5, 6]])
    far = paddle.to_tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8]])
    first, second = (model(IDS[:1], position_ids=where).numpy()[0] for where in (near, far))
    np.testing.assert_allclose(first[:5], second[:5], rtol=1e-4, atol=1e-5)
    assert np.abs(first[5:] - second[5:]).max() > 1e-3


def test_a_square_matrix_is_turned_on_its_way_to_disk(tmp_path: Path):
    model = new_model(config())
    save_model(model, tmp_path)
    name = "transformer.h.1.self_attention.dense.weight"
    stored = load_file(tmp_path / "model.safetensors")[name]
    np.testing.assert_array_equal(stored.T, model.parameter_names()[name].parameter.numpy())
    loaded = load_model(tmp_path).parameter_names()
    for name, weight in model.parameter_names().items():
        np.testing.assert_array_equal(loaded[name].parameter.numpy(), weight.parameter.numpy())


def test_query_key_and_value_lie_head_by_head():
    """Moving a head's rows of the fused matrix, and its columns of the output matrix, moves nothing else."""
    names = [f"transformer.h.{layer}.self_attention" for layer in range(2)]
    model, moved = (new_model(config(n_head=4, initializer_range=0.3)) for _ in range(2))
    order = np.array([1, 0, 3, 2])
    moved.alibi_slopes = alibi_slopes(4)[order]
    weights = moved.parameter_names()
    for name in names:
        fused, dense = weights[f"{name}.query_key_value.weight"], weights[f"{name}.dense.weight"]
        rows = fused.turned(fused.parameter).numpy().reshape(4, 3 * 6, 24)[order].reshape(72, 24)
        fused.fill(paddle.to_tensor(rows))
        columns = dense.turned(dense.parameter).numpy().reshape(24, 4, 6)[:, order].reshape(24, 24)
        dense.fill(paddle.to_tensor(columns))
    np.testing.assert_allclose(moved(IDS).numpy(), model(IDS).numpy(), rtol=1e-4, atol=1e-5)
