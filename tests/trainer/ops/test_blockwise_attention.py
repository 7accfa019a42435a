from functools import partial
from typing import Any

import numpy as np
import paddle
import pytest

from tests.trainer.ops import naive
from tests.trainer.ops.checks import arrays, assert_deterministic, assert_frozen, assert_same, run
from trainer.ops import blockwise_attention as module
from trainer.ops.alibi import Alibi, alibi_slopes
from trainer.ops.blockwise_attention import blockwise_attention
from trainer.ops.packing import Packing

HEADS = [(4, 1), (4, 2), (3, 3), (1, 1), (6, 2)]
LENGTHS = [(6,), (3, 3), (4, 1, 1, 3)]
# Counting on from one document to the next, far from the origin, with a gap, and two that share a prompt.
POSITIONS = {
    "restarting": [0, 1, 2, 3, 0, 0, 0, 1, 2],
    "running on": list(range(9)),
    "far away": [5000, 5001, 5002, 5003, 700, 9, 0, 1, 2],
    "with gaps": [0, 1, 5, 6, 3, 0, 2, 2, 9],
}


def plain(lengths: tuple[int, ...], heads: int, kv_heads: int, dropout: float = 0.0) -> partial:
    return partial(
        blockwise_attention, lengths=lengths, heads=heads, kv_heads=kv_heads, alibi=None, dropout=dropout
    )


def biased(lengths: tuple[int, ...], heads: int, kv_heads: int, positions: np.ndarray) -> partial:
    alibi = Alibi(alibi_slopes(heads), positions)
    return partial(
        blockwise_attention, lengths=lengths, heads=heads, kv_heads=kv_heads, alibi=alibi, dropout=0.0
    )


def inputs_for(tokens: int, heads: int, kv_heads: int, head_dim: int = 2) -> list[np.ndarray]:
    kv_width = kv_heads * head_dim
    return arrays((tokens, heads * head_dim), (tokens, kv_width), (tokens, kv_width))


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_it_follows_the_formula_and_its_gradients(lengths: tuple[int, ...], heads: int, kv_heads: int):
    layout: dict[str, Any] = {"lengths": lengths, "heads": heads, "kv_heads": kv_heads}
    inputs = inputs_for(sum(lengths), heads, kv_heads)
    assert_same(plain(lengths, heads, kv_heads), partial(naive.attention, **layout), inputs)


@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (5, 5), (4, 1), (6, 2)])
@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS.keys())
def test_with_linear_biases_it_follows_the_formula_at_any_positions(
    positions: list[int], heads: int, kv_heads: int
):
    lengths, where = (4, 1, 1, 3), np.array(positions)
    layout: dict[str, Any] = {"lengths": lengths, "heads": heads, "kv_heads": kv_heads, "positions": where}
    inputs = inputs_for(9, heads, kv_heads)
    assert_same(biased(lengths, heads, kv_heads, where), partial(naive.attention, **layout), inputs)


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_blocks_of_queries_change_nothing(
    heads: int, kv_heads: int, alibi: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "QUERY_BLOCK", 3)
    lengths = (7, 7, 2)
    positions = np.concatenate([np.arange(7), np.arange(7) + 3, np.arange(2)])
    inputs = inputs_for(sum(lengths), heads, kv_heads)
    layout: dict[str, Any] = {"lengths": lengths, "heads": heads, "kv_heads": kv_heads}
    if alibi:
        operation = biased(lengths, heads, kv_heads, positions)
        layout["positions"] = positions
    else:
        operation = plain(lengths, heads, kv_heads)
    assert_same(operation, partial(naive.attention, **layout), inputs)


@pytest.mark.parametrize("alibi", [False, True])
def test_documents_longer_than_a_block_agree_with_the_formula(alibi: bool):
    lengths = (module.QUERY_BLOCK * 2 + 5, 3)
    tokens = sum(lengths)
    positions = np.concatenate([np.arange(length) for length in lengths])
    inputs = inputs_for(tokens, 2, 1, 6)
    operation = biased(lengths, 2, 1, positions) if alibi else plain(lengths, 2, 1)
    result, *_ = run(operation, inputs, np.ones((tokens, 12)))
    where = positions if alibi else None
    expected = naive.attention(*inputs, lengths=lengths, heads=2, kv_heads=1, positions=where)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("alibi", [False, True])
