"""How a trainer that is measured takes turns with others: one step, then it waits until it is asked again.

Words go over stdin and stdout, so that a trainer of any environment can take part. Only Python is needed.
"""

import json
import sys
import time
from pathlib import Path

MARK = "TURN "


class Turns:
    """Is told before every step, and how many label tokens a step has; ends the process when nobody asks."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None
        self._tokens = 0

    def begin(self) -> None:
        """Tell of the step that ended, if one did, and wait for the next turn."""
        if self._began is None:
            self._tell({"ready": True})
        else:
            began, worked = self._began
            seconds, work = time.perf_counter() - began, time.process_time() - worked
            self._tell({"seconds": seconds, "work": work, "tokens": self._tokens, "peak": peak_memory()})
        self._tokens = 0
        if not sys.stdin.readline():
            raise SystemExit(0)
        self._began = time.perf_counter(), time.process_time()

    def count(self, tokens: int) -> None:
        """Label tokens of the present step, or of a part of it."""
        self._tokens += tokens

    def _tell(self, content: dict) -> None:
        print(MARK + json.dumps(content), flush=True)


def peak_memory() -> int:
    """Bytes of this process's largest resident size."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def read_jsonl(path: str) -> list[dict]:
    """The records of a file of JSON lines."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
