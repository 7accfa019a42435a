import numpy as np
import paddle

from trainer.ops.packing import Packing


def test_numbered_documents_of_a_row_are_separate() -> None:
    documents = paddle.to_tensor([[0, 1, 1, 2], [1, 2, 2, 3], [0, 0, 0, 0]])
    ids = paddle.to_tensor(np.arange(12).reshape(3, 4))
    packing = Packing.of(ids, documents * 0, documents)
    assert packing.lengths == (2, 1, 1, 2, 1)
    assert packing.pack(ids).tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_full_rows_of_several_documents_are_separate_too() -> None:
    documents = paddle.to_tensor([[1, 1, 2], [1, 1, 1]])
    packing = Packing.of(documents, None, documents)
    assert packing.lengths == (2, 1, 3)
    assert packing.index is None
