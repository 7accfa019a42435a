"""Log lines of jobs: a live stream on the broker, durable segments among the artifacts, one reader."""

from store.logs.archive import LogArchive
from store.logs.following import follow_logs
from store.logs.lines import START, LogLine, Position, parse_position
from store.logs.reading import LogPage, read_logs, tail_logs
from store.logs.stream import LogStream

__all__ = [
    "START",
    "LogArchive",
    "LogLine",
    "LogPage",
    "LogStream",
    "Position",
    "follow_logs",
    "parse_position",
    "read_logs",
    "tail_logs",
]
