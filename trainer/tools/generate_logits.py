"""From logits to the next token: penalties, filters and draws. Arrays are numpy's, one row per sequence."""

from collections.abc import Sequence

import numpy as np

from trainer.tools.generate_options import GenerateOptions


def penalized(scores: np.ndarray, texts: Sequence[np.ndarray], penalty: float) -> np.ndarray:
    """Make the tokens of each row's text less likely.

    Args:
        scores: `[rows, vocabulary]`, logits or log-probabilities.
        texts: the token ids of each row.
        penalty: negative scores are multiplied by it, others divided.
    """
    if penalty == 1.0:
        return scores
    scores = scores.copy()
    for row, text in enumerate(texts):
        seen = np.unique(text)
        values = scores[row, seen]
        scores[row, seen] = np.where(values < 0, values * penalty, values / penalty)
    return scores


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Log-probabilities along the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def probabilities(logits: np.ndarray, options: GenerateOptions) -> np.ndarray:
    """What is drawn from: temperature, then top-k, then top-p.

    Args:
        logits: `[vocabulary]`.

    Returns:
        float64 `[vocabulary]`; tokens that were filtered out have probability 0.
    """
    scores = logits.astype(np.float64) / options.temperature
    if 0 < options.top_k < scores.size:
        least = np.partition(scores, -options.top_k)[-options.top_k]
        scores = np.where(scores < least, -np.inf, scores)
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    return _nucleus(chances, options.top_p) if options.top_p < 1 else chances


def draw(chances: np.ndarray, generator: np.random.Generator) -> int:
    """One token by its probability."""
    ladder = np.cumsum(chances)
    token = np.searchsorted(ladder, generator.random() * ladder[-1], side="right")
    return int(min(token, np.flatnonzero(chances)[-1]))


def _nucleus(chances: np.ndarray, top_p: float) -> np.ndarray:
    """The likeliest tokens that together reach `top_p`, at least one (Holtzman et al., arXiv 1904.09751)."""
    order = np.argsort(chances, kind="stable")
    tail = np.cumsum(chances[order]) <= 1 - top_p
    tail[-1] = False
    kept = chances.copy()
    kept[order[tail]] = 0
    return kept / kept.sum()
