"""All that an attempt has to tell: its events to the database, its lines to the archive and to followers."""

from collections.abc import Callable

from store.attempts import events_offset
from worker.gang_logs import GangShipper
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
        rank = rank_of(folder) if spec.hosts > 1 else None
        self.events = EventReporter(services, spec, folder, offset, mask, rank)
        self._reports = Pump("events", self.events.step, fenced)
        self._logs = [
            Pump(name, step, fenced) for name, step in _log_steps(services, spec, folder, mask, rank)
        ]
        self._folder = folder

    def start(self) -> None:
        """Deliver from now on."""
        for pump in (self._reports, *self._logs):
            pump.start()

    def drain(self, give_up: Callable[[], bool]) -> bool:
        """The attempt writes nothing any more: deliver the rest. False when that was given up."""
        archive, *stream = self._logs
        for pump in (self._reports, archive):
            pump.finish()
        for pump in (self._reports, archive):
            while pump.is_alive() and not give_up():
                pump.join(0.1)
        for pump in stream:
            pump.finish()
            pump.join(STREAM_PATIENCE_S)
        for pump in (self._reports, *self._logs):
            pump.abandon()
        delivered = self._reports.drained and archive.drained
        if delivered:
            self._folder.delivered.touch()
        return delivered

    def drain_log(self, timeout_s: float) -> None:
        """The attempt is over for this host, and writes nothing any more: deliver the rest of its lines."""
        archive = self._logs[0]
        archive.finish()
        archive.join(timeout_s)
        for pump in self._logs:
            pump.abandon()


def rank_of(folder: AttemptFolder) -> int:
    """Which of the hosts of an attempt this one was; 0 where it got so little done that there is no spec."""
    try:
        return Spec.read(folder.spec).rank
    except FileNotFoundError:
        return 0


def _log_steps(
    services: Services, spec: Spec, folder: AttemptFolder, mask: Mask, rank: int | None
) -> list[tuple[str, Callable[[bool], bool]]]:
    """What ships the lines: first to the archive, then, on a host that is alone, to the live stream."""
    if rank is not None:
        return [("log", GangShipper(services, spec, folder, rank, mask).step)]
    archive = ArchiveShipper(services.archive, spec.job_id, folder, services.settings.log_flush_s, mask)
    stream = StreamShipper(services.stream, spec.job_id, folder)
    return [("log archive", archive.step), ("log stream", stream.step)]


def reported_offset(services: Services, spec: Spec, folder: AttemptFolder) -> int:
    """How much of an attempt's event file the database has."""
    with services.database.reading() as session:
        rank = rank_of(folder) if spec.hosts > 1 else 0
        return events_offset(session, spec.job_id, folder.number, rank)
