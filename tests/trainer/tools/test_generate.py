from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from trainer import load_model, load_tokenizer
from trainer.config.problems import DataError
from trainer.models import CausalLM
from trainer.models.gemma.configuration import GemmaConfig
from trainer.tokenizers import Tokenizer
from trainer.tools.generate import complete, generate, generate_ids, stop_ids
from trainer.tools.generate_logits import probabilities
from trainer.tools.generate_options import GenerateOptions
from trainer.tools.tiny_model import build_tiny_model

WAYS: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.4},
    {"do_sample": True, "temperature": 1.5, "top_k": 50, "top_p": 0.95, "seed": 3},
    {"num_beams": 3, "early_stopping": True, "repetition_penalty": 1.2},
]
PROMPTS = ["The harbour", "A boat with one mast and two sails is called", "x", ""]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[CausalLM, Tokenizer]:
    """A random model whose wide weights make it say different things after different prompts."""
    directory = build_tiny_model(
        "gemma", tmp_path_factory.mktemp("tiny"), vocab_size=400, hidden_size=48, initializer_range=0.25
    )
    return load_model(directory), load_tokenizer(directory)


@pytest.mark.parametrize("options", WAYS)
def test_the_cache_changes_nothing(parts: tuple[CausalLM, Tokenizer], options: dict[str, Any]):
    texts = generate(*parts, PROMPTS, 24, **options)
    assert texts == generate(*parts, PROMPTS, 24, use_cache=False, **options)
    assert len(set(texts)) == len(PROMPTS)


@pytest.mark.parametrize("options", WAYS)
def test_the_batch_changes_nothing(parts: tuple[CausalLM, Tokenizer], options: dict[str, Any]):
    texts = generate(*parts, PROMPTS, 24, **options)
    assert texts == generate(*parts, PROMPTS, 24, batch_size=1, **options)
    assert texts == generate(*parts, PROMPTS, 24, batch_size=3, **options)


class TestSampling:
    def test_the_same_seed_draws_the_same_and_another_seed_something_else(
        self, parts: tuple[CausalLM, Tokenizer]
    ):
        one, again, other = (
            generate(*parts, PROMPTS, 24, do_sample=True, seed=seed) for seed in (11, 11, 12)
        )
        assert one == again
        assert one != other

    def test_a_prompt_draws_the_same_in_whatever_batch_it_comes(self, parts: tuple[CausalLM, Tokenizer]):
        model, tokenizer = parts
        prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
        how: dict[str, Any] = {"do_sample": True, "seed": 6}
        together = generate_ids(model, prompts, 12, (), **how)
        halves = [
            *generate_ids(model, prompts[:2], 12, (), **how),
            *generate_ids(model, prompts[2:], 12, (), first=2, **how),
        ]
        assert halves == together
        assert generate_ids(model, prompts[2:], 12, (), **how) != together[2:]

    def test_equal_prompts_draw_different_texts(self, parts: tuple[CausalLM, Tokenizer]):
        texts = generate(*parts, ["The harbour"] * 4, 24, do_sample=True)
        assert len(set(texts)) == 4

    def test_among_one_token_the_draw_is_the_likeliest(self, parts: tuple[CausalLM, Tokenizer]):
        greedy = generate(*parts, PROMPTS, 24)
        assert generate(*parts, PROMPTS, 24, do_sample=True, top_k=1) == greedy
        assert generate(*parts, PROMPTS, 24, do_sample=True, top_p=1e-9) == greedy

    def test_tokens_are_drawn_with_the_filtered_probabilities(self, parts: tuple[CausalLM, Tokenizer]):
        model, tokenizer = parts
        options: dict[str, Any] = {"do_sample": True, "temperature": 2.5, "top_k": 12, "top_p": 0.9}
        ids = tokenizer.encode("The harbour")
        logits = model.next_logits(
            np.array([ids]), np.arange(len(ids))[None], np.ones((1, len(ids)), bool)
        ).numpy()
        expected = probabilities(logits[0], GenerateOptions(**options))
        draws = 4000
        drawn = [row[0] for row in generate_ids(model, [ids] * draws, 1, (), seed=5, **options)]
        counts = np.bincount(drawn, minlength=expected.size)
        possible = expected > 0
        assert counts[~possible].sum() == 0
        freedom = int(possible.sum()) - 1
        assert freedom >= 4
        expected_counts = draws * expected[possible]
        chi_square = ((counts[possible] - expected_counts) ** 2 / expected_counts).sum()
        assert chi_square < quantile_999(freedom)


def quantile_999(freedom: int) -> float:
    """Of the chi-square distribution, by the approximation of Wilson and Hilferty (1931)."""
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + 3.0902 * spread**0.5) ** 3


class TestBeams:
    def test_more_beams_find_a_likelier_text(self, parts: tuple[CausalLM, Tokenizer]):
        model, tokenizer = parts
        ids = tokenizer.encode("The harbour")
        greedy, searched = (generate_ids(model, [ids], 8, (), num_beams=beams)[0] for beams in (1, 8))
        assert log_likelihood(model, ids, searched) > log_likelihood(model, ids, greedy)


