"""Lines of files that arrive in pieces, packed or not."""

import gzip
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.datasets.lines import Lines, Unusable
from trainer.config.data_files import LONGEST_LINE


def read(pieces: Iterable[bytes]) -> list[tuple[int, bytes]]:
    lines = Lines()
    found = [line for piece in pieces for line in lines.feed(piece)]
    return found + list(lines.finish())


def cut(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


@given(
    st.lists(st.sampled_from([b"a", b"bc ", b"", b"\t", b"\xff"])),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_the_pieces_do_not_matter(lines: list[bytes], size: int, packed: bool, crlf: bool) -> None:
    content = (b"\r\n" if crlf else b"\n").join(lines)
    sent = gzip.compress(content) if packed else content
    assert read(cut(sent, size)) == [(n, line.strip()) for n, line in enumerate(lines, 1) if line.strip()]


def test_a_byte_order_mark_is_left_out_of_the_first_line_only() -> None:
    assert read([b"\xef", b"\xbb\xbf{}\n\xef\xbb\xbf{}"]) == [(1, b"{}"), (2, b"\xef\xbb\xbf{}")]


def test_a_file_may_have_several_gzip_members_and_padding() -> None:
    packed = gzip.compress(b"a\nb") + gzip.compress(b"") + gzip.compress(b"c\n") + bytes(100)
    assert read(cut(packed, 7)) == [(1, b"a"), (2, b"bc")]


def test_very_many_small_members_are_read_in_reasonable_time() -> None:
    assert read([gzip.compress(b"a\n") * 20_000])[-1] == (20_000, b"a")


@pytest.mark.timeout(60)
def test_what_unpacks_to_very_much_more_than_it_is_is_refused() -> None:
    packer = zlib.compressobj(wbits=31)
    line = b"x" * ((1 << 20) - 1) + b"\n"
    bomb = b"".join(packer.compress(line) for _ in range(300)) + packer.flush()
    assert len(bomb) < 1 << 20
    with pytest.raises(Unusable, match="200 times its size"):
        read([bomb])


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_that_does_not_end_is_refused_before_it_is_all_there(packed: bool) -> None:
    lines = Lines()
    packer = zlib.compressobj(wbits=31)
    sent = 0

    def feed() -> None:
        nonlocal sent
        while True:
            piece = b"x" * (1 << 20)
            list(lines.feed(packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) if packed else piece))
            sent += len(piece)

    with pytest.raises(Unusable, match="line 1 is longer than 64 MiB"):
        feed()
    assert sent == LONGEST_LINE
