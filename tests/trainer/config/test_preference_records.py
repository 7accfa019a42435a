import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.config.data_files import read_lines
from trainer.config.preference_records import PreferenceRecord, parse_dpo_line, parse_kto_line
from trainer.config.records import RecordError

PARSERS = {"dpo": parse_dpo_line, "kto": parse_kto_line}
PAIR = {"src": ["q"], "tgt": [], "response": ["x", "y"], "sort": [1, 0]}
JUDGED = {"src": ["q"], "tgt": [], "response": ["x"], "sort": [1]}
SHARED = Path(__file__).parents[4] / "shared" / "data"


def error_of(task: str, record: Any) -> RecordError:
    with pytest.raises(RecordError) as caught:
        PARSERS[task](json.dumps(record))
    return caught.value


@pytest.mark.parametrize("sort", [[1, 0], [7, -3], [0, -1]])
def test_the_response_with_the_larger_number_is_the_chosen_one(sort: list[int]) -> None:
    expected = PreferenceRecord(("q",), (), ("x", "y"))
    assert parse_dpo_line(json.dumps(PAIR | {"sort": sort})) == expected
    swapped = {"response": ["y", "x"], "sort": sort[::-1]}
    assert parse_dpo_line(json.dumps(PAIR | swapped)) == expected


@pytest.mark.parametrize(("sort", "desirable"), [([1], True), ([0], False)])
def test_one_response_is_desirable_or_not(sort: list[int], desirable: bool) -> None:
    record = parse_kto_line(json.dumps(JUDGED | {"sort": sort}))
    assert record == PreferenceRecord(("q",), (), ("x",), desirable)


@pytest.mark.parametrize(
    "turns",
    [
        {"src": "q"},
        {"src": "q", "tgt": None},
        {"src": "q", "tgt": []},
        {"src": ["q"]},
        {"src": ["q"], "tgt": []},
    ],
)
@pytest.mark.parametrize(("task", "record"), [("dpo", PAIR), ("kto", JUDGED)])
def test_one_turn_needs_no_earlier_answer(task: str, record: dict[str, Any], turns: dict[str, Any]) -> None:
    rest = {key: record[key] for key in ("response", "sort")}
    parsed = PARSERS[task](json.dumps(turns | rest))
    assert (parsed.src, parsed.tgt) == (("q",), ())


@pytest.mark.parametrize("tgt", ["a", ["a"]])
def test_lists_are_turns_and_other_keys_are_left_alone(tgt: Any) -> None:
    line = PAIR | {"src": ["q1", "q2"], "tgt": tgt, "context": {"system": "s"}, "id": 7, "system": ""}
    parsed = parse_dpo_line(json.dumps(line))
    assert (parsed.src, parsed.tgt, parsed.context) == (("q1", "q2"), ("a",), {"system": "s"})


def test_texts_lose_the_space_around_them() -> None:
    line = PAIR | {"src": [" q\n", "r "], "tgt": ["\ta"], "response": [" x y ", "y\n"]}
    assert parse_dpo_line(json.dumps(line)) == PreferenceRecord(("q", "r"), ("a",), ("x y", "y"))


TURNS = "expected tgt to have one fewer: its last turn is answered by response"
RANKS = "two different whole numbers, the larger one for the chosen response"
KEYS = '"response", "sort", "src", "tgt"'
JUDGEMENT = "[1] for a desirable response or [0] for an undesirable one"


@pytest.mark.parametrize(
    ("task", "change", "kind", "message"),
    [
        ("dpo", {"src": None}, "no src", f"src is missing, found {KEYS}"),
        ("dpo", {"src": []}, "no turns", "src: got an empty list, expected at least one text"),
        ("dpo", {"src": 5}, "wrong type", "src: expected a text or a list of texts, got 5"),
        ("dpo", {"src": ["q", 5]}, "wrong type", "src[1]: expected a text, got 5"),
        ("dpo", {"tgt": ["a"]}, "wrong number of turns", f"src has 1 turns and tgt 1, {TURNS}"),
        ("kto", {"src": ["q", "r"]}, "wrong number of turns", f"src has 2 turns and tgt 0, {TURNS}"),
        ("kto", {"tgt": {}}, "wrong type", "tgt: expected a text or a list of texts, got {}"),
        (
            "dpo",
            {"response": None},
            "no response",
            f"response is missing, found {KEYS}",
        ),
        ("dpo", {"response": "x"}, "wrong type", 'response: got "x", expected a list of 2 texts'),
        ("kto", {"response": "x"}, "wrong type", 'response: got "x", expected a list of 1 text'),
        ("dpo", {"response": ["x", 5]}, "wrong type", "response[1]: expected a text, got 5"),
        (
            "dpo",
            {"response": ["x", "y", "z"]},
            "wrong number in response",
            "response: got 3 entries, expected a list of 2 texts",
        ),
        (
            "kto",
            {"response": []},
            "wrong number in response",
            "response: got 0 entries, expected a list of 1 text",
        ),
        ("dpo", {"response": ["x", " \n"]}, "empty response", "response[1] is blank, expected a text"),
        ("kto", {"response": [""]}, "empty response", "response is blank, expected a text"),
        (
            "dpo",
            {"response": ["x ", "x"]},
            "equal responses",
            "response: both texts are the same, expected two different ones",
        ),
        ("dpo", {"response": ["x", "\ud800"]}, "broken text", "response has an unpaired surrogate"),
        (
            "dpo",
            {"sort": [1, 1]},
            "equal sorts",
            "sort: got [1, 1], expected two different numbers, the larger for the chosen response",
        ),
        ("dpo", {"sort": [1]}, "wrong number in sort", f"sort: got 1 entries, expected {RANKS}"),
        ("dpo", {"sort": [True, False]}, "wrong sort", f"sort: got [true, false], expected {RANKS}"),
        ("dpo", {"sort": [0.9, 0.1]}, "wrong sort", f"sort: got [0.9, 0.1], expected {RANKS}"),
        ("dpo", {"sort": ["1", "0"]}, "wrong sort", f'sort: got ["1", "0"], expected {RANKS}'),
        ("kto", {"sort": 1}, "wrong type", f"sort: got 1, expected {JUDGEMENT}"),
        ("kto", {"sort": [2]}, "wrong sort", f"sort: got [2], expected {JUDGEMENT}"),
        ("kto", {"sort": [-1]}, "wrong sort", f"sort: got [-1], expected {JUDGEMENT}"),
        ("kto", {"sort": [True]}, "wrong sort", f"sort: got [true], expected {JUDGEMENT}"),
        ("kto", {"sort": None}, "no sort", f"sort is missing, found {KEYS}"),
        ("kto", {"context": "s"}, "wrong type", 'context: got "s", expected an object'),
        (
            "kto",
            {"system": "s"},
            "wrong place",
            'system is no key of these records; write it as "context": {"system": ...} for a chat template',
        ),
    ],
)
def test_a_line_that_is_not_a_record_says_why(
    task: str, change: dict[str, Any], kind: str, message: str
) -> None:
    error = error_of(task, (PAIR if task == "dpo" else JUDGED) | change)
    assert (error.kind, error.message) == (kind, message)