def log_likelihood(model: CausalLM, prompt: list[int], new: list[int]) -> float:
    total = 0.0
    for place, token in enumerate(new):
        ids = [*prompt, *new[:place]]
        logits = model.next_logits(
            np.array([ids]), np.arange(len(ids))[None], np.ones((1, len(ids)), bool)
        ).numpy()[0]
        total += float(logits[token] - np.log(np.exp(logits - logits.max()).sum()) - logits.max())
    return total


def test_a_repetition_penalty_avoids_what_was_said(parts: tuple[CausalLM, Tokenizer]):
    model, tokenizer = parts
    ids = tokenizer.encode("The harbour")
    free, penalized = (
        generate_ids(model, [ids], 40, (), repetition_penalty=penalty)[0] for penalty in (1.0, 1e6)
    )
    assert len(set(free)) < 40
    assert len(set(penalized)) == 40
    assert not set(penalized) & set(ids)


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_row_ends_before_its_stop_token_and_the_others_go_on(
    parts: tuple[CausalLM, Tokenizer], use_cache: bool
):
    model, tokenizer = parts
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    free = generate_ids(model, prompts, 10, stops=())
    assert {len(tokens) for tokens in free} == {10}
    stop = free[0][3]
    stopped = generate_ids(model, prompts, 10, stops={stop}, use_cache=use_cache)
    for all_tokens, tokens in zip(free, stopped, strict=True):
        end = all_tokens.index(stop) if stop in all_tokens else 10
        assert tokens == all_tokens[:end]


def test_every_named_end_token_stops(parts: tuple[CausalLM, Tokenizer]):
    model, tokenizer = parts
    assert stop_ids(model, tokenizer) == {1}
    model.generation_config = {"eos_token_id": [1, 6]}
    assert stop_ids(model, tokenizer) == {1, 6}


def test_a_model_in_training_stays_in_training(parts: tuple[CausalLM, Tokenizer]):
    model, tokenizer = parts
    model.train()
    generate(model, tokenizer, ["a"], 1)
    assert model.training
    model.eval()


def test_an_empty_prompt_without_a_beginning_token_is_refused(parts: tuple[CausalLM, Tokenizer]):
    with pytest.raises(ValueError, match="prompt 2 is empty, and every prompt needs at least one token"):
        generate_ids(parts[0], [[5], []], 3, stops=())


@pytest.mark.parametrize("token", [-1, 400])
def test_a_token_that_the_model_does_not_have_is_refused(parts: tuple[CausalLM, Tokenizer], token: int):
    with pytest.raises(ValueError, match=f"prompt 1 has token {token}, expected ids from 0 to 399"):
        generate_ids(parts[0], [[5, token], [5]], 3, stops=())


def test_no_prompts_have_no_continuations(parts: tuple[CausalLM, Tokenizer]):
    assert generate_ids(parts[0], [], 3, stops=()) == []
    assert generate(*parts, [], 3) == []


def test_prompts_beyond_the_positions_of_the_model_are_told(
    parts: tuple[CausalLM, Tokenizer], caplog: pytest.LogCaptureFixture
):
    model, tokenizer = parts
    longest = len(tokenizer.encode(PROMPTS[1]))
    config = model.config
    try:
        model.config = replace(cast("GemmaConfig", config), max_position_embeddings=longest + 2)
        complete(model, tokenizer, PROMPTS, GenerateOptions(max_new_tokens=2))
        assert caplog.messages == []
        complete(model, tokenizer, PROMPTS, GenerateOptions(max_new_tokens=3))
    finally:
        model.config = config
    (told,) = caplog.messages
    assert told.startswith(f"1 of 4 prompts may go beyond the {longest + 2} tokens")
    assert f"prompt 2 has {longest} tokens, and up to 3 follow" in told


def test_empty_prompts_are_all_refused_by_number(parts: tuple[CausalLM, Tokenizer]):
    model, tokenizer = parts
    tokenizer.add_bos = False
    try:
        with pytest.raises(DataError) as caught:
            complete(model, tokenizer, ["", "a", ""], GenerateOptions())
    finally:
        tokenizer.add_bos = True
    assert [problem.loc for problem in caught.value.problems] == [("prompt", 1), ("prompt", 3)]


def test_a_completion_says_how_it_ended_and_progress_is_told(parts: tuple[CausalLM, Tokenizer]):
    model, tokenizer = parts
    (free,) = complete(model, tokenizer, ["The harbour"], GenerateOptions(max_new_tokens=6))
    assert (len(free.ids), free.ended) == (6, False)
    model.generation_config = {"eos_token_id": [1, free.ids[4]]}
    told: list[int] = []
    options = GenerateOptions(max_new_tokens=6, batch_size=2)
    stopped, *_ = complete(model, tokenizer, ["The harbour", "a", "b"], options, told.append)
    model.generation_config = None
    assert (stopped.ids, stopped.ended) == (free.ids[: free.ids.index(free.ids[4])], True)
    assert stopped.text == tokenizer.decode(stopped.ids)
    assert told == [2, 3]
