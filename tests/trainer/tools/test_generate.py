import pytest

from trainer import load_model, load_tokenizer
from trainer.models import CausalLM
from trainer.tokenizers import Tokenizer
from trainer.tools.generate import generate, generate_ids, stop_ids
from trainer.tools.tiny_model import build_tiny_model

PROMPTS = ["The harbour", "A boat with one mast and two sails is called", "x", ""]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[CausalLM, Tokenizer]:
    """A random model whose wide weights make it say different things after different prompts."""
    directory = build_tiny_model(
        "gemma", tmp_path_factory.mktemp("tiny"), vocab_size=400, hidden_size=48, initializer_range=0.25
    )
    return load_model(directory), load_tokenizer(directory)


def test_the_cache_changes_nothing(parts: tuple[CausalLM, Tokenizer]):
    texts = generate(*parts, PROMPTS, 24)
    assert texts == generate(*parts, PROMPTS, 24, use_cache=False)
    assert len(set(texts)) == len(PROMPTS)


def test_the_batch_changes_nothing(parts: tuple[CausalLM, Tokenizer]):
    texts = generate(*parts, PROMPTS, 24)
    assert texts == generate(*parts, PROMPTS, 24, batch_size=1)
    assert texts == generate(*parts, PROMPTS, 24, batch_size=3)


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


def test_no_new_tokens_is_no_text(parts: tuple[CausalLM, Tokenizer]):
    assert generate(*parts, PROMPTS, 0) == [""] * len(PROMPTS)


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
    with pytest.raises(ValueError, match="at least one token"):
        generate_ids(parts[0], [[5], []], 3, stops=())
