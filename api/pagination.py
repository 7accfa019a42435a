"""Limits and positions of lists."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

from api.problems import invalid
from store.errors import InvalidCursor
from trainer.config.problems import Problem

Item = TypeVar("Item")

MAX_ID = 2**63 - 1

PageLimit = Annotated[int, Query(ge=1, le=200, description="At most so many items")]
HistoryLimit = Annotated[int, Query(ge=1, le=5000, description="At most so many items")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before")]


class Page(BaseModel, Generic[Item]):
    """A part of a list. `next_cursor` asks for the next part; null means that this is all for now."""

    items: list[Item]
    next_cursor: str | None


@contextmanager
def valid_cursor(name: str = "cursor") -> Iterator[None]:
    """Answers 422 when the store refuses the cursor inside the block."""
    try:
        yield
    except InvalidCursor as error:
        msg = "is not a cursor that this list has given"
        raise invalid([Problem(("query", name), msg, "Take next_cursor of an earlier page.")]) from error


def one_of(after: Item | None, cursor: Item | None) -> Item | None:
    """The position that a client gives under one of two names. Raises ApiError (422) when it gives both."""
    if after is not None and cursor is not None:
        msg = "got both after and cursor, which mean the same"
        raise invalid([Problem(("query", "cursor"), msg, "Send one of them.")])
    return after if after is not None else cursor


def part_of(
    rows: Sequence[Item], key: Callable[[Item], str], limit: int, cursor: str | None
) -> tuple[Sequence[Item], str | None]:
    """A page of a short list that is at hand as a whole, and the cursor behind it.

    Args:
        key: names a row; the cursor is the key of the last row of the page before.
    """
    keys = [key(row) for row in rows]
    with valid_cursor():
        if cursor is not None and cursor not in keys:
            raise InvalidCursor(cursor)
    start = 0 if cursor is None else keys.index(cursor) + 1
    stop = start + limit
    return rows[start:stop], keys[stop - 1] if stop < len(rows) else None
