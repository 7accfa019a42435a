"""Splits of preference data: what is left out, what KTO compares with, what a user is warned of."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from trainer.config.preference_records import PreferenceRecord
from trainer.config.problems import DataError
from trainer.data.files import read_preference_records
from trainer.data.preference_dataset import (
    FIELDS,
    PreferenceSplit,
    encode_preference_split,
    preference_warnings,
)
from trainer.data.preference_encoding import PreferenceEncoder, RawText
from trainer.data.preference_rows import StreamedPreferences
from trainer.tokenizers import Tokenizer

SHARED = Path(__file__).parents[4] / "shared" / "data"


def pair(prompt: str, chosen: str = "yes", rejected: str = "no", location: str = "x") -> PreferenceRecord:
    return PreferenceRecord((prompt,), (), (chosen, rejected), location=location)


def judged(prompt: str, response: str, desirable: bool = True) -> PreferenceRecord:
    return PreferenceRecord((prompt,), (), (response,), desirable)


@pytest.fixture
def encoder(tokenizer: Tokenizer) -> PreferenceEncoder:
    return PreferenceEncoder(RawText(tokenizer), 400, 200)


def small(encoder: PreferenceEncoder, max_seq_len: int, max_prompt_len: int) -> PreferenceEncoder:
    return dataclasses.replace(encoder, max_seq_len=max_seq_len, max_prompt_len=max_prompt_len)


def compared_with(split: PreferenceSplit, tokenizer: Tokenizer) -> list[str]:
    """The mismatched response of each record as text."""
    found = [example.mismatched for example in split.examples]
    assert all(other is not None for other in found)
    return [tokenizer.decode(other.responses[0].labels.tolist()) for other in found if other]


def split_of(records: Sequence[PreferenceRecord], encoder: PreferenceEncoder) -> PreferenceSplit:
    return encode_preference_split("train", records, encoder)


def test_every_pair_is_an_example_with_the_chosen_response_first(
    encoder: PreferenceEncoder, tokenizer: Tokenizer
) -> None:
    split = split_of([pair("one"), pair("two", "right", "wrong")], encoder)
    shown = [[tokenizer.decode(r.labels.tolist()) for r in e.responses] for e in split.examples]
    assert shown == [["yes", "no"], ["right", "wrong"]]
    assert (split.dropped, split.cut, split.shortened, split.prompts_cut) == ((), 0, 0, 0)
    assert all(example.mismatched is None for example in split.examples)
    assert split.label_tokens == sum(example.label_tokens for example in split.examples)
    assert split.tokens == sum(example.length for example in split.examples)
    assert not list(preference_warnings(split, encoder))


def test_a_judged_response_is_compared_with_that_of_the_next_record(
    encoder: PreferenceEncoder, tokenizer: Tokenizer
) -> None:
    split = split_of([judged("p", "a"), judged("q", "b", False), judged("r", "c")], encoder)
    assert compared_with(split, tokenizer) == ["b", "c", "a"]
    assert [example.desirable for example in split.examples] == [True, False, True]
    for example in split.examples:
        assert example.mismatched is not None
        assert example.mismatched.prompt.tolist() == example.prompt.tolist()
        assert example.mismatched.responses[0].input_ids[0] == example.responses[0].input_ids[0]
        assert (example.mismatched.desirable, example.mismatched.mismatched) == (None, None)


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ("pq", "ba"),
        ("ppq", "cca"),
        ("pqq", "baa"),
        ("pqp", "bcb"),
        ("ppqqp", "cceec"),
        ("pqqp", "bddb"),
        ("pppp", "bcda"),
    ],
)
def test_another_prompts_response_is_preferred_and_none_is_compared_with_itself(
    encoder: PreferenceEncoder, tokenizer: Tokenizer, prompts: str, expected: str
) -> None:
    records = [judged(prompt, "abcde"[number]) for number, prompt in enumerate(prompts)]
    assert "".join(compared_with(split_of(records, encoder), tokenizer)) == expected


def test_records_left_out_are_not_compared_with(encoder: PreferenceEncoder, tokenizer: Tokenizer) -> None:
    tight = small(encoder, 8, 8)
    records = [judged("p", "a"), judged("a question of far too many words", "b"), judged("q", "c")]
    split = split_of(records, dataclasses.replace(tight, max_prompt_len=30))
    assert len(split.dropped) == 1
    assert compared_with(split, tokenizer) == ["c", "a"]
    assert [record.responses for record in split.records] == [("a",), ("c",)]


def test_a_single_judged_response_has_nothing_to_be_compared_with(encoder: PreferenceEncoder) -> None:
    with pytest.raises(
        DataError, match=r"train_dataset_path: the train split has a single record .* at least 2"
    ):
        split_of([judged("p", "a")], encoder)


def test_a_split_without_a_record_is_refused(encoder: PreferenceEncoder) -> None:
    with pytest.raises(DataError, match="dev_dataset_path: the dev split has no records"):
        encode_preference_split("dev", [], encoder)


def test_a_split_with_nothing_to_learn_is_refused_with_the_remedy(encoder: PreferenceEncoder) -> None:
    same = "many words " * 30
    records = [pair("q", same + "a", same + "b", f"line {number}") for number in range(12)]
    with pytest.raises(DataError, match=r"none of the 12 records .*line 0 \(.*and 2 more\. Raise max"):
        split_of(records, small(encoder, 12, 4))


def test_what_is_lost_is_counted_and_told_once_for_each_kind(encoder: PreferenceEncoder) -> None:
    tight = small(encoder, 20, 6)
    words = "many words " * 20
    talk = PreferenceRecord(("a long first question", "b"), ("a long first answer",), ("yes", "no"))
    records = [
        pair("q"),
        pair("q", words, "no"),
        pair(words),
        talk,
        pair("q", words + "a", words + "b", "train.jsonl line 5"),
    ]
    split = split_of(records, tight)
    assert len(split.examples) == 4
    assert (split.cut, split.shortened, split.prompts_cut) == (1, 1, 1)
    dropped, cut, shortened, prompts = preference_warnings(split, tight)
    assert all(problem.loc == ("train_dataset_path",) for problem in (dropped, cut, shortened, prompts))
    assert "1 of 5 records were left out: train.jsonl line 5 (its responses are the same" in dropped.msg
    assert "in 1 of 4 records a response is longer than max_seq_len=20" in cut.msg
    assert "1 of 4 conversations lost their earliest turns" in shortened.msg
    assert "1 of 4 prompts lost their front" in prompts.msg


@pytest.mark.parametrize(("desirable", "missing"), [(True, "undesirable"), (False, "desirable")])
def test_responses_that_are_all_judged_alike_are_a_warning(
    encoder: PreferenceEncoder, desirable: bool, missing: str
) -> None:
    alike = [judged(prompt, "a", desirable) for prompt in "pq"]
    (warning,) = preference_warnings(split_of(alike, encoder), encoder)
    assert f"is not told what is {missing}" in warning.msg
    assert warning.hint == f'Add records with "sort": [{int(not desirable)}].'
    mixed = [*alike, judged("r", "b", not desirable)]
    assert not list(preference_warnings(split_of(mixed, encoder), encoder))


def test_a_context_that_no_template_reads_is_a_warning(encoder: PreferenceEncoder) -> None:
    record = dataclasses.replace(pair("q"), context={"system": "Be kind."})
    (warning,) = preference_warnings(split_of([record, pair("r")], encoder), encoder)
    assert "the context of 1 of 2 records is not used" in warning.msg


def test_the_fingerprint_tells_examples_their_order_and_their_judgement_apart(
    encoder: PreferenceEncoder,
) -> None:
    one, two = judged("p", "a"), judged("q", "b", False)
    splits = [[one, two], [two, one], [one, judged("q", "b")], [one, judged("q", "c", False)]]
    prints = [split_of(records, encoder).fingerprint() for records in splits]
    assert len(set(prints)) == len(prints)
    assert prints[0] == split_of([one, two], encoder).fingerprint()


@pytest.mark.parametrize("prompts", ["pqr", "ppqqp", "pppp"])
def test_a_stream_gives_the_examples_of_the_split_in_order(encoder: PreferenceEncoder, prompts: str) -> None:
    records = [judged(prompt, "abcde"[number]) for number, prompt in enumerate(prompts)]
    split = split_of(records, encoder)
    stream = StreamedPreferences(lambda: iter(records), encoder, greedy=False, content="x")
    examples = tuple(part for row in stream.epoch(0, 0) for part in row.parts)
    assert dataclasses.replace(split, examples=examples).fingerprint() == split.fingerprint()
    assert (stream.count, stream.fingerprint()) == (None, "x")


def test_a_stream_goes_on_behind_the_rows_already_read(encoder: PreferenceEncoder) -> None:
    records = [pair(f"question {number}") for number in range(9)]
    stream = StreamedPreferences(lambda: iter(records), small(encoder, 60, 40), greedy=False, content="x")
    rows, rest = list(stream.epoch(0, 0)), list(stream.epoch(1, 2))
    assert len(rows) > 2
    assert [row.length for row in rest] == [row.length for row in rows[2:]]


def test_a_stream_reads_no_further_than_to_the_next_prompt(encoder: PreferenceEncoder) -> None:
    read = 0

    def records() -> Iterator[PreferenceRecord]:
        nonlocal read
        for number in range(100):
            read += 1
            yield judged(f"question {number}", "x " * 60)

    rows = StreamedPreferences(records, small(encoder, 80, 20), greedy=False, content="x").epoch(0, 0)
    next(rows)
    assert read < 6


def test_a_stream_that_teaches_nothing_is_refused(encoder: PreferenceEncoder) -> None:
    same = "many words " * 30
    records = [pair("q", same + "a", same + "b")] * 3
    stream = StreamedPreferences(lambda: iter(records), small(encoder, 12, 4), greedy=False, content="x")
    with pytest.raises(DataError, match="none of the 3 records"):
        list(stream.epoch(0, 0))


def test_a_file_is_read_line_by_line_and_a_broken_line_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    good = b'{"src": "q", "response": ["x", "y"], "sort": [0, 1]}\r\n'
    path.write_bytes(b"\xef\xbb\xbf" + good + b"\n" + good)
    records = list(read_preference_records(path, "dpo", "train_dataset_path"))
    assert [record.location for record in records] == ["pairs.jsonl line 1", "pairs.jsonl line 3"]
    assert records[0].responses == ("y", "x")
    path.write_bytes(good + b'{"src": "q"}\n')
    with pytest.raises(DataError) as caught:
        list(read_preference_records(path, "dpo", "train_dataset_path"))
    assert caught.value.problems[0].loc == ("train_dataset_path", "pairs.jsonl", 2)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not beside this checkout")
@pytest.mark.parametrize("max_seq_len", [4096, 512])
@pytest.mark.parametrize("task", ["dpo", "kto"])
def test_the_shared_data_becomes_examples_that_fit(
    encoder: PreferenceEncoder, task: str, max_seq_len: int
) -> None:
    fitting = small(encoder, max_seq_len, max_seq_len // 2)
    path = SHARED / task / "dev.jsonl"
    split = encode_preference_split("dev", read_preference_records(path, task, FIELDS["dev"]), fitting)
    assert len(split.examples) == 40
    for example in split.examples:
        assert example.length <= max_seq_len
        if task == "kto":
            assert example.mismatched is not None
            assert example.mismatched.length <= max_seq_len
            labels = [sequence.responses[0].labels.tolist() for sequence in (example, example.mismatched)]
            assert labels[0] != labels[1]
