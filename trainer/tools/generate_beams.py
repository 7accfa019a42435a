"""Beam search as transformers defines it: the same scores, the same rule of when to end.

For every prompt `beams` sequences run. Each step looks at their best continuations: those that end compete
with the finished sequences by score / length ** length_penalty, the best of the others run on.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from trainer.tools.generate_batch import Batch
from trainer.tools.generate_logits import log_softmax, penalized
from trainer.tools.generate_options import GenerateOptions

# Added to the score of what may not be chosen.
_NEVER = np.float32(-1e9)


@dataclass
class _Continuations:
    """The best continuations of each prompt, best first; all arrays `[prompts, kept]`."""

    scores: np.ndarray
    beams: np.ndarray
    tokens: np.ndarray
    ended: np.ndarray


class _Finished:
    """The best finished sequences of each prompt, best first."""

    def __init__(self, prompts: int, options: GenerateOptions) -> None:
        beams = options.num_beams
        self._options = options
        self.sequences: list[list[list[int]]] = [[[] for _ in range(beams)] for _ in range(prompts)]
        self.scores = np.full((prompts, beams), _NEVER, np.float32)
        self.whole = np.zeros((prompts, beams), bool)
        self.improvable = np.ones(prompts, bool)

    @property
    def full(self) -> np.ndarray:
        """bool `[prompts]`: as many finished sequences as wanted, and that is enough."""
        enough = self._options.early_stopping is True
        return np.all(self.whole, axis=1) & np.full(len(self.whole), enough)

    def take(self, found: _Continuations, running: list[list[list[int]]], length: int) -> None:
        """Let the continuations that end compete; only the first `num_beams` of each prompt may."""
        kept = found.ended.shape[1]
        beams = self._options.num_beams
        ends = found.ended & (np.arange(kept) < beams)
        scores = found.scores / np.float32(length**self._options.length_penalty)
        scores = scores + (self.full | ~self.improvable)[:, None] * _NEVER + ~ends * _NEVER
        merged = np.concatenate([self.scores, scores], axis=1)
        whole = np.concatenate([self.whole, ends], axis=1)
        best = _best(merged, beams)
        for prompt, places in enumerate(best):
            old = self.sequences[prompt]
            self.sequences[prompt] = [
                old[place]
                if place < beams
                else [
                    *running[prompt][found.beams[prompt, place - beams]],
                    int(found.tokens[prompt, place - beams]),
                ]
                for place in places
            ]
        self.scores = np.take_along_axis(merged, best, axis=1)
        self.whole = np.take_along_axis(whole, best, axis=1)

    def look_ahead(self, best_running: np.ndarray, length: int) -> None:
        """Note for which prompts a running sequence may still beat a finished one: scores `[prompts]`."""
        options = self._options
        if options.early_stopping == "never" and options.length_penalty > 0:
            length = options.max_new_tokens
        possible = best_running / np.float32(length**options.length_penalty)
        worst = np.where(self.whole, self.scores.min(axis=1, keepdims=True), _NEVER)
        self.improvable &= (possible[:, None] > worst).any(axis=1)


def search_beams(
    batch: Batch, prompts: int, stops: Collection[int], options: GenerateOptions
) -> list[list[int]]:
    """The best continuation of each prompt, its stop token included when it has one.

    Args:
        batch: holds one row for each prompt.
        stops: tokens that end a sequence.
    """
    beams = options.num_beams
    finished = _Finished(prompts, options)
    running: list[list[list[int]]] = [[[] for _ in range(beams)] for _ in range(prompts)]
    scores = np.full((prompts, beams), _NEVER, np.float32)
    scores[:, 0] = 0  # all beams are alike at first, so only one of them counts
    every = np.repeat(np.arange(prompts), beams)
    for length in range(1, options.max_new_tokens + 1):
        logits = batch.logits()
        if length == 1:
            batch.select(every)
            logits = logits[every]
        steps = penalized(log_softmax(logits), batch.texts(), options.repetition_penalty)
        totals = steps.reshape(prompts, beams, -1) + scores[:, :, None]
        found = _continuations(totals, stops, last=length == options.max_new_tokens)
        finished.take(found, running, length)
        going = found.scores + found.ended * _NEVER
        best = _best(going, beams)
        scores = np.take_along_axis(going, best, axis=1)
        parents = np.take_along_axis(found.beams, best, axis=1)
        tokens = np.take_along_axis(found.tokens, best, axis=1)
        running = [
            [[*running[prompt][parents[prompt, beam]], int(tokens[prompt, beam])] for beam in range(beams)]
            for prompt in range(prompts)
        ]
        finished.look_ahead(scores[:, 0], length)
        if found.ended.all() or finished.full.all() or not finished.improvable.any():
            break
        batch.select(every * beams + parents.reshape(-1))
        batch.append(tokens.reshape(-1))
    return [sequences[0] for sequences in finished.sequences]


def _continuations(totals: np.ndarray, stops: Collection[int], last: bool) -> _Continuations:
    """The best continuations: so many that `beams` of them go on whatever ends.

    Args:
        totals: scores of all continuations, `[prompts, beams, vocabulary]`.
        last: whether every continuation ends, because there is no room for more.
    """
    prompts, beams, vocabulary = totals.shape
    flat = totals.reshape(prompts, -1)
    kept = min(max(2, 1 + len(stops)) * beams, flat.shape[1])
    best = _best(flat, kept)
    tokens = best % vocabulary
    ended = np.isin(tokens, list(stops)) | last
    return _Continuations(np.take_along_axis(flat, best, axis=1), best // vocabulary, tokens, ended)


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    """Places of the highest scores of each row, best first; of equals the first."""
    if count < scores.shape[1]:
        likely = np.sort(np.argpartition(-scores, count - 1, axis=1)[:, :count], axis=1)
    else:
        likely = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, likely, axis=1), axis=1, kind="stable")
    return np.take_along_axis(likely, order, axis=1)
