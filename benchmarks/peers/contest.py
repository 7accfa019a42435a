"""Trainers that take turns: each makes one step while the others wait, so all see the same machine."""

import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.turns import MARK

HERE = Path(__file__).parent
#: Steps of each that are not counted: there it finds its memory.
WARM_UP = 1


@dataclass(frozen=True)
class Side:
    """One of the trainers: its interpreter, its script beside this file, and what it is to do."""

    name: str
    python: str
    script: str
    work: Mapping[str, object]


@dataclass
class Measured:
    """What a trainer took.

    Attributes:
        rates: label tokens per second of each step.
        work_rates: the same per second of processor time, which does not count what else the machine does.
        peak: largest resident size, bytes.
    """

    rates: list[float] = field(default_factory=list)
    work_rates: list[float] = field(default_factory=list)
    peak: int = 0

    @property
    def rate(self) -> float:
        """The median of `rates`."""
        return statistics.median(self.rates)

    @property
    def work_rate(self) -> float:
        """The median of `work_rates`."""
        return statistics.median(self.work_rates)


class _Running:
    """A trainer's process."""

    def __init__(self, side: Side, threads: int, log: Path) -> None:
        self._side, self._log = side, log
        env = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
            "TRL_EXPERIMENTAL_SILENCE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": str(HERE),
        }
        command = [side.python, str(HERE / side.script), json.dumps(dict(side.work))]
        with log.open("w") as errors:
            # In a session of its own: Linux shares the processor out between sessions first.
            process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("it has no pipes")
        self._process, self._asked, self._told = process, process.stdin, process.stdout

    def answer(self) -> dict:
        """What it tells when it is ready for a turn."""
        for line in self._told:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(f"{self._side.name} ended: {self._log.read_text()[-3000:]}")

    def step(self) -> dict:
        """Let it make a step; what it tells of it."""
        self._asked.write("\n")
        self._asked.flush()
        return self.answer()

    def end(self) -> None:
        self._process.kill()
        self._process.wait(timeout=30)


def contest(sides: Sequence[Side], rounds: int, threads: int, folder: Path) -> dict[str, Measured]:
    """What each side took in so many steps, by its name."""
    found = {side.name: Measured() for side in sides}
    with ExitStack() as ends:
        running = {}
        for number, side in enumerate(sides):
            running[side.name] = _Running(side, threads, folder / f"{number}.log")
            ends.callback(running[side.name].end)
        for process in running.values():
            process.answer()
        for number in range(WARM_UP + rounds):
            for name, process in running.items():
                told = process.step()
                found[name].peak = told["peak"]
                if number >= WARM_UP:
                    found[name].rates.append(told["tokens"] / told["seconds"])
                    found[name].work_rates.append(told["tokens"] / told["work"])
    return found
