import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.events import CHUNK_BYTES, read_events


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def metric(step: int) -> bytes:
    return json.dumps({"t": 1.5, "type": "metric", "step": step, "loss": 0.5}).encode() + b"\n"


def steps(file: Path, offset: int = 0, *, final: bool = False) -> list[int]:
    return [record.event["step"] for record in read_events(file, offset, final=final)]


def test_a_file_that_is_not_there_yet_has_no_events(file: Path):
    assert read_events(file, 0) == []


def test_reading_goes_on_behind_the_last_event_that_was_taken(file: Path):
    file.write_bytes(metric(1) + metric(2))
    first = read_events(file, 0)
    assert [record.event["step"] for record in first] == [1, 2]
    with file.open("ab") as more:
        more.write(metric(3))
    assert steps(file, first[0].end) == [2, 3]
    assert steps(file, first[1].end) == [3]


def test_a_part_of_a_line_waits_until_it_is_whole(file: Path):
    file.write_bytes(metric(1) + metric(2)[:10])
    assert steps(file) == [1]
    with file.open("ab") as more:
        more.write(metric(2)[10:])
    assert steps(file) == [1, 2]


def test_at_the_end_a_last_line_counts_without_its_newline(file: Path):
    file.write_bytes(metric(1) + metric(2)[:-1])
    assert steps(file) == [1]
    assert steps(file, final=True) == [1, 2]


def test_at_the_end_a_torn_last_line_is_a_warning(file: Path):
    file.write_bytes(metric(1) + metric(2)[:10])
    _, torn = read_events(file, 0, final=True)
    assert torn.event["type"] == "warning"
    assert torn.end == file.stat().st_size


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("Traceback (most recent call last):", "is not JSON: Traceback"),
        ("[1, 2]", "is not a JSON object: [1, 2]"),
        ('{"type": "metrics"}', "has an unknown type; known are progress, metric"),
        ('{"type": ["metric"]}', "has an unknown type"),
        ('{"type": "metric", "step": "1"}', "has no int 'step'"),
        ('{"type": "metric", "step": true}', "has no int 'step'"),
        ('{"type": "checkpoint", "name": "checkpoint-1", "step": 1}', "has no str 'path'"),
        ('{"type": "metric", "step": 99999999999999999999}', "has a step of more than 64 bits"),
        ("[" * 100_000, "is not JSON"),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "is not JSON"),
    ],
)
def test_a_line_that_is_no_event_becomes_a_warning_and_reading_goes_on(file: Path, line: str, complaint: str):
    file.write_bytes(line.encode() + b"\n" + metric(2))
    bad, good = read_events(file, 0)
    assert bad.event["type"] == "warning"
    assert complaint in bad.event["msg"]
    assert len(bad.event["msg"]) < 400
    assert good.event["step"] == 2


def test_numbers_that_json_does_not_know_become_null(file: Path):
    file.write_text('{"t": 1, "type": "metric", "step": 1, "loss": NaN, "grad_norm": -1e999}\n')
    assert read_events(file, 0)[0].event == {
        "t": 1,
        "type": "metric",
        "step": 1,
        "loss": None,
        "grad_norm": None,
    }


@pytest.mark.parametrize("t", ["", '"t": "noon",', '"t": NaN,', '"t": 1e300,', '"t": -1,'])
def test_an_event_without_a_time_gets_one(file: Path, t: str):
    file.write_text(f'{{{t} "type": "metric", "step": 1}}\n')
    assert 1e9 < read_events(file, 0)[0].event["t"] < 1e10


def test_halves_of_surrogate_pairs_which_nobody_can_be_sent_are_replaced(file: Path):
    odd = {
        "t": 1,
        "type": "warning",
        "msg": "train/\udce9.json",
        "loc": ["dataset", "\udcff"],
        "ok": "\U0001f600",
    }
    file.write_text(json.dumps(odd) + "\n")
    (record,) = read_events(file, 0)
    assert record.event == odd | {"msg": "train/?.json", "loc": ["dataset", "?"]}


def test_a_line_of_many_megabytes_does_not_stop_the_reader(file: Path):
    file.write_bytes(b"x" * (2 * CHUNK_BYTES + 7) + b"\n" + metric(1))
    offset, seen = 0, []
    while records := read_events(file, offset):
        offset = records[-1].end
        seen += records
    assert seen[-1].event["step"] == 1
    assert {record.event["type"] for record in seen[:-1]} == {"warning"}


@given(st.binary(max_size=300), st.integers(0, 300))
def test_every_byte_is_passed_exactly_once_wherever_reading_is_interrupted(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int
):
    file = tmp_path_factory.mktemp("events") / "events.jsonl"
    file.write_bytes(data[:cut])
    early = read_events(file, 0)
    file.write_bytes(data)
    late = read_events(file, early[-1].end if early else 0, final=True)
    whole = read_events(file, 0, final=True)
    assert [record.end for record in early + late] == [record.end for record in whole]
