"""Reads the event file of a trainer: whole lines only, from a byte offset, whatever the trainer wrote."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20
QUOTED = 120

_REQUIRED: Mapping[str, Mapping[str, type]] = {
    "progress": {"step": int},
    "metric": {"step": int},
    "eval": {"step": int},
    "checkpoint": {"name": str, "path": str, "step": int},
    "checkpoint_removed": {"name": str},
    "warning": {"msg": str},
    "result": {"path": str},
    "error": {"msg": str},
}


@dataclass(frozen=True)
class Record:
    """One event, and the byte offset in the file at which it ends."""

    event: dict[str, Any]
    end: int


def read_events(path: Path, offset: int, *, final: bool = False) -> list[Record]:
    """The events that follow the offset, at most about 1 MiB of them; empty when there is nothing new.

    A last line without a newline waits for the rest of it, unless `final` says that nothing more will be
    written. A line that is not an event becomes a warning event in its place.
    """
    data = _read(path, offset)
    whole = data.rfind(b"\n") + 1
    full = len(data) == CHUNK_BYTES
    if (whole == 0 and full) or (final and not full):
        whole = len(data)
    records, end = [], offset + whole
    for line in data[:whole].removesuffix(b"\n").split(b"\n"):
        offset = min(offset + len(line) + 1, end)
        if line.strip():
            records.append(Record(_event(line), offset))
    return records


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""


def _event(line: bytes) -> dict[str, Any]:
    """The event in the line, with a time; a warning event when there is none."""
    try:
        event = json.loads(line, parse_constant=_null)
    except (ValueError, RecursionError):
        return _warning(line, "is not JSON")
    if not isinstance(event, dict):
        return _warning(line, "is not a JSON object")
    kind = event.get("type")
    fields = _REQUIRED.get(kind) if isinstance(kind, str) else None
    if fields is None:
        return _warning(line, f"has an unknown type; known are {', '.join(_REQUIRED)}")
    for name, kind in fields.items():
        if not isinstance(event.get(name), kind) or isinstance(event.get(name), bool):
            return _warning(line, f"has no {kind.__name__} {name!r}")
    if not isinstance(event.get("t"), int | float):
        event["t"] = time.time()
    return event


def _null(_constant: str) -> None:
    """NaN and the infinities have no place in JSON, nor in a JSON column."""


def _warning(line: bytes, complaint: str) -> dict[str, Any]:
    text = line.decode("utf-8", "replace").strip()
    shown = text if len(text) <= QUOTED else text[:QUOTED] + "…"
    return {"t": time.time(), "type": "warning", "msg": f"An event line of the trainer {complaint}: {shown}"}
