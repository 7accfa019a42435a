"""The durable part of a job's log: segments of JSON lines among the artifacts.

A segment is `jobs/<id>/logs/<attempt>/<first seq>.jsonl`. Segments may overlap for a moment while they are
compacted; readers go by line numbers, so they notice neither that nor a segment that has just gone.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from store.artifacts import Artifacts
from store.logs.lines import START, LogLine, Position, decode_lines, encode_lines

SEGMENT_BYTES = 4 << 20
"""What compaction fills a segment with."""


class LogArchive:
    """Log segments of all jobs in one artifact store."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    def append(self, job_id: str, lines: Sequence[LogLine]) -> None:
        """Store lines of one attempt that follow what is archived; storing them again changes nothing."""
        first = lines[0]
        self._artifacts.put_bytes(_key(job_id, first.attempt, first.seq), encode_lines(lines))

    def position(self, job_id: str, attempt: int) -> Position:
        """Behind the attempt's last archived line; `seq` 0 when there is none."""
        lines = self._last_lines(job_id, self._segments(job_id, attempt), 1)
        return lines[-1].position if lines else Position(attempt, 0)

    def read(self, job_id: str, after: Position = START) -> Iterator[LogLine]:
        """All archived lines behind `after`, in order, each once."""
        while True:
            segments = self._segments(job_id)
            begin = max(0, bisect_right(segments, Position(after.attempt, after.seq + 1)) - 1)
            try:
                for segment in segments[begin:]:
                    for line in self._load(job_id, segment):
                        if line.position > after:
                            after = line.position
                            yield line
                return
            except FileNotFoundError:
                continue  # compacted since it was listed: another segment has its lines

    def tail(self, job_id: str, count: int) -> list[LogLine]:
        """The last `count` archived lines."""
        while True:
            try:
                return self._last_lines(job_id, self._segments(job_id), count)
            except FileNotFoundError:
                continue

    def compact(self, job_id: str, attempt: int) -> None:
        """Merge the attempt's small segments into few large ones; a crash at any point does no harm. Segments
        between which lines are missing stay apart: these may still come.
        """
        group: list[LogLine] = []
        merged: list[Position] = []
        size = 0
        for segment in self._segments(job_id, attempt):
            data = self._bytes(job_id, segment)
            end = group[-1].seq if group else 0
            if merged and (size + len(data) > SEGMENT_BYTES or segment.seq > end + 1):
                self._replace(job_id, merged, group)
                group, merged, size, end = [], [], 0, 0
            group += [line for line in decode_lines(attempt, data) if line.seq > end]
            merged.append(segment)
            size += len(data)
        self._replace(job_id, merged, group)

    def _replace(self, job_id: str, segments: list[Position], lines: list[LogLine]) -> None:
        if len(segments) < 2:
            return
        self._artifacts.put_bytes(_key(job_id, *segments[0]), encode_lines(lines))
        for segment in segments[1:]:
            self._artifacts.delete_prefix(_key(job_id, *segment))

    def _segments(self, job_id: str, attempt: int | None = None) -> list[Position]:
        """(attempt, first seq) of all segments, in order."""
        folder = _folder(job_id) if attempt is None else f"{_folder(job_id)}/{attempt:06d}"
        keys = [PurePosixPath(key) for key in self._artifacts.list(folder)]
        return sorted(Position(int(key.parent.name), int(key.stem)) for key in keys)

    def _last_lines(self, job_id: str, segments: list[Position], count: int) -> list[LogLine]:
        lines: dict[Position, LogLine] = {}
        for segment in reversed(segments):
            lines |= {line.position: line for line in self._load(job_id, segment)}
            if len(lines) >= count:
                break
        return [lines[position] for position in sorted(lines)[-count:]]

    def _load(self, job_id: str, segment: Position) -> list[LogLine]:
        return decode_lines(segment.attempt, self._bytes(job_id, segment))

    def _bytes(self, job_id: str, segment: Position) -> bytes:
        return b"".join(self._artifacts.open(_key(job_id, *segment)))


def _folder(job_id: str) -> str:
    return f"jobs/{job_id}/logs"


def _key(job_id: str, attempt: int, first_seq: int) -> str:
    return f"{_folder(job_id)}/{attempt:06d}/{first_seq:012d}.jsonl"
