"""How the processes of the service write their own logs: as text, or one JSON object a line.

A JSON line has `time`, `level`, `logger` and `message`; `job_id`, `attempt` and `request_id` where they are
known; `exception` with the traceback; and what else a call gives as `extra`.
"""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_of_process: dict[str, Any] = {}
_of_context: ContextVar[dict[str, Any] | None] = ContextVar("log_context", default=None)


def bind(**fields: Any) -> None:
    """Add fields to all lines of this process, for example the job that it runs."""
    _of_process.update(fields)


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Add fields to the lines that are written within the block, in threads that it starts work in too."""
    token = _of_context.set((_of_context.get() or {}) | fields)
    try:
        yield
    finally:
        _of_context.reset(token)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= _of_process | (_of_context.get() or {})
        fields |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def configure_logging(log_format: str, level: int = logging.INFO) -> None:
    """Write the lines of all loggers to stderr, once, in the given format (`json` or `text`)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level, handlers=[handler])
