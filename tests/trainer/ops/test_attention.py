from functools import partial
from typing import Any

import numpy as np
import paddle
import pytest

from tests.trainer.ops import naive
from tests.trainer.ops.checks import arrays, assert_deterministic, assert_frozen, assert_same, run
from trainer.ops import attention
from trainer.ops.attention import cached_attention, causal_attention
from trainer.ops.kv_cache import KVCache

HEADS = [(4, 1), (4, 2), (3, 3), (1, 1)]
LENGTHS = [(6,), (3, 3), (4, 1, 1, 3)]


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_it_follows_the_formula_and_its_gradients(lengths: tuple[int, ...], heads: int, kv_heads: int):
    head_dim, tokens = 2, sum(lengths)
    inputs = arrays((tokens, heads * head_dim), (tokens, kv_heads * head_dim), (tokens, kv_heads * head_dim))
    layout: dict[str, Any] = {"lengths": lengths, "heads": heads, "kv_heads": kv_heads}
    assert_same(partial(causal_attention, **layout), partial(naive.attention, **layout), inputs)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_blocks_of_queries_change_nothing(heads: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch):
    lengths, head_dim = (11, 11, 4), 3
    monkeypatch.setattr(attention, "QUERY_BLOCK", 4)
    tokens = sum(lengths)
    inputs = arrays((tokens, heads * head_dim), (tokens, kv_heads * head_dim), (tokens, kv_heads * head_dim))
    layout: dict[str, Any] = {"lengths": lengths, "heads": heads, "kv_heads": kv_heads}
    assert_same(partial(causal_attention, **layout), partial(naive.attention, **layout), inputs)


def test_documents_longer_than_a_block_agree_with_the_formula():
    lengths = (attention.QUERY_BLOCK * 2 + 5, 3)
    inputs = arrays((sum(lengths), 12), (sum(lengths), 6), (sum(lengths), 6))
    layout: dict[str, Any] = {"lengths": lengths, "heads": 2, "kv_heads": 1}
    result, *_ = run(partial(causal_attention, **layout), inputs, np.ones((sum(lengths), 12)))
    np.testing.assert_allclose(result, partial(naive.attention, **layout)(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_gets_no_gradient(frozen: int):
    operation = partial(causal_attention, lengths=(5,), heads=2, kv_heads=1)
    assert_frozen(operation, arrays((5, 4), (5, 2), (5, 2)), frozen)


def test_large_scores_do_not_overflow():
    inputs = [1e4 * x for x in arrays((5, 4), (5, 4), (5, 4))]
    layout: dict[str, Any] = {"lengths": (5,), "heads": 1, "kv_heads": 1}
    result, *gradients = run(partial(causal_attention, **layout), inputs, np.ones((5, 4)))
    assert np.isfinite(result).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_the_same_inputs_give_the_same_bits():
    lengths = (200, 200, 77)
    inputs = arrays((sum(lengths), 64), (sum(lengths), 16), (sum(lengths), 16))
    assert_deterministic(partial(causal_attention, lengths=lengths, heads=4, kv_heads=1), inputs)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_a_cache_filled_in_pieces_gives_the_same_as_the_whole(heads: int, kv_heads: int):
    batch, length, head_dim = 2, 7, 4
    q, k, v = arrays((batch, length, heads * head_dim), *[(batch, length, kv_heads * head_dim)] * 2)
    rows = [x.reshape(batch * length, -1) for x in (q, k, v)]
    whole = naive.attention(*rows, lengths=(length,) * batch, heads=heads, kv_heads=kv_heads)
    whole = whole.reshape(batch, length, -1)
    cache = KVCache(batch, 1, head_dim)
    for start, end in ((0, 4), (4, 5), (5, 7)):
        cache.extend(np.ones((batch, end - start), bool))
        pieces = [
            paddle.to_tensor(x[:, start:end].astype("float32")).reshape([-1, x.shape[2]]) for x in (q, k, v)
        ]
        out = cached_attention(*pieces, layer=0, cache=cache).reshape([batch, end - start, -1]).numpy()
        np.testing.assert_allclose(out, whole[:, start:end], rtol=1e-4, atol=1e-5)


def test_padding_in_a_cache_is_never_seen():
    q, k, v = arrays((1, 5, 4), (1, 5, 4), (1, 5, 4))
    alone = naive.attention(q[0, 2:], k[0, 2:], v[0, 2:], (3,), 2, 2)
    cache = KVCache(1, 1, 2)
    cache.extend(np.array([[False, False, True, True, True]]))
    out = cached_attention(
        *(paddle.to_tensor(x[0].astype("float32")) for x in (q, k, v)), layer=0, cache=cache
    )
    np.testing.assert_allclose(out.numpy()[2:], alone, rtol=1e-4, atol=1e-5)