@pytest.mark.parametrize("task", PARSERS)
def test_something_else_than_an_object_is_refused(task: str) -> None:
    error = error_of(task, [1])
    assert error.message == "got [1], expected an object with src, tgt, response and sort"
    assert error_of(task, {}).message == "src is missing, found no key at all"


@pytest.mark.parametrize("task", PARSERS)
@pytest.mark.parametrize(
    ("record", "part"),
    [
        ({"src": "q", "tgt": "a"}, "task finetune takes it"),
        ({"src": ["q"], "tgt": ["a"]}, "task finetune takes it"),
        ({"prompt": "q", "chosen": "x", "rejected": "y"}, 'the chosen one first, and add "sort": [1, 0]'),
        ({"chosen": [{"role": "user"}], "rejected": []}, 'the chosen one first, and add "sort": [1, 0]'),
        ({"prompt": "q", "completion": "x", "label": True}, 'add "sort": [1] or [0]'),
        ({"prompt": "q", "completion": "x"}, "put the user's texts in src"),
        ({"instruction": "q", "output": "x"}, "put the user's texts in src"),
        ({"messages": []}, "put the user's texts in src"),
        ({"conversations": []}, "put the user's texts in src"),
    ],
)
def test_other_kinds_of_data_are_told_as_such(task: str, record: dict[str, Any], part: str) -> None:
    error = error_of(task, record)
    assert error.kind == "another kind of data"
    assert error.message.startswith("this is ")
    assert part in error.message


def test_the_data_of_the_two_tasks_is_told_apart() -> None:
    assert error_of("dpo", JUDGED).message == (
        "this is data of task kto (one response with its sort); task kto takes it"
    )
    assert error_of("kto", PAIR).message == "this is data of task dpo (two responses); task dpo takes it"


@pytest.mark.parametrize("task", PARSERS)
@pytest.mark.parametrize(
    "line", ['{"src": "q"', '{"src": NaN}', '{"src": "a", "src": "b"}', b"\xff\xfe", b'{"sort": [1e999]}']
)
def test_a_broken_line_is_broken_json(task: str, line: str | bytes) -> None:
    with pytest.raises(RecordError) as caught:
        PARSERS[task](line)
    assert caught.value.kind == "broken JSON"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(
    task=st.sampled_from(sorted(PARSERS)),
    change=st.dictionaries(st.sampled_from([*PAIR, "context", "system", "chosen"]), VALUES, max_size=3),
)
def test_whatever_comes_is_a_record_or_told_in_text_that_can_be_sent(
    task: str, change: dict[str, Any]
) -> None:
    line = json.dumps((PAIR if task == "dpo" else JUDGED) | change, allow_nan=True)
    told = ""
    try:
        record = PARSERS[task](line)
    except RecordError as error:
        told = error.message
    else:
        assert len(record.tgt) == len(record.src) - 1
        assert all(record.responses)
    assert len(told.encode("utf-8")) < 1000


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not beside this checkout")
@pytest.mark.parametrize(
    ("task", "split", "records", "judged"),
    [
        ("dpo", "train", 260, {None: 260}),
        ("dpo", "dev", 40, {None: 40}),
        ("kto", "train", 260, {True: 134, False: 126}),
        ("kto", "dev", 40, {True: 16, False: 24}),
    ],
)
def test_every_record_of_the_shared_data_can_be_read(
    task: str, split: str, records: int, judged: dict[bool | None, int]
) -> None:
    found = [PARSERS[task](line) for _, line in read_lines(SHARED / task / f"{split}.jsonl")]
    assert len(found) == records
    assert Counter(record.desirable for record in found) == judged
    assert all(len(record.tgt) == len(record.src) - 1 for record in found)
