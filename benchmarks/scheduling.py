"""How long a pass of the scheduler takes to decide, with 10,000 jobs waiting for 500 hosts.

Half of the devices are taken already; the queue has jobs of all sizes, of ten projects and three priorities.
Exits with 1 when the largest pass takes a second or more, or grows faster than n log n.

    python benchmarks/scheduling.py [--runs 5]
"""

import argparse
import math
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import table, write_section
from worker.kind import Capacity, Request
from worker.placement import plan

HOSTS = 500
DEVICES = 8
SIZES = (1_000, 3_000, 10_000)
MOST_S = 1.0
NOISE = 1.5
"""Times of one length differ by so much on a machine that does other things, too."""


def hosts(chance: random.Random) -> list[Capacity]:
    found = []
    for number in range(HOSTS):
        free = tuple(sorted(chance.sample(range(DEVICES), chance.randint(0, DEVICES))))
        ends = tuple(chance.uniform(0, 3600) for _ in range(DEVICES - len(free)) if chance.random() < 0.7)
        found.append(Capacity(f"host{number:03}", "gpu", DEVICES, free, ends))
    return found


def queue(chance: random.Random, length: int) -> list[Request]:
    return [
        Request(
            f"job{number:05}",
            "gpu",
            nodes=chance.choice((1, 1, 1, 2, 4, 16)),
            devices_per_node=chance.choice((1, 1, 2, 4, 8)),
            priority=chance.choice((-1, 0, 0, 0, 1)),
            created_at=chance.uniform(0, 1e6),
            project=f"project{chance.randrange(10)}",
            limit_s=chance.choice((None, 60.0, 600.0, 7200.0)),
        )
        for number in range(length)
    ]


def measure(length: int, runs: int) -> tuple[float, int]:
    """The shortest time of a pass in seconds, and how many jobs it placed."""
    chance = random.Random(length)  # noqa: S311
    offers, waiting = hosts(chance), queue(chance, length)
    times, placed = [], 0
    for _ in range(runs):
        begin = time.perf_counter()
        placed = len(plan(waiting, offers).placed)
        times.append(time.perf_counter() - begin)
    return min(times), placed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    times, rows = {}, []
    for length in SIZES:
        times[length], placed = measure(length, runs)
        rows.append([f"{length:,}", f"{times[length] * 1000:.1f} ms", placed])
    first, last = SIZES[0], SIZES[-1]
    allowed = last * math.log(last) / (first * math.log(first))
    grown = times[last] / times[first]
    about = (
        f"A pass over the queue for {HOSTS} hosts of {DEVICES} devices, half of them taken; the shortest of"
        f" {runs}. {last // first} times the jobs took {grown:.1f} times as long; n log n is {allowed:.1f}."
    )
    heads = ["jobs that wait", "a pass", "jobs placed"]
    write_section("Decisions of the scheduler", f"{about}\n\n{table(heads, rows)}")
    return int(times[last] >= MOST_S or grown > NOISE * allowed)


if __name__ == "__main__":
    sys.exit(main())
