"""Keyset pages and their opaque cursors."""

import base64
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from store.errors import InvalidCursor

Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Some items and the cursor that continues behind them (None: there are no more)."""

    items: list[Item]
    next_cursor: str | None


def cut_page(rows: Sequence[Any], limit: int) -> Page[Any]:
    """A page of rows, with `created_at` and `id`: one more than the page takes unless it is the last."""
    page = list(rows[:limit])
    more = len(rows) > limit
    return Page(page, encode_cursor(page[-1].created_at, page[-1].id) if more else None)


def encode_cursor(created_at: float, row_id: str) -> str:
    """An opaque cursor behind the row with this time and id."""
    text = json.dumps([created_at, row_id], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[float, str]:
    """What `encode_cursor` was given.

    Raises: InvalidCursor for any other text.
    """
    with suppress(ValueError, RecursionError):
        match json.loads(base64.urlsafe_b64decode(cursor.encode("ascii") + b"==")):
            case [float() as created_at, str() as row_id] if (
                math.isfinite(created_at)
                and row_id.isascii()
                and row_id.isprintable()
                and cursor == encode_cursor(created_at, row_id)
            ):
                return created_at, row_id
    raise InvalidCursor(
        f"cursor: {cursor[:80]!r} is not a cursor of this list; take next_cursor of an earlier page"
    )
