"""Greedy text generation."""

from collections.abc import Collection, Sequence

import numpy as np
import paddle

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


@paddle.no_grad()
def generate_ids(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    stops: Collection[int],
    *,
    use_cache: bool = True,
) -> list[list[int]]:
    """Greedy continuation of a batch of token ids, padded on the left. The stop token is not part of the
    result.

    Raises:
        ValueError: a prompt has no token.
    """
    if not all(prompts):
        raise ValueError("every prompt needs at least one token")
    was_training = model.training
    model.eval()
    try:
        step = _Cached(model, prompts) if use_cache else _Uncached(model, prompts)
        return _greedy(step, len(prompts), max_new_tokens, stops)
    finally:
        if was_training:
            model.train()


def _greedy(step: "_Cached | _Uncached", rows: int, limit: int, stops: Collection[int]) -> list[list[int]]:
    new: list[list[int]] = [[] for _ in range(rows)]
    running = set(range(rows))
    while running and limit:
        limit -= 1
        tokens = step.next_tokens()
        running -= {row for row in running if int(tokens[row]) in stops}
        for row in running:
            new[row].append(int(tokens[row]))
        step.append(tokens)
    return new


class _Batch:
    """Left-padded ids `[rows, columns]`, which of them are real, and the position of each: padding does not
    count.
    """

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        columns = max(map(len, prompts))
        self.ids = np.zeros((len(prompts), columns), np.int64)
        self.real = np.zeros((len(prompts), columns), bool)
        for row, prompt in enumerate(prompts):
            self.ids[row, columns - len(prompt) :] = prompt
            self.real[row, columns - len(prompt) :] = True

    @property
    def positions(self) -> np.ndarray:
        return np.maximum(np.cumsum(self.real, axis=1) - 1, 0)

    def append(self, tokens: np.ndarray) -> None:
        self.ids = np.concatenate([self.ids, tokens[:, None]], axis=1)
        self.real = np.concatenate([self.real, np.ones((len(tokens), 1), bool)], axis=1)


class _Cached:
    """Runs only the columns that the cache has not seen."""

    def __init__(self, model: CausalLM, prompts: Sequence[Sequence[int]]) -> None:
        self._model, self._batch = model, _Batch(prompts)
        self._cache = model.new_cache(len(prompts))
        self._seen = 0

    def next_tokens(self) -> np.ndarray:
        batch, seen = self._batch, self._seen
        logits = self._model.next_logits(
            paddle.to_tensor(batch.ids[:, seen:]),
            batch.positions[:, seen:],
            batch.real[:, seen:],
            self._cache,
        )
        self._seen = batch.ids.shape[1]
        return logits.argmax(axis=-1).numpy()

    def append(self, tokens: np.ndarray) -> None:
        self._batch.append(tokens)


class _Uncached:
    """Runs everything again in every step."""

    def __init__(self, model: CausalLM, prompts: Sequence[Sequence[int]]) -> None:
        self._model, self._batch = model, _Batch(prompts)

    def next_tokens(self) -> np.ndarray:
        batch = self._batch
        logits = self._model(
            paddle.to_tensor(batch.ids),
            paddle.to_tensor(batch.positions),
            paddle.to_tensor(batch.real.astype(np.int64)),
        )
        return logits[:, -1].argmax(axis=-1).numpy()

    def append(self, tokens: np.ndarray) -> None:
        self._batch.append(tokens)
