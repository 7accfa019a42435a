import numpy as np
import paddle

from tests.trainer.ops.checks import gradient
from trainer.ops.packing import Packing

IDS = paddle.to_tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
MASK = paddle.to_tensor([[0, 1, 1], [1, 0, 0], [0, 0, 0]])


def test_without_a_mask_every_token_is_real():
    packing = Packing.of(IDS, None, None)
    assert packing.lengths == (3, 3, 3)
    assert packing.pack(IDS).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert packing.positions.tolist() == [0, 1, 2] * 3


def test_padding_on_either_side_is_left_out():
    packing = Packing.of(IDS, None, MASK)
    assert packing.lengths == (2, 1)
    assert packing.pack(IDS).tolist() == [2, 3, 4]
    assert packing.positions.tolist() == [1, 2, 0]


def test_given_positions_are_kept():
    packing = Packing.of(IDS, paddle.to_tensor([[0, 0, 1], [5, 6, 7], [0, 0, 0]]), MASK)
    assert packing.positions.tolist() == [0, 1, 5]


def test_unpacking_puts_tokens_back_and_zeros_at_padding():
    packing = Packing.of(IDS, None, MASK)
    back = packing.unpack(paddle.to_tensor([[2.0], [3.0], [4.0]]))
    assert back.squeeze(-1).tolist() == [[0, 2, 3], [4, 0, 0], [0, 0, 0]]


def test_gradients_flow_through_unpacking():
    packed = paddle.ones([3, 2])
    packed.stop_gradient = False
    out = np.arange(18, dtype=np.float32).reshape(3, 3, 2)
    Packing.of(IDS, None, MASK).unpack(packed).backward(paddle.to_tensor(out))
    assert (gradient(packed) == out.reshape(9, 2)[[1, 2, 3]]).all()
