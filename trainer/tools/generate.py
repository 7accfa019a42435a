"""Greedy text generation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from trainer.models.base import CausalLM
    from trainer.tokenizers import Tokenizer


def generate(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    max_new_tokens: int = 64,
    *,
    batch_size: int = 8,
    use_cache: bool = True,
) -> list[str]:
    """Continue each prompt with the most likely token until an end token or `max_new_tokens`.

    Args:
        prompts: texts; each gets the tokenizer's beginning token in front.
        batch_size: prompts that run together; results do not depend on it.
        use_cache: keep keys and values of earlier tokens. Without, every step runs the whole text again: the
            same tokens, slowly.

    Returns:
        The new text of each prompt, without the prompt.
    """
    ids = [tokenizer.encode(prompt) for prompt in prompts]
    stops = stop_ids(model, tokenizer)
    texts: list[str] = []
    for start in range(0, len(ids), batch_size):
        new = generate_ids(model, ids[start : start + batch_size], max_new_tokens, stops, use_cache=use_cache)
        texts += [tokenizer.decode(tokens) for tokens in new]
    return texts


def stop_ids(model: CausalLM, tokenizer: Tokenizer) -> set[int]:
    """Tokens that end a text: the tokenizer's EOS and what generation_config.json or config.json name."""
    stops = {tokenizer.eos_id}
    for named in ((model.generation_config or {}).get("eos_token_id"), model.config.eos_token_id):
        stops.update(named if isinstance(named, list) else [named])
    return {token for token in stops if token is not None}


def generate_ids(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    stops: Collection[int],
    *,
    use_cache: bool = True,
) -> list[list[int]]:
    """Greedy continuation of token ids, one batch, without the stop token.

    Raises:
        ValueError: a prompt has no token.
    """
    if not all(prompts):
        raise ValueError("every prompt needs at least one token")
    was_training = model.training
    model.eval()
    try:
        return _greedy(_Batch(model, prompts, use_cache), len(prompts), max_new_tokens, stops)
    finally:
        if was_training:
            model.train()


def _greedy(batch: _Batch, rows: int, limit: int, stops: Collection[int]) -> list[list[int]]:
    new: list[list[int]] = [[] for _ in range(rows)]
    running = set(range(rows))
    for _ in range(limit):
        tokens = batch.next_tokens()
        running -= {row for row in running if int(tokens[row]) in stops}
        for row in running:
            new[row].append(int(tokens[row]))
        if not running:
            break
    return new


class _Batch:
    """Left-padded ids `[rows, columns]`, which of them are real, and how many columns the cache has seen."""

    def __init__(self, model: CausalLM, prompts: Sequence[Sequence[int]], use_cache: bool) -> None:
        columns = max(map(len, prompts))
        self._model = model
        self._cache = model.new_cache(len(prompts)) if use_cache else None
        self._seen = 0
        self._ids = np.zeros((len(prompts), columns), np.int64)
        self._real = np.zeros((len(prompts), columns), bool)
        for row, prompt in enumerate(prompts):
            self._ids[row, columns - len(prompt) :] = prompt
            self._real[row, columns - len(prompt) :] = True

    def next_tokens(self) -> np.ndarray:
        """The most likely next token of each row, which becomes a new column."""
        positions = np.maximum(np.cumsum(self._real, axis=1) - 1, 0)  # padding does not count
        new = slice(self._seen, None)
        logits = self._model.next_logits(
            self._ids[:, new], positions[:, new], self._real[:, new], self._cache
        )
        if self._cache is not None:
            self._seen = self._ids.shape[1]
        tokens = logits.argmax(axis=-1).numpy()
        self._ids = np.concatenate([self._ids, tokens[:, None]], axis=1)
        self._real = np.concatenate([self._real, np.ones((len(tokens), 1), bool)], axis=1)
        return tokens
