"""One split of an upload: its records are checked, counted, and written in the form that is stored.

The stored form has one record a line, without blank lines or space around a record, so that it does not
matter how the lines ended or whether they were packed.
"""

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from trainer.config.data_kinds import PARSERS, SAMPLES, kind_of
from trainer.config.lengths import Lengths
from trainer.config.preflight.data import Tally
from trainer.config.problems import Problem

MOST_OFFSETS = 256


@dataclass
class Kind:
    """What all records of an upload are: as the client said, else as the first record shows."""

    name: str | None

    def stored(self, line: bytes) -> bytes:
        """The form in which the line that was parsed last is kept."""
        return line

    def parse(self, line: bytes) -> Any:
        """The record of a line. Raises RecordError."""
        if self.name is None:
            self.name = kind_of(line)
        return PARSERS[self.name or "sft"](line)


class Split:
    """Records in the order in which they come, from one file or several.

    Args:
        name: train, dev or quant.
        path: where to write them, which must not exist; None: nowhere.
    """

    def __init__(self, name: str, kind: Kind, path: Path | None) -> None:
        self.name = name
        self.path = path
        self.size = 0
        """Bytes, as they are stored."""
        self._kind = kind
        self._tally = Tally(name, kind.parse)
        self._hash = sha256()
        self._index = _Index()
        self._characters = Lengths()
        self._open = ExitStack()
        self._file = self._open.enter_context(path.open("xb")) if path else None

    @property
    def sha256(self) -> str:
        """Of what was written."""
        return self._hash.hexdigest()

    @property
    def is_broken(self) -> bool:
        """Whether something in it cannot be used."""
        return bool(self._tally.problems)

    def add(self, file: str, number: int, line: bytes) -> None:
        """Take one line; `file` is the name of its file in messages, empty when it has none."""
        record = self._tally.add(file, number, line)
        if record is None:
            return
        texts = chain(record.src, record.tgt, getattr(record, "responses", ()))
        self._characters.add(sum(map(len, texts)))
        if self.is_broken:
            return
        self._index.add(self.size)
        stored = self._kind.stored(line) + b"\n"
        self._hash.update(stored)
        self.size += len(stored)
        if self._file:
            self._file.write(stored)

    def refuse(self, file: str, why: str, hint: str) -> None:
        """Note what keeps a whole file from being read on."""
        self._tally.problems.append(Problem((self.name, file), why, hint))

    def problems(self) -> list[Problem]:
        """All that is wrong with the records, each at its place below `body`."""
        found = self._tally.result(self.name, SAMPLES[self._kind.name or "sft"])
        return [replace(each, loc=("body", *(part for part in each.loc if part != ""))) for each in found]

    def settle(self) -> None:
        """Wait until what was written is on the disk."""
        if self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        self.close()

    def close(self) -> None:
        """Write no more."""
        with suppress(OSError):  # what a full disk did not take is given up
            self._open.close()

    def about(self) -> dict[str, Any]:
        """What is kept with the data set."""
        counted = self._tally.statistics
        return {
            "examples": counted["examples"],
            "turns": counted["turns"],
            "bytes": self.size,
            "sha256": self.sha256,
            "characters": self._characters.as_dict(),
            "index": {"stride": self._index.stride, "offsets": self._index.offsets},
        }


class _Index:
    """Where every `stride`-th line begins; at most `MOST_OFFSETS` of them, however many lines there are."""

    def __init__(self) -> None:
        self.stride = 1
        self.offsets: list[int] = []
        self._lines = 0

    def add(self, offset: int) -> None:
        if self._lines % self.stride == 0:
            self.offsets.append(offset)
            if len(self.offsets) > MOST_OFFSETS:
                self.offsets = self.offsets[::2]
                self.stride *= 2
        self._lines += 1
