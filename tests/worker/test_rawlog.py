from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.rawlog import CHUNK_BYTES, LINE_BYTES, REDRAW_S, RawLog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rank-0.log"


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as raw:
        raw.write(data)


def texts(log: RawLog, *, final: bool = False) -> list[str]:
    """All that the log gives until it gives nothing."""
    lines: list[str] = []
    while got := log.read(final=final):
        lines += [line.text for line in got]
    return lines


def test_lines_come_when_they_are_whole(file: Path):
    log = RawLog(file)
    assert log.read() == []
    append(file, b"one\ntwo\nthr")
    assert texts(log) == ["one", "two"]
    append(file, b"ee\n\n")
    assert texts(log) == ["three", ""]


def test_the_last_line_needs_no_newline_at_the_end(file: Path):
    append(file, b"one\ntwo")
    assert texts(RawLog(file), final=True) == ["one", "two"]


def test_reading_goes_on_at_the_offset_of_a_line(file: Path):
    append(file, b"one\ntwo\nthree\n")
    first, *_ = RawLog(file).read()
    assert texts(RawLog(file, first.end)) == ["two", "three"]


def test_invalid_utf8_is_replaced_and_other_line_separators_stay_in_the_line(file: Path):
    append(file, b"caf\xe9 \xe2\x82\xac\x00\n" + "a\u2028b\x85c\x0bd".encode() + b"\r\n")
    assert texts(RawLog(file)) == ["caf� €\x00", "a\u2028b\x85c\x0bd"]


def test_a_long_line_is_cut_with_a_note(file: Path):
    append(file, b"x" * (LINE_BYTES - 1) + "é".encode() + b"y" * 100 + b"\nnext\n")
    cut, following = texts(RawLog(file))
    assert cut == "x" * (LINE_BYTES - 1) + " … [line cut here, 101 bytes more]"
    assert following == "next"


def test_a_line_without_end_is_cut_chunk_by_chunk(file: Path):
    append(file, b"x" * (2 * CHUNK_BYTES) + b"end\nnext\n")
    first, second, end, following = texts(RawLog(file))
    assert first == second == "x" * LINE_BYTES + f" … [line cut here, {CHUNK_BYTES - LINE_BYTES} bytes more]"
    assert (end, following) == ("end", "next")


def test_of_a_progress_bar_its_last_state_remains(file: Path):
    append(file, b"start\n\r 10%\r 50%\r100%\nend\n")
    assert texts(RawLog(file)) == ["start", "100%", "end"]


def test_a_progress_bar_without_end_is_shown_now_and_then(file: Path):
    clock = Clock()
    log = RawLog(file, clock=clock)
    append(file, b"\r 10%\r 20%\r 2")
    assert texts(log) == []
    clock.now = REDRAW_S
    assert texts(log) == [" 20%"]
    append(file, b"5%\r 30%\r")
    assert texts(log) == []
    append(file, b"100%\n")
    assert texts(log) == ["100%"]


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", "é".encode(), b"\xff", b"line\n"]), max_size=40), st.data()
)
def test_lines_do_not_depend_on_how_the_file_grew(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], data: st.DataObject
):
    file = tmp_path_factory.mktemp("raw") / "rank-0.log"
    content = b"".join(parts)
    cut = data.draw(st.integers(0, len(content)))
    file.write_bytes(content[:cut])
    growing = RawLog(file)
    early = texts(growing)
    file.write_bytes(content)
    assert early + texts(growing, final=True) == texts(RawLog(file), final=True)
