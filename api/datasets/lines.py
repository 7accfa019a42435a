"""From the bytes of an uploaded file, as they arrive, to its lines: unpacked when they are gzip."""

import zlib
from collections.abc import Iterator

from trainer.config.data_files import BOM, FEW_BYTES, LARGEST_RATIO, LONGEST_LINE

GZIP = b"\x1f\x8b"
PIECE = 1 << 20
PACKED_PIECE = 1 << 14
"""Small, because what is behind the end of a gzip member is copied, and members may be tiny and many."""
_GZIP_WINDOW = 31


class Unusable(Exception):  # noqa: N818  (named for what the file is)
    """A file of which no more can be read."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


class Lines:
    """The lines of one file that are not blank, each with its number from 1 and without space around it.

    Both methods raise Unusable: for gzip that is broken or unpacks to very much more than it is, for a line
    above 64 MiB, and for a JSON array.
    """

    def __init__(self) -> None:
        self.unpacked = 0
        """Bytes, so far."""
        self._unpacker = _Unpacker()
        self._number = 0
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The lines that end in `data`."""
        for piece in self._unpacker.feed(data):
            yield from self._complete(piece)

    def finish(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are left."""
        for piece in self._unpacker.finish():
            yield from self._complete(piece)
        last, self._rest = bytes(self._rest), bytearray()
        yield from self._counted([last] if last else [])

    def _complete(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        self.unpacked += len(piece)
        searched = len(self._rest)
        self._rest += piece
        end = self._rest.rfind(b"\n", searched)
        lines = bytes(self._rest[:end]).split(b"\n") if end >= 0 else []
        del self._rest[: end + 1]
        yield from self._counted(lines)
        self._refuse_long(self._rest, self._number + 1)

    def _counted(self, lines: list[bytes]) -> Iterator[tuple[int, bytes]]:
        for line in lines:
            self._number += 1
            if self._number == 1:
                line = line.removeprefix(BOM)
                _refuse_array(line)
            self._refuse_long(line, self._number)
            if stripped := line.strip():
                yield self._number, stripped

    def _refuse_long(self, line: bytes | bytearray, number: int) -> None:
        if len(line) > LONGEST_LINE:
            raise Unusable(
                f"line {number} is longer than {LONGEST_LINE >> 20} MiB", "Put one record on a line."
            )


def _refuse_array(first_line: bytes) -> None:
    if first_line.lstrip().startswith(b"["):
        raise Unusable(
            "it is one JSON array, expected JSON lines (one object per line)",
            "Convert it, for example with: jq -c '.[]' OLD > NEW",
        )


class _Unpacker:
    """Passes bytes through, or unpacks them when they begin as gzip does."""

    def __init__(self) -> None:
        self._head = b""
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self._packs: bool | None = None
        self._packed = self._unpacked = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._packs is None:
            data = self._head + data
            if len(data) < len(GZIP):
                self._head = data
                return
            self._packs = data.startswith(GZIP)
        if self._packs:
            for start in range(0, len(data), PACKED_PIECE):
                yield from self._unpack(data[start : start + PACKED_PIECE])
        elif data:
            yield data

    def finish(self) -> Iterator[bytes]:
        if self._packs is None:
            if self._head:
                yield self._head
            return
        while self._packs and not self._member.eof:
            piece = self._bounded(self._decompress(b""))
            if not piece and not self._member.eof:
                raise _broken("it ends too early")
            yield piece

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        self._packed += len(data)
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")  # padding between or behind the members of a file
                if not data:
                    return
                self._member = zlib.decompressobj(_GZIP_WINDOW)
            yield self._bounded(self._decompress(data))
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def _decompress(self, data: bytes) -> bytes:
        try:
            return self._member.decompress(data, PIECE)
        except zlib.error as error:
            raise _broken(str(error)) from None

    def _bounded(self, piece: bytes) -> bytes:
        self._unpacked += len(piece)
        if self._unpacked > max(FEW_BYTES, LARGEST_RATIO * self._packed):
            raise Unusable(
                f"it unpacks to more than {LARGEST_RATIO} times its size, as no text does",
                "Send it without gzip.",
            )
        return piece


def _broken(why: str) -> Unusable:
    return Unusable(f"it cannot be unpacked: {why}", "Write the gzip file again.")
