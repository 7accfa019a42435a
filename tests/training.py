"""What tests of training share: records on disk, and a recorder of events."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.events import Event, EventWriter

PAIRS = [(f"What follows {number}?", f"After {number} comes {number + 1}.") for number in range(20)]


@dataclass
class Recorder:
    """Keeps the events that are written to it."""

    events: list[Event] = field(default_factory=list)

    @property
    def writer(self) -> EventWriter:
        return EventWriter(listener=self.events.append)

    def of(self, kind: str) -> list[Event]:
        """The events of one type, in order."""
        return [event for event in self.events if event["type"] == kind]


def write_records(path: Path, pairs: list[tuple[Any, Any]]) -> None:
    """Write a JSON lines file of SFT records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"src": src, "tgt": tgt}) + "\n" for src, tgt in pairs]
    path.write_text("".join(lines), encoding="utf-8")


def read_events(path: Path) -> list[Event]:
    """The events in a file; none while it does not exist."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tensors_of(directory: Path, file: str = "model.safetensors") -> bytes:
    """The bytes of a weights file, to compare two of them."""
    return (directory / file).read_bytes()
