"""Brings the events of a trainer to the database: in order, each exactly once, through any outage."""

import logging
from typing import Any

from sqlalchemy.orm import Session

from store.checkpoints import RESULT, get_checkpoint
from store.errors import OffsetConflict
from store.gangs import forget_parts
from store.reports import report
from store.wake import job_channel, wake
from worker.events import Record, read_events
from worker.gang_publishing import publish_part
from worker.masking import NOTHING, Mask
from worker.outcome import LOST_PEER
from worker.publishing import CannotPublish, checkpoint_key, publish
from worker.pump import Fenced
from worker.services import Services
from worker.spec import Spec
from worker.workspace import AttemptFolder

BATCH = 200
_SAVED = ("checkpoint", "result")

log = logging.getLogger(__name__)


class EventReporter:
    """Reports the event file of one attempt; the database remembers how far.

    Args:
        spec: the live attempt, whose owner reports.
        folder: the attempt that wrote the events: the live one or an earlier one.
        offset: bytes of the file that were reported before.
        mask: takes secrets out of the events.
        rank: of the host that wrote them, where the attempt had several: each tells what it has saved and why
            it failed, the first one all else. None: it had one.
    """

    def __init__(
        self,
        services: Services,
        spec: Spec,
        folder: AttemptFolder,
        offset: int,
        mask: Mask = NOTHING,
        rank: int | None = None,
    ) -> None:
        self.error: dict[str, Any] | None = None
        self.result: dict[str, Any] | None = None
        self._services = services
        self._spec = spec
        self._folder = folder
        self._offset = offset
        self._mask = mask
        self._rank = rank

    def step(self, final: bool) -> bool:
        """Report some of the new events; True when there may be more.

        Raises:
            Fenced: the attempt is not this owner's any more.
            Exception: the database or the artifacts did not answer; call again later.
        """
        records = read_events(self._folder.events, self._offset, final=final)
        if not records:
            return False
        batch = _leading(records)
        events = [event for record in batch for event in self._prepared(self._masked(record.event))]
        self._report(events, batch[-1].end)
        wake(self._services.settings.broker_url, job_channel(self._spec.job_id))
        return True

    def _masked(self, event: dict[str, Any]) -> dict[str, Any]:
        """The event without secrets. Where weights lie has to stay as it is."""
        return self._mask.tree(event) | {key: event[key] for key in ("type", "path") if key in event}

    def _prepared(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """What is reported of an event: weights once they are published, a warning when they cannot be."""
        if event["type"] == "error":
            self.error = event
        if event["type"] not in _SAVED:
            return [event] if self._is_told(event) else []
        if event.get("stopped"):
            self.result = event
            return []  # its weights were announced as a checkpoint
        try:
            published = self._published(event)
        except CannotPublish as refusal:
            log.warning("%s", refusal)
            if event["type"] == "result":
                self.error = {"msg": str(refusal)}
            return [{"t": event["t"], "type": "warning", "msg": str(refusal)}]
        if event["type"] == "result":
            self.result = event
        return [] if published is None else [published]

    def _is_told(self, event: dict[str, Any]) -> bool:
        """Whether an event that is not about weights is reported: of several hosts, any host's own error."""
        if self._rank is not None and event["type"] == "error":
            return event.get("kind") != LOST_PEER
        return not self._rank

    def _published(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """The event of weights that the artifacts have in full; None while other hosts have to add some.

        Raises: CannotPublish, or whatever the artifacts and the database raise when they do not answer.
        """
        if self._rank is None:
            return publish(self._services.artifacts, self._spec, self._folder.number, event)
        return publish_part(self._services, self._spec, self._folder.number, self._rank, event)

    def _report(self, events: list[dict[str, Any]], end: int) -> None:
        with self._services.database.transaction() as session:
            before = self._keys(session, events)
            try:
                accepted = report(
                    session,
                    self._spec.job_id,
                    self._spec.attempt,
                    self._spec.owner,
                    events,
                    end,
                    start=self._offset,
                    source=self._folder.number,
                    rank=self._rank or 0,
                )
            except OffsetConflict as conflict:
                self._offset = conflict.expected
                raise
            if not accepted:
                raise Fenced
            unused = before - self._keys(session, events) | self._forgotten(session, events)
        self._offset = end
        for key in unused:
            self._services.artifacts.delete_prefix(key)

    def _forgotten(self, session: Session, events: list[dict[str, Any]]) -> set[str]:
        """Where files of weights lie that were removed before all hosts had stored theirs."""
        keys = set()
        for event in events if self._rank is not None else ():
            if event["type"] not in (*_SAVED, "checkpoint_removed"):
                continue
            name = RESULT if event["type"] == "result" else event["name"]
            attempt = self._folder.number
            if forget_parts(session, self._spec.job_id, attempt, name) and event["type"] not in _SAVED:
                keys.add(checkpoint_key(self._spec.job_id, attempt, name))
        return keys

    def _keys(self, session: Session, events: list[dict[str, Any]]) -> set[str]:
        """Where the weights that these events speak of lie now."""
        names = {
            RESULT if event["type"] == "result" else event["name"]
            for event in events
            if event["type"] in ("checkpoint", "checkpoint_removed", "result")
        }
        found = (get_checkpoint(session, self._spec.job_id, name) for name in names)
        return {checkpoint.key for checkpoint in found if checkpoint is not None}


def _leading(records: list[Record]) -> list[Record]:
    """The first records, up to one whose weights have to be published first."""
    for number, record in enumerate(records[:BATCH]):
        if record.event["type"] in ("checkpoint", "result"):
            return records[: max(number, 1)]
    return records[:BATCH]
