"""Telling the kind of data from a line."""

import json

import pytest

from trainer.config.data_kinds import KINDS, PARSERS, SAMPLES, kind_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_of_its_kind_and_can_be_read(kind: str) -> None:
    assert kind_of(SAMPLES[kind]) == kind
    PARSERS[kind](SAMPLES[kind])


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"src": "q", "tgt": "a", "other": 1}, "sft"),
        ({"src": "q", "response": ["a"], "sort": "broken"}, "kto"),
        ({"src": "q", "response": "broken", "sort": [0]}, "kto"),
        ({"src": "q", "response": "broken"}, "dpo"),
        ({"prompt": "q", "chosen": "a", "rejected": "b"}, "dpo"),
        ({"prompt": "q", "completion": "a", "label": True}, "kto"),
        ({"messages": []}, "sft"),
        ({}, "sft"),
    ],
)
def test_a_broken_record_is_of_the_nearest_kind(record: object, kind: str) -> None:
    assert kind_of(json.dumps(record)) == kind


@pytest.mark.parametrize("line", ["[]", "{", b"\xff", "NaN"])
def test_what_is_no_object_has_no_kind(line: str | bytes) -> None:
    assert kind_of(line) is None