def test_padding_takes_no_part(alibi: bool, side: str):
    """Values and gradients of a padded batch are those of each row alone, and zero at padding."""
    lengths, sequence, heads = (3, 5, 2), 5, 3
    real = np.zeros((3, sequence), np.int64)
    for row, length in enumerate(lengths):
        real[row, slice(sequence - length, None) if side == "left" else slice(length)] = 1
    packing = Packing.of(paddle.zeros([3, sequence], "int64"), None, paddle.to_tensor(real))
    inputs = inputs_for(3 * sequence, heads, heads)
    operation = biased(lengths, heads, heads, packing.positions) if alibi else plain(lengths, heads, heads)

    kept = np.flatnonzero(real)
    index = paddle.to_tensor(kept)

    def padded(*tensors: paddle.Tensor) -> paddle.Tensor:
        out = operation(*(paddle.gather(tensor, index) for tensor in tensors))
        return packing.unpack(out).reshape([3 * sequence, -1])

    def expected(*values: np.ndarray) -> np.ndarray:
        out = np.zeros_like(values[0])
        where = packing.positions if alibi else None
        packed = [x[kept] for x in values]
        out[kept] = naive.attention(*packed, lengths=lengths, heads=heads, kv_heads=heads, positions=where)
        return out

    assert_same(padded, expected, inputs)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_gets_no_gradient(frozen: int):
    assert_frozen(plain((5,), 2, 1), arrays((5, 4), (5, 2), (5, 2)), frozen)


def test_large_scores_do_not_overflow():
    inputs = [1e4 * x for x in arrays((5, 4), (5, 4), (5, 4))]
    result, *gradients = run(plain((5,), 1, 1), inputs, np.ones((5, 4)))
    assert np.isfinite(result).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_not_hidden_by_softmax(broken: int, value: float):
    inputs = inputs_for(12, 2, 2)
    inputs[broken][0, 0] = value
    result, *_ = run(plain((12,), 2, 2), inputs, np.ones((12, 4)))
    assert not np.isfinite(result[:, 0]).any()


@pytest.mark.parametrize("alibi", [False, True])
def test_the_same_inputs_give_the_same_bits(alibi: bool):
    lengths = (200, 200, 77)
    tokens = sum(lengths)
    positions = np.arange(tokens)
    operation = biased(lengths, 4, 1, positions) if alibi else plain(lengths, 4, 1)
    assert_deterministic(operation, arrays((tokens, 64), (tokens, 16), (tokens, 16)))


def test_where_a_document_lies_and_what_lies_around_it_changes_no_bit():
    inputs = inputs_for(12, 3, 3)
    alone = [x[4:9] for x in inputs]
    around = np.array([7, 8, 9, 10, 0, 1, 2, 3, 4, 0, 1, 2])
    whole, *_ = run(biased((4, 5, 3), 3, 3, around), inputs, np.ones((12, 6)))
    part, *_ = run(biased((5,), 3, 3, np.arange(5) + 100), alone, np.ones((5, 6)))
    np.testing.assert_array_equal(whole[4:9], part)


def drawn(lengths: tuple[int, ...], rate: float, seed: int) -> np.ndarray:
    """What one head's weights are multiplied by: `[1, tokens, tokens]`."""
    (length,) = lengths
    paddle.seed(seed)
    zeros, values = np.zeros((length, length)), np.eye(length)
    out, *_ = run(plain(lengths, 1, 1, rate), [zeros, zeros, values], np.ones((length, length)))
    return (out * np.arange(1, length + 1)[:, None])[None]


def test_dropout_takes_its_share_of_the_weights_and_scales_the_others():
    kept = drawn((64,), 0.25, seed=3)[0]
    used = kept[np.tril_indices(64)]
    np.testing.assert_allclose(np.unique(used.round(4)), [0.0, 1.3333], atol=1e-4)
    assert abs((used == 0).mean() - 0.25) < 0.05


def test_with_dropout_it_follows_the_formula_and_its_gradients():
    lengths, rate = (7,), 0.5
    kept = drawn(lengths, rate, seed=11).round(5)
    operation = plain(lengths, 1, 1, rate)

    def seeded(*tensors: paddle.Tensor) -> paddle.Tensor:
        paddle.seed(11)
        return operation(*tensors)

    formula = partial(naive.attention, lengths=lengths, heads=1, kv_heads=1, kept=kept)
    assert_same(seeded, formula, inputs_for(7, 1, 1))
