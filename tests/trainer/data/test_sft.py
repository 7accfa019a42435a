import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.config.records import SftRecord
from trainer.data.sft import IGNORE, Example, PlainEncoder
from trainer.tokenizers import Tokenizer


def record(*turns: tuple[str, str]) -> SftRecord:
    return SftRecord(tuple(src for src, _ in turns), tuple(tgt for _, tgt in turns), {})


def tokenize_record(record: SftRecord, tokenizer: Tokenizer, src_length: int, max_length: int) -> Example:
    return PlainEncoder(tokenizer, src_length, max_length).example(record)


def sequence(example: Example) -> list[int]:
    """The whole sequence of ids that an example was made of, as far as it can be told from outside."""
    return [*example.input_ids.tolist(), int(example.labels[-1])]


def test_the_source_is_masked_and_the_target_with_its_eos_is_learned(tokenizer: Tokenizer) -> None:
    source = tokenizer.encode("Where is the pier?")
    target = [*tokenizer.encode("Over there.", add_special_tokens=False), tokenizer.eos_id]
    example = tokenize_record(record(("Where is the pier?", "Over there.")), tokenizer, 100, 200)
    assert example.input_ids.tolist() == [*source, *target][:-1]
    assert example.labels.tolist() == [*[IGNORE] * (len(source) - 1), *target]
    assert example.label_tokens == len(target)


def test_labels_are_shifted_so_that_each_position_has_the_next_token_as_its_target(
    tokenizer: Tokenizer,
) -> None:
    example = tokenize_record(record(("a b c", "d e f")), tokenizer, 100, 200)
    learned = example.labels[:-1] != IGNORE
    assert (example.labels[:-1][learned] == example.input_ids[1:][learned]).all()


def test_a_long_source_keeps_its_tail_and_loses_even_its_bos(tokenizer: Tokenizer) -> None:
    text = "one two three four five six"
    source = tokenizer.encode(text)
    example = tokenize_record(record((text, "x")), tokenizer, 5, 200)
    assert example.input_ids[:5].tolist() == source[-5:]
    assert tokenizer.bos_id not in example.input_ids


def test_a_target_that_is_cut_gets_no_eos(tokenizer: Tokenizer) -> None:
    source = tokenizer.encode("Say")
    target = tokenizer.encode("a rather long answer", add_special_tokens=False)
    example = tokenize_record(record(("Say", "a rather long answer")), tokenizer, 100, len(source) + 4)
    assert sequence(example) == [*source, *target[:4]]
    assert example.cut


@pytest.mark.parametrize(("spare", "ends_with_eos"), [(0, False), (1, True)])
def test_eos_is_added_only_when_it_fits_as_well(
    tokenizer: Tokenizer, spare: int, ends_with_eos: bool
) -> None:
    source = tokenizer.encode("Say")
    target = tokenizer.encode("an answer", add_special_tokens=False)
    room = len(target) + spare
    example = tokenize_record(record(("Say", "an answer")), tokenizer, 100, len(source) + room)
    assert (sequence(example)[-1] == tokenizer.eos_id) is ends_with_eos
    assert example.cut is not ends_with_eos


def test_every_turn_of_a_conversation_is_learned_and_tokenized_like_a_record_of_its_own(
    tokenizer: Tokenizer,
) -> None:
    turns = [("Hello", "Good day."), ("Where to?", "Home.")]
    both = tokenize_record(record(*turns), tokenizer, 100, 200)
    alone = [tokenize_record(record(turn), tokenizer, 100, 200) for turn in turns]
    assert sequence(both) == [*sequence(alone[0]), *sequence(alone[1])]
    assert both.label_tokens == alone[0].label_tokens + alone[1].label_tokens
    assert both.lost_turns == 0


def test_a_conversation_that_is_too_long_loses_its_oldest_turns_only(tokenizer: Tokenizer) -> None:
    turns = [("first", "1"), ("second", "2"), ("third", "3")]
    last_two = tokenize_record(record(*turns[1:]), tokenizer, 100, 200)
    example = tokenize_record(record(*turns), tokenizer, 100, last_two.length + 1)
    assert sequence(example) == sequence(last_two)
    assert example.lost_turns == 1


def test_a_source_that_fills_max_length_leaves_nothing_to_learn(tokenizer: Tokenizer) -> None:
    example = tokenize_record(record(("a long source of many words", "x")), tokenizer, 8, 8)
    assert example.label_tokens == 0


@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(st.tuples(st.text(max_size=20), st.text(min_size=1, max_size=20)), min_size=1, max_size=3),
    src_length=st.integers(1, 30),
    extra=st.integers(0, 30),
)
def test_no_example_is_longer_than_max_length_and_every_label_is_the_next_token(
    tokenizer: Tokenizer, turns: list[tuple[str, str]], src_length: int, extra: int
) -> None:
    example = tokenize_record(record(*turns), tokenizer, src_length, src_length + extra)
    assert example.length + 1 <= max(1, src_length + extra)
    assert example.length == len(example.labels)
    following = np.append(example.input_ids[1:], example.labels[-1:])
    assert all(label in (IGNORE, token) for label, token in zip(example.labels, following, strict=True))
