"""Branches of a document see their trunk and themselves, in any kernel."""

import numpy as np
import paddle
import pytest

from trainer.ops.attention import causal_attention
from trainer.ops.branches import BranchedDocuments

HEADS, HEAD_DIM = 2, 4
LENGTHS = (7, 3, 6)
#: The second document has a trunk only, the third no trunk.
BRANCHES = np.array([0, 0, 0, 1, 1, 2, 2, 0, 0, 0, 1, 1, 1, 2, 2, 3])
POSITIONS = np.array([0, 1, 2, 3, 4, 3, 4, 0, 1, 2, 0, 1, 2, 0, 1, 0])


def visible() -> np.ndarray:
    """Which keys (columns) each query (row) sees."""
    document = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    order = np.arange(len(document))
    same = (document[:, None] == document) & (order[:, None] >= order)
    return same & ((BRANCHES == 0) | (BRANCHES[:, None] == BRANCHES))


def dense(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Float64 attention with the whole mask."""
    out = np.zeros_like(q, dtype=np.float64)
    for head in range(HEADS):
        part = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        scores = np.where(visible(), q[:, part] @ k[:, part].T / np.sqrt(HEAD_DIM), -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, part] = weights / weights.sum(axis=1, keepdims=True) @ v[:, part]
    return out


@pytest.fixture
def qkv() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(size=(sum(LENGTHS), HEADS * HEAD_DIM)).astype(np.float32) for _ in range(3)]


def test_attention_is_that_of_the_whole_mask(qkv: list[np.ndarray]) -> None:
    documents = BranchedDocuments.of(LENGTHS, POSITIONS, BRANCHES)
    attend = documents.attention(
        lambda q, k, v, layer: causal_attention(q, k, v, documents.lengths, HEADS, HEADS)
    )
    q, k, v = map(paddle.to_tensor, qkv)
    found = attend(q, k, v, 0)
    np.testing.assert_allclose(found.numpy(), dense(*qkv), atol=1e-6)


def test_every_branch_is_a_document_with_the_trunk_in_front() -> None:
    documents = BranchedDocuments.of(LENGTHS, POSITIONS, BRANCHES)
    assert documents.lengths == (5, 5, 3, 3, 2, 1)
    assert documents.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 0, 1, 0]
