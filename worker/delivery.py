"""All that an attempt has to tell: its events to the database, its lines to the archive and to followers."""

from collections.abc import Callable

from store.attempts import events_offset
from worker.masking import NOTHING, Mask
from worker.pump import Pump
from worker.reporting import EventReporter
from worker.services import Services
from worker.shipping import ArchiveShipper, StreamShipper
from worker.spec import Spec
from worker.workspace import AttemptFolder

STREAM_PATIENCE_S = 2.0
"""How long the end of an attempt waits for the broker; what it does not take then, the archive has."""


class Delivery:
    """Delivers what one attempt's folder holds and still gets, in threads that survive any outage.

    Args:
        spec: the live attempt, in whose name is reported.
        folder: the attempt that is told of: the live one or an earlier one.
        fenced: called when the live attempt turns out to be over.
        mask: takes secrets out of all that is delivered.
    """

    def __init__(
        self,
        services: Services,
        spec: Spec,
        folder: AttemptFolder,
        offset: int,
        fenced: Callable[[], None],
        mask: Mask = NOTHING,
    ) -> None:
        self.events = EventReporter(services, spec, folder, offset, mask)
        archive = ArchiveShipper(services.archive, spec.job_id, folder, services.settings.log_flush_s, mask)
        stream = StreamShipper(services.stream, spec.job_id, folder)
        self._reports = Pump("events", self.events.step, fenced)
        self._archive = Pump("log archive", archive.step, fenced)
        self._stream = Pump("log stream", stream.step, fenced)
        self._folder = folder

    def start(self) -> None:
        """Deliver from now on."""
        for pump in (self._reports, self._archive, self._stream):
            pump.start()

    def drain(self, give_up: Callable[[], bool]) -> bool:
        """The attempt writes nothing any more: deliver the rest. False when that was given up."""
        for pump in (self._reports, self._archive):
            pump.finish()
        for pump in (self._reports, self._archive):
            while pump.is_alive() and not give_up():
                pump.join(0.1)
        self._stream.finish()
        self._stream.join(STREAM_PATIENCE_S)
        for pump in (self._reports, self._archive, self._stream):
            pump.abandon()
        delivered = self._reports.drained and self._archive.drained
        if delivered:
            self._folder.delivered.touch()
        return delivered


def reported_offset(services: Services, spec: Spec, folder: AttemptFolder) -> int:
    """How much of an attempt's event file the database has."""
    with services.database.reading() as session:
        return events_offset(session, spec.job_id, folder.number)
