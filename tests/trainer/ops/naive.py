"""The formulas as they stand in the papers, in float64 numpy, and gradients by central differences."""

from collections.abc import Callable

import numpy as np


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * (1 + weight)


def rotate(x: np.ndarray, positions: np.ndarray, head_dim: int, theta: float) -> np.ndarray:
    half = head_dim // 2
    heads = x.reshape(len(x), -1, head_dim)
    angle = positions[:, None] * theta ** (-2.0 * np.arange(half) / head_dim)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = heads[..., :half], heads[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def alibi_slopes(heads: int) -> np.ndarray:
    """As the paper's own code builds them: every other slope of twice the power of two fills up."""
    power = 2 ** int(np.floor(np.log2(heads)))
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    slopes += [2.0 ** (-8.0 * (head + 1) / (2 * power)) for head in range(0, 2 * (heads - power), 2)]
    return np.array(slopes)


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    lengths: tuple[int, ...],
    heads: int,
    kv_heads: int,
    positions: np.ndarray | None = None,
    kept: np.ndarray | None = None,
) -> np.ndarray:
    """Token by token and head by head; with positions, biased by the distance from key to query.

    kept: `[heads, tokens, tokens]`, what the weights are multiplied by.
    """
    head_dim = q.shape[1] // heads
    out = np.zeros_like(q)
    start = 0
    for length in lengths:
        for token in range(start, start + length):
            for head in range(heads):
                shared = head // (heads // kv_heads)
                mine, theirs = (slice(n * head_dim, (n + 1) * head_dim) for n in (head, shared))
                seen = slice(start, token + 1)
                scores = k[seen, theirs] @ q[token, mine] / np.sqrt(head_dim)
                if positions is not None:
                    scores = scores + alibi_slopes(heads)[head] * (positions[seen] - positions[token])
                weights = softmax(scores)
                if kept is not None:
                    weights = weights * kept[head, token, seen]
                out[token, mine] = weights @ v[seen, theirs]
        start += length
    return out


def geglu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up


def cross_entropy_sum(hidden: np.ndarray, weight: np.ndarray, labels: np.ndarray) -> np.ndarray:
    logits = hidden @ weight.T
    losses = [-np.log(softmax(logits[row])[label]) for row, label in enumerate(labels) if label >= 0]
    return np.array(sum(losses))


def gradient(
    function: Callable[..., np.ndarray], arguments: list[np.ndarray], which: int, out: np.ndarray
) -> np.ndarray:
    """d sum(function(*arguments) * out) / d arguments[which]."""
    step = 1e-5
    result = np.zeros_like(arguments[which])
    for place in np.ndindex(result.shape):
        values = []
        for sign in (1, -1):
            moved = [argument.copy() for argument in arguments]
            moved[which][place] += sign * step
            values.append((function(*moved) * out).sum())
        result[place] = (values[0] - values[1]) / (2 * step)
    return result
