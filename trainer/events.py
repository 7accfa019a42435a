"""The event stream of a training process: one JSON object per line, appended to a file.

Whoever started the process (the worker, or a person with ``tail -f``) reads the file while it grows, so every
line is written whole with one system call and holds strict JSON: a number that is not finite becomes
``null``, and a ``warning`` event says which one it was.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from trainer.config.problems import Problem

log = logging.getLogger(__name__)

Event = dict[str, Any]

OF_FOLDERS = ("checkpoint", "result")
"""Kinds of events that tell of folders which are ready."""


class EventWriter:
    """Writes events to a file, hands them to a listener, or both, or neither.

    Args:
        path: file to append to; created when missing. None writes no file.
        listener: called with each event in the same process (a progress bar).
        kinds: write no other kinds of events; None: all.
    """

    def __init__(
        self,
        path: Path | None = None,
        listener: Callable[[Event], None] | None = None,
        kinds: Collection[str] | None = None,
    ) -> None:
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._listener = listener
        self._kinds = kinds

    @classmethod
    def from_environment(cls, kinds: Collection[str] | None = None) -> EventWriter:
        """A writer to the file that ``REGATTA_EVENTS`` names; without it, one that writes nothing."""
        path = os.environ.get("REGATTA_EVENTS") if kinds is None or kinds else None
        return cls(Path(path) if path else None, kinds=kinds)

    def write(self, kind: str, **fields: object) -> None:
        """Write one event of type `kind`; fields must be JSON-able (numbers may be NaN or infinite)."""
        broken: list[str] = []
        strict = {name: finite(value, name, broken) for name, value in fields.items()}
        self._emit({"t": time.time(), "type": kind, **strict})
        for name in broken:
            self.warn(
                Problem(
                    (kind, name),
                    f"{name} of this {kind} event is not a finite number",
                    "It is shown as null. If the loss itself grows without bound, lower learning_rate.",
                )
            )

    def warn(self, problem: Problem) -> None:
        """Write a ``warning`` event and the same sentence to the log."""
        log.warning("%s", problem)
        self._emit({"t": time.time(), "type": "warning", **problem.as_dict()})

    def fail(self, kind: str, msg: str, problems: Iterable[Problem] = (), rank: int | None = None) -> None:
        """Write the ``error`` event.

        Args:
            kind: what sort of error it is, in a word.
            msg: one sentence that a user can act on.
            problems: what is wrong, one by one.
            rank: which of several processes failed first.
        """
        where = {} if rank is None else {"rank": rank}
        told = [problem.as_dict() for problem in problems]
        self._emit({"t": time.time(), "type": "error", "kind": kind, "msg": msg, "problems": told, **where})

    def close(self) -> None:
        """Close the file; further events reach only the listener."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _emit(self, event: Event) -> None:
        if self._kinds is not None and event["type"] not in self._kinds:
            return
        if self._file is not None:
            line = json.dumps(event, allow_nan=False).encode() + b"\n"
            while line:
                line = line[os.write(self._file, line) :]
        if self._listener is not None:
            self._listener(event)


def finite(value: Any, name: str = "", broken: list[str] | None = None) -> Any:
    """`value` with None for every number that JSON cannot hold; their names are added to `broken`."""
    if isinstance(value, float) and not math.isfinite(value):
        if broken is not None:
            broken.append(name)
        return None
    if isinstance(value, dict):
        return {key: finite(item, f"{name}.{key}", broken) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item, f"{name}.{index}", broken) for index, item in enumerate(value)]
    return value
