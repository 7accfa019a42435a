"""Work that threads do ahead of the one that needs it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: So many results are made at the same time, so no more of them lie in memory.
THREADS = 2


def done_ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Every item with what `work` makes of it, in order; the next ones are being made meanwhile.

    What it raises is raised when its item is due.
    """
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    with ThreadPoolExecutor(THREADS, "ahead") as pool:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            if len(waiting) > THREADS:
                done, result = waiting.popleft()
                yield done, result.result()
        for item, result in waiting:
            yield item, result.result()
