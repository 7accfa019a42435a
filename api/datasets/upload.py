"""An upload while it arrives: files of some splits, checked and written to a folder of their own."""

import errno
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from api.datasets.lines import Lines, Unusable
from api.datasets.splits import Kind, Split
from api.problems import ApiError, invalid
from api.schemas.jobs import PRINTABLE
from store.datasets import SPLITS, split_file
from trainer.config.data_kinds import KINDS
from trainer.config.problems import Problem
from trainer.config.values import show

LONGEST_NAME = 200
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
BEFORE_THE_END = {"Connection": "close"}
"""Headers of an answer that does not wait for the rest of the body."""
_HINTS = {
    "split": "Send each file in the field of its split.",
    "kind": "Leave it out: the first record tells it.",
}


class Upload:
    """Files and what was said about them.

    Everything that is wrong with them is told at the end, or as soon as no more can be read.

    Args:
        folder: where the splits are written; None: they are only checked.
        limit: most bytes of all files together, unpacked.
        split: what a file belongs to that does not say.
        name: what the data set is called.
        kind: sft, dpo or kto, or what tells it; None: as the first record shows.
    """

    def __init__(
        self,
        folder: Path | None,
        limit: int,
        split: str = "train",
        name: str | None = None,
        kind: str | Kind | None = None,
    ) -> None:
        self.splits: dict[str, Split] = {}
        self.split = split
        self.name = name
        self._folder = folder
        self._limit = limit
        self._kind = kind if isinstance(kind, Kind) else Kind(kind)
        self._received = self._unpacked = 0

    @property
    def kind(self) -> str:
        """What its records are."""
        return self._kind.name or "sft"

    @property
    def size(self) -> int:
        """Bytes of all splits, as they are stored."""
        return sum(split.size for split in self.splits.values())

    @property
    def sha256(self) -> str:
        """Of the content of all splits."""
        return content_hash({split.name: split.sha256 for split in self.splits.values()})

    def about(self) -> dict[str, dict[str, Any]]:
        """What is kept of each split with the data set."""
        return {name: self.splits[name].about() for name in SPLITS if name in self.splits}

    def say_kind(self, kind: str) -> None:
        """The client names the kind, which must come before the first file or agree with it."""
        if self.splits and kind != self._kind.name:
            msg = f"got {kind} behind files of {self._kind.name or 'no kind'}"
            raise refused_early([Problem(("body", "kind"), msg, "Send kind before the files.")])
        self._kind.name = kind

    def begin_file(self, split: str, label: str = "") -> "File":
        """One more file. `label` is its name in messages, and nothing else. Raises ApiError (507)."""
        if split not in self.splits:
            path = self._folder / split_file(split) if self._folder else None
            with explained_lack_of_room():
                self.splits[split] = Split(split, self._kind, path)
        return File(self, self.splits[split], label)

    def count(self, received: int = 0, unpacked: int = 0) -> None:
        """Count more bytes. Raises ApiError (413) when there are too many."""
        self._received += received
        self._unpacked += unpacked
        if max(self._received, self._unpacked) > self._limit:
            raise too_large(self._limit)

    def problems(self) -> list[Problem]:
        """Everything that is wrong with the data so far."""
        return [problem for split in self.splits.values() for problem in split.problems()]

    def finish(self) -> None:
        """Everything was sent.

        Raises:
            ApiError: 422 with everything that is wrong; 507.
        """
        if not self.splits:
            hint = "Send JSON lines, or a form with a file in the field train, dev or quant."
            raise invalid([Problem(("body",), "got no file", hint)])
        if problems := self.problems():
            raise invalid(problems)
        with explained_lack_of_room():
            for split in self.splits.values():
                split.settle()

    def close(self) -> None:
        """Let go of the files, complete or not."""
        for split in self.splits.values():
            split.close()


class File:
    """One file of an upload while it arrives. Both methods raise ApiError (413, 422, 507) when no more can be
    taken.
    """

    def __init__(self, upload: Upload, split: Split, label: str) -> None:
        self._upload = upload
        self._split = split
        self._label = label
        self._lines = Lines()

    def feed(self, data: bytes) -> None:
        """More of it."""
        self._upload.count(received=len(data))
        self._take(self._lines.feed(data))

    def end(self) -> None:
        """There is no more of it."""
        self._take(self._lines.finish())

    def _take(self, lines: Iterator[tuple[int, bytes]]) -> None:
        counted = self._lines.unpacked
        try:
            with explained_lack_of_room():
                for number, line in lines:
                    self._split.add(self._label, number, line)
                    self._upload.count(unpacked=self._lines.unpacked - counted)
                    counted = self._lines.unpacked
        except Unusable as error:
            self._split.refuse(self._label, f"{self._label or 'the file'}: {error.why}", error.hint)
            raise refused_early(self._upload.problems()) from error
        self._upload.count(unpacked=self._lines.unpacked - counted)


def content_hash(splits: Mapping[str, str]) -> str:
    """The SHA-256 of a data set, of those of its splits by name."""
    return sha256(json.dumps(splits, sort_keys=True).encode()).hexdigest()


def refused_early(problems: list[Problem]) -> ApiError:
    """422 that does not wait for the rest of the body."""
    refusal = invalid(problems)
    refusal.headers.update(BEFORE_THE_END)
    return refusal


def too_large(limit: int) -> ApiError:
    """413 that does not wait for the rest of the body."""
    detail = (
        f"The data have more than {limit} bytes, the most that this server takes (REGATTA_MAX_DATASET_BYTES)."
    )
    return ApiError("body-too-large", detail, headers=BEFORE_THE_END, max_bytes=limit)


def checked_field(name: str, value: str) -> str:
    """The value of a field beside the files. Raises ApiError (422)."""
    if name == "name":
        if not 1 <= len(value) <= LONGEST_NAME or not re.fullmatch(PRINTABLE, value):
            msg = f"got a text of {len(value)} characters, expected 1 to {LONGEST_NAME} printable ones"
            raise refused_early([Problem(("body", name), msg, "Send another name.")])
        return value
    expected = {"split": SPLITS, "kind": KINDS}[name]
    if value not in expected:
        msg = f"got {show(value)}, expected {', '.join(expected)}"
        raise refused_early([Problem(("body", name), msg, _HINTS[name])])
    return value


@contextmanager
def explained_lack_of_room() -> Iterator[None]:
    """Answers 507 when the disk is full inside the block."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        detail = (
            "The server's disk has no room for these data; nothing was stored. Ask its operator for room."
        )
        raise ApiError("storage-full", detail, headers=BEFORE_THE_END) from error
