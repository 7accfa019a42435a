import numpy as np
import paddle
import pytest

from tests.trainer.ops import naive
from tests.trainer.ops.checks import arrays
from trainer.ops.alibi import Alibi, alibi_slopes
from trainer.ops.attention import Kernel, cached_attention, causal_attention, choose
from trainer.ops.kv_cache import KVCache

HEADS = [(4, 1), (4, 2), (3, 3), (1, 1)]


@pytest.mark.parametrize(
    ("flash", "lengths", "alibi", "dropout", "kernel"),
    [
        (True, (8, 8), False, 0.0, Kernel.FLASH),
        (True, (8,), False, 0.0, Kernel.FLASH),
        (True, (8, 3), False, 0.0, Kernel.FLASHMASK),
        (True, (8, 8), True, 0.0, Kernel.BLOCKWISE),
        (True, (8, 3), True, 0.0, Kernel.BLOCKWISE),
        (True, (8, 8), False, 0.1, Kernel.BLOCKWISE),
        (False, (8, 8), False, 0.0, Kernel.BLOCKWISE),
        (False, (8, 3), True, 0.1, Kernel.BLOCKWISE),
    ],
)
def test_the_kernel_follows_device_documents_biases_and_dropout(
    flash: bool, lengths: tuple[int, ...], alibi: bool, dropout: float, kernel: Kernel
):
    assert choose(flash, lengths, alibi, dropout) is kernel


@pytest.mark.parametrize("alibi", [False, True])
def test_on_cpu_it_follows_the_formula(alibi: bool):
    q, k, v = arrays((6, 8), (6, 4), (6, 4))
    positions = np.array([0, 1, 2, 3, 0, 1])
    bias = Alibi(alibi_slopes(4), positions) if alibi else None
    tensors = [paddle.to_tensor(x.astype("float32")) for x in (q, k, v)]
    out = causal_attention(*tensors, lengths=(4, 2), heads=4, kv_heads=2, alibi=bias).numpy()
    expected = naive.attention(q, k, v, (4, 2), 4, 2, positions if alibi else None)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_a_cache_filled_in_pieces_gives_the_same_as_the_whole(heads: int, kv_heads: int, alibi: bool):
    batch, length, head_dim = 2, 7, 4
    q, k, v = arrays((batch, length, heads * head_dim), *[(batch, length, kv_heads * head_dim)] * 2)
    rows = [x.reshape(batch * length, -1) for x in (q, k, v)]
    positions = np.stack([np.arange(length), np.arange(length) + 4])
    where = positions.reshape(-1) if alibi else None
    lengths = (length,) * batch
    whole = naive.attention(*rows, lengths=lengths, heads=heads, kv_heads=kv_heads, positions=where)
    whole = whole.reshape(batch, length, -1)
    cache = KVCache(batch, 1, head_dim, alibi_slopes(heads) if alibi else None)
    for start, end in ((0, 4), (4, 5), (5, 7)):
        cache.extend(np.ones((batch, end - start), bool), positions[:, start:end])
        pieces = [
            paddle.to_tensor(x[:, start:end].astype("float32")).reshape([-1, x.shape[2]]) for x in (q, k, v)
        ]
        out = cached_attention(*pieces, layer=0, cache=cache).reshape([batch, end - start, -1]).numpy()
        np.testing.assert_allclose(out, whole[:, start:end], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("alibi", [False, True])
def test_padding_in_a_cache_is_never_seen(alibi: bool):
    q, k, v = arrays((1, 5, 4), (1, 5, 4), (1, 5, 4))
    where = np.arange(3) if alibi else None
    alone = naive.attention(q[0, 2:], k[0, 2:], v[0, 2:], (3,), 2, 2, where)
    cache = KVCache(1, 1, 2, alibi_slopes(2) if alibi else None)
    cache.extend(np.array([[False, False, True, True, True]]), np.array([[0, 0, 0, 1, 2]]))
    out = cached_attention(
        *(paddle.to_tensor(x[0].astype("float32")) for x in (q, k, v)), layer=0, cache=cache
    )
    np.testing.assert_allclose(out.numpy()[2:], alone, rtol=1e-4, atol=1e-5)


def test_a_cache_goes_on_with_the_rows_that_are_selected():
    q, k, v = arrays((2, 4, 4), (2, 4, 4), (2, 4, 4))
    order = np.array([1, 1, 0])
    cache = KVCache(2, 1, 2, alibi_slopes(2))
    positions = np.array([[0, 1, 2], [3, 4, 5]])
    first = [paddle.to_tensor(x[:, :3].reshape(6, 4).astype("float32")) for x in (q, k, v)]
    cache.extend(np.ones((2, 3), bool), positions)
    cached_attention(*first, layer=0, cache=cache)
    cache.select(order)
    cache.extend(np.ones((3, 1), bool), positions[order, -1:] + 1)
    last = [paddle.to_tensor(x[order, 3].astype("float32")) for x in (q, k, v)]
    out = cached_attention(*last, layer=0, cache=cache).numpy()
    for row, source in enumerate(order):
        where = np.arange(4)
        whole = naive.attention(q[source], k[source], v[source], (4,), 2, 2, where)
        np.testing.assert_allclose(out[row], whole[-1], rtol=1e-4, atol=1e-5)
