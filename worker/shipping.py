"""Ships the numbered lines of an attempt: to the live stream for followers, to the archive for good."""

import time

from store.logs import LogArchive, LogStream
from worker.masking import NOTHING, Mask
from worker.spool import Spool, SpoolReader
from worker.workspace import AttemptFolder

SEGMENT_BYTES = 1 << 20


class StreamShipper:
    """Sends lines to the broker, which itself refuses what it has got before."""

    def __init__(self, stream: LogStream, job_id: str, folder: AttemptFolder) -> None:
        self._stream = stream
        self._job_id = job_id
        self._attempt = folder.number
        self._reader = SpoolReader(folder)
        self._resumed = False

    def step(self, _final: bool) -> bool:
        """Send a batch; True when there may be more.

        Raises: redis.RedisError while the broker is away.
        """
        if not self._resumed:
            self._resume()
        lines, offset = self._reader.read()
        if not lines:
            return False
        end = self._stream.append(self._job_id, lines)
        if end.attempt == self._attempt and end.seq < lines[-1].seq:
            self._reader.seek(end.seq)  # the broker has lost its last entries
        else:
            self._reader.advance(offset)
        return True

    def _resume(self) -> None:
        end = self._stream.position(self._job_id)
        if end is not None and end.attempt == self._attempt:
            self._reader.seek(end.seq)
        self._resumed = True


class ArchiveShipper:
    """Numbers the lines of the raw logs and writes them to the archive, a segment at a time."""

    def __init__(
        self,
        archive: LogArchive,
        job_id: str,
        folder: AttemptFolder,
        flush_s: float,
        mask: Mask = NOTHING,
    ) -> None:
        self._archive = archive
        self._job_id = job_id
        self._attempt = folder.number
        self._spool = Spool(folder, mask)
        self._reader = SpoolReader(folder)
        self._flush_s = flush_s
        self._flushed_at = time.monotonic()
        self._resumed = False

    def step(self, final: bool) -> bool:
        """Number new lines, and archive them when it is time; True when there may be more.

        A final step that finds nothing more has compacted the archive.
        Raises: OSError or ArtifactError while the archive or the disk cannot be written.
        """
        more = self._spool.collect(final=final)
        ending = final and not more
        if not ending and time.monotonic() - self._flushed_at < self._flush_s:
            return more
        if not self._resumed:
            self._reader.seek(self._archive.position(self._job_id, self._attempt).seq)
            self._resumed = True
        lines, offset = self._reader.read(SEGMENT_BYTES)
        if offset - self._reader.offset < SEGMENT_BYTES:  # that is all there is now
            self._flushed_at = time.monotonic()
        if lines:
            self._archive.append(self._job_id, lines)
            self._reader.advance(offset)
            return True
        if ending:
            self._archive.compact(self._job_id, self._attempt)
            self._spool.close()
        return more
