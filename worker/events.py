"""Reads the event file of a trainer: whole lines only, from a byte offset, whatever the trainer wrote."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20
QUOTED = 120
LARGEST_STEP = 2**63 - 1
LATEST_TIME = 1e11
"""Unix seconds that are still a date."""

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
        event = json.loads(line, parse_constant=_null, parse_float=_finite)
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
    step, t = event.get("step"), event.get("t")
    if isinstance(step, int) and abs(step) > LARGEST_STEP:
        return _warning(line, "has a step of more than 64 bits")
    if not isinstance(t, int | float) or not 0 <= t < LATEST_TIME:
        event["t"] = time.time()
    return event if b"\\ud" not in line.lower() else _encodable(event)


def _finite(number: str) -> float | None:
    """None for what a float does not hold, as for the constants."""
    value = float(number)
    return value if math.isfinite(value) else None


def _encodable(event: dict[str, Any]) -> dict[str, Any]:
    """The event without halves of surrogate pairs, such as names of files in another encoding have."""
    return json.loads(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))


def _null(_constant: str) -> None:
    """NaN and the infinities have no place in JSON, nor in a JSON column."""


def _warning(line: bytes, complaint: str) -> dict[str, Any]:
    text = line.decode("utf-8", "replace").strip()
    shown = text if len(text) <= QUOTED else text[:QUOTED] + "…"
    return {"t": time.time(), "type": "warning", "msg": f"An event line of the trainer {complaint}: {shown}"}
