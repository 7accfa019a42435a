"""Text generation: the likeliest tokens, drawn ones, or beam search."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.config.problems import DataError, Problem
from trainer.tools.generate_batch import Batch
from trainer.tools.generate_beams import search_beams
from trainer.tools.generate_logits import draw, penalized, probabilities
from trainer.tools.generate_options import GenerateOptions

if TYPE_CHECKING:
    from trainer.models.base import CausalLM
    from trainer.tokenizers import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Completion:
    """What a model adds to a prompt.

    Attributes:
        text: the new text.
        ids: its tokens, without the end token.
        ended: whether the model ended it; otherwise it was cut at the longest length.
    """

    text: str
    ids: list[int]
    ended: bool


def generate(
    model: CausalLM, tokenizer: Tokenizer, prompts: Sequence[str], max_new_tokens: int = 64, **options: Any
) -> list[str]:
    """The new text of each prompt, without the prompt.

    Args:
        prompts: texts; each gets the tokenizer's beginning token in front.
        **options: other fields of `GenerateOptions`; by default the likeliest token is taken.

    Raises:
        ConfigError, DataError: as `complete` does.
    """
    chosen = GenerateOptions(max_new_tokens=max_new_tokens, **options)
    return [completion.text for completion in complete(model, tokenizer, prompts, chosen)]


def complete(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    options: GenerateOptions,
    progress: Callable[[int], None] | None = None,
) -> list[Completion]:
    """Continue each prompt until an end token or `max_new_tokens`.

    Texts that are longer than those the model was trained for are logged as a warning.

    Args:
        progress: told the number of finished prompts after every batch.

    Raises:
        DataError: a prompt has no token, or is no text that can be encoded; all of them at once.
    """
    ids = _encode_all(tokenizer, prompts)
    _warn_of_length(model, ids, options.max_new_tokens)
    stops = stop_ids(model, tokenizer)
    order = sorted(range(len(ids)), key=lambda number: len(ids[number]))  # alike lengths need little padding
    completions: dict[int, Completion] = {}
    for start in range(0, len(order), options.batch_size):
        numbers = order[start : start + options.batch_size]
        generators = [np.random.default_rng((options.seed, number)) for number in numbers]
        rows = _continue([ids[number] for number in numbers], model, stops, options, generators)
        for number, row in zip(numbers, rows, strict=True):
            ended = bool(row) and row[-1] in stops
            new = row[:-1] if ended else row
            completions[number] = Completion(tokenizer.decode(new), new, ended)
        if progress:
            progress(len(completions))
    return [completions[number] for number in range(len(ids))]


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
    first: int = 0,
    **options: Any,
) -> list[list[int]]:
    """Continuation of token ids, all in one batch, without the stop token.

    Args:
        first: number of the first prompt among those that are given in several batches. What is drawn for a
            prompt depends on the seed and the prompt's number alone.
        **options: other fields of `GenerateOptions`.

    Raises:
        ConfigError: options out of range.
        ValueError: a prompt has no token, or one that the model does not have.
    """
    _check_ids(prompts, model.config.vocab_size)
    if not prompts:
        return []
    chosen = GenerateOptions(max_new_tokens=max_new_tokens, **options)
    numbers = range(first, first + len(prompts))
    generators = [np.random.default_rng((chosen.seed, number)) for number in numbers]
    rows = _continue(prompts, model, stops, chosen, generators)
    return [row[:-1] if row and row[-1] in stops else row for row in rows]


def _encode_all(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    ids: list[list[int]] = []
    problems: list[Problem] = []
    for number, prompt in enumerate(prompts, start=1):
        try:
            ids.append(tokenizer.encode(prompt))
        except DataError as error:
            problems += [Problem(("prompt", number), problem.msg, problem.hint) for problem in error.problems]
            continue
        if not ids[-1]:
            msg = "is empty, and the tokenizer puts no token in front"
            problems.append(Problem(("prompt", number), msg, "Give at least one character."))
    if problems:
        raise DataError(problems)
    return ids


def _check_ids(prompts: Sequence[Sequence[int]], vocabulary: int) -> None:
    """Paddle would take a negative id for padding, and give no error."""
    for number, prompt in enumerate(prompts, start=1):
        if not len(prompt):
            raise ValueError(f"prompt {number} is empty, and every prompt needs at least one token")
        if wrong := [token for token in prompt if not 0 <= token < vocabulary]:
            raise ValueError(f"prompt {number} has token {wrong[0]}, expected ids from 0 to {vocabulary - 1}")


def _warn_of_length(model: CausalLM, prompts: Sequence[Sequence[int]], new: int) -> None:
    """Tell which prompts leave the positions that the model was trained for; without such a limit, none."""
    most = getattr(model.config, "max_position_embeddings", None)
    if most is None or model.alibi_slopes is not None or not prompts:
        return
    number, longest = max(enumerate(map(len, prompts), start=1), key=lambda pair: pair[1])
    if longest + new > most:
        count = sum(len(prompt) + new > most for prompt in prompts)
        log.warning(
            "%d of %d prompts may go beyond the %d tokens that the model was trained for, so their ends may"
            " be nonsense: prompt %d has %d tokens, and up to %d follow. Shorten it, or lower max_new_tokens",
            *(count, len(prompts), most, number, longest, new),
        )


def _continue(
    prompts: Sequence[Sequence[int]],
    model: CausalLM,
    stops: Collection[int],
    options: GenerateOptions,
    generators: Sequence[np.random.Generator],
) -> list[list[int]]:
    """New tokens of one batch, with the stop token that ends them."""
    with _evaluating(model):
        batch = Batch(model, prompts, options.use_cache)
        if options.num_beams > 1:
            return search_beams(batch, len(prompts), stops, options)
        return _step_by_step(batch, stops, options, generators)


def _step_by_step(
    batch: Batch,
    stops: Collection[int],
    options: GenerateOptions,
    generators: Sequence[np.random.Generator],
) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in generators]
    for _ in range(options.max_new_tokens):
        logits = penalized(batch.logits(), batch.texts(), options.repetition_penalty)
        if options.do_sample:
            pairs = zip(logits, generators, strict=True)
            tokens = np.array([draw(probabilities(row, options), generator) for row, generator in pairs])
        else:
            tokens = logits.argmax(axis=-1)
        for row, token in zip(rows, tokens, strict=True):
            if not row or row[-1] not in stops:
                row.append(int(token))
        if all(row[-1] in stops for row in rows):
            break
        batch.append(tokens)
    return rows


@contextmanager
def _evaluating(model: CausalLM) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()
