import json
from typing import Any

import pytest

from trainer.config.records import RecordError, SftRecord, parse_sft_line


def test_texts_are_one_turn() -> None:
    assert parse_sft_line('{"src": "q", "tgt": "a"}\n') == SftRecord(("q",), ("a",), {})


def test_lists_are_turns_and_other_keys_are_left_alone() -> None:
    line = {"src": ["q1", "q2"], "tgt": ["a1", "a2"], "context": {"system": "s"}, "id": 7, "messages": []}
    assert parse_sft_line(json.dumps(line)) == SftRecord(("q1", "q2"), ("a1", "a2"), {"system": "s"})


def test_a_source_may_be_empty() -> None:
    assert parse_sft_line('{"src": "", "tgt": "a", "context": null}').src == ("",)


@pytest.mark.parametrize(
    ("record", "kind", "message"),
    [
        ([1], "not an object", "got [1], expected an object with src and tgt"),
        ({"tgt": "a"}, "no src", 'src is missing, found "tgt"'),
        ({}, "no src", "src is missing, found no key at all"),
        ({"src": "q", "tgt": None}, "no tgt", 'tgt is missing, found "src", "tgt"'),
        ({"src": "q", "tgt": 5}, "wrong type", "tgt: expected a text or a list of texts, got 5"),
        ({"src": ["q", 5], "tgt": ["a", "b"]}, "wrong type", "src[1]: expected a text, got 5"),
        ({"src": [], "tgt": []}, "no turns", "src: got an empty list, expected at least one text"),
        (
            {"src": ["q", "r"], "tgt": ["a"]},
            "unequal turns",
            "src has 2 turns and tgt 1, expected the same number",
        ),
        ({"src": "q", "tgt": " \n"}, "empty target", "tgt is blank, expected a text to learn"),
        ({"src": ["q", "r"], "tgt": ["a", ""]}, "empty target", "tgt[1] is blank, expected a text to learn"),
        ({"src": "q", "tgt": "a", "context": "s"}, "wrong type", 'context: got "s", expected an object'),
        ({"src": "q", "tgt": "\ud800"}, "broken text", "tgt has an unpaired surrogate"),
    ],
)
def test_a_line_that_is_not_a_record_says_why(record: Any, kind: str, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_sft_line(json.dumps(record))
    assert (caught.value.kind, caught.value.message) == (kind, message)


@pytest.mark.parametrize(
    ("record", "part"),
    [
        ({"src": ["q"], "tgt": [], "response": ["x", "y"], "sort": [1, 0]}, "task dpo or kto takes it"),
        ({"prompt": "q", "chosen": "x", "rejected": "y"}, "task dpo trains on it"),
        ({"instruction": "q", "input": "", "output": "a"}, "rename instruction to src and output to tgt"),
        ({"prompt": "q", "completion": "a"}, "rename prompt to src and completion to tgt"),
        ({"messages": [{"role": "user", "content": "q"}]}, "put the user's texts in src"),
        ({"conversations": []}, "put the user's texts in src"),
    ],
)
def test_other_kinds_of_data_are_told_as_such(record: dict[str, Any], part: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_sft_line(json.dumps(record))
    assert caught.value.kind == "another kind of data"
    assert caught.value.message.startswith("this is ")
    assert part in caught.value.message


@pytest.mark.parametrize(
    "line", ['{"src": "q", "tgt": "a"', '{"src": NaN}', '{"src": "a", "src": "b"}', b"\xff\xfe"]
)
def test_a_broken_line_is_broken_json(line: str | bytes) -> None:
    with pytest.raises(RecordError) as caught:
        parse_sft_line(line)
    assert caught.value.kind == "broken JSON"


@pytest.mark.parametrize("line", ['{"src": "q", "tgt": "a"\n', b'{"src": "q", "tgt": "a"\r\n'])
def test_a_broken_line_is_told_its_column(line: str | bytes) -> None:
    with pytest.raises(RecordError) as caught:
        parse_sft_line(line)
    assert caught.value.message == "broken JSON: Expecting ',' delimiter (column 24)"
