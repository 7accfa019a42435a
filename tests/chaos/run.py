"""A seeded chaos run: `python -m tests.chaos.run --seed 7 --minutes 20`.

Small jobs of all tasks run on several hosts while every few seconds a part is killed, frozen or cut off and
comes back. What is submitted and what goes wrong when follows from the seed; what it has hit is written to an
event log, one JSON object a line, beside the logs of all parts.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import checks
from tests.chaos.cluster import Cluster, running_cluster
from tests.chaos.faults import KINDS, Done, plan
from tests.chaos.jobs import Material, Platform, Wanted, plan_jobs

PROGRAMS = Path(__file__).parent / "programs"
LOOK_S = 0.5


@dataclass(frozen=True)
class Options:
    """What a run is.

    Attributes:
        steps: most optimizer steps of a job.
        step_s: how long one takes in the stand-in for the trainer.
        real: train, in place of the stand-in.
        end_s: how long the jobs may take to end once nothing is disturbed any more.
    """

    seed: int
    seconds: float
    jobs: int
    steps: int = 40
    step_s: float = 0.2
    real: bool = False
    hosts: int = 4
    nodes: tuple[int, ...] = (1,)
    sample: int = 3
    pause_s: tuple[float, float] = (1.0, 8.0)
    end_s: float = 600.0


@dataclass
class Report:
    """What came of a run: complaints, and what else there is to say."""

    complaints: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


class Run:
    """One run on a cluster that has been started."""

    def __init__(self, cluster: Cluster, material: Material, options: Options) -> None:
        self._cluster = cluster
        self._material = material
        self._options = options
        self._platform = Platform(cluster.url)
        self._begin = time.monotonic()
        self._log = (cluster.folder / "events.jsonl").open("a", buffering=1)
        self._lock = threading.Lock()
        self._failures: list[str] = []
        self._faults: Counter[str] = Counter()

    def run(self) -> Report:
        """Disturb, restore, wait for the end of all jobs, and check."""
        options = self._options
        wanted = plan_jobs(
            options.seed, options.jobs, options.seconds, options.steps, self._material, options.nodes
        )
        for job in wanted:
            if job.at_s == 0.0:
                self._submit(job, wanted)
        self._begin = time.monotonic()
        users = [self._in_thread(self._use, job, wanted) for job in wanted]
        over = threading.Event()
        watcher = self._in_thread(self._watch, over)
        self._disturb()
        self._cluster.restore()
        self._note("restored")
        for user in users:
            user.join()
        self._platform.wait([job.job_id for job in wanted if job.job_id], options.end_s)
        self._note("all jobs have ended")
        self._wait_for_silence()
        over.set()
        watcher.join()
        return self._check(wanted)

    def _check(self, wanted: list[Wanted]) -> Report:
        cluster, platform = self._cluster, self._platform
        submitted = [job for job in wanted if job.job_id]
        each: list[Callable[[], list[str]]] = [
            lambda: checks.ends(platform, wanted),
            lambda: checks.metrics(platform, submitted),
            lambda: checks.terminal_states(platform, submitted),
            lambda: checks.log_lines(cluster, platform, submitted),
            lambda: checks.double_bookings(cluster.database),
            lambda: checks.held_devices(cluster.database),
            lambda: checks.orphans(cluster),
            lambda: self._compare(submitted),
        ]
        complaints = [*self._failures, *(complaint for check in each for complaint in check())]
        attempts = [platform.job(job.job_id)["attempt"] for job in submitted]
        facts = {
            "seed": self._options.seed,
            "jobs": len(wanted),
            "cancelled": sum(job.cancel_accepted for job in wanted),
            "attempts": sum(attempts),
            "most attempts of a job": max(attempts, default=0),
            "faults": dict(self._faults.most_common()),
            "seconds": round(time.monotonic() - self._begin),
        }
        for complaint in complaints:
            self._note("complaint", text=complaint)
        self._note("facts", **facts)
        return Report(complaints, facts)

    def _compare(self, wanted: list[Wanted]) -> list[str]:
        """Run a sample once more, undisturbed: the weights are the same."""
        chance = random.Random(self._options.seed + 2)
        trained = [job for job in wanted if job.steps and not job.cancel_accepted]
        complaints = []
        for job in chance.sample(trained, min(self._options.sample, len(trained))):
            again = Wanted(job.number, 0.0, job.task, job.config, job.resources)
            self._platform.submit(again, wanted, f"again-{job.number}")
            self._platform.wait([again.job_id], self._options.end_s)
            disturbed, undisturbed = (
                checks.weights(self._platform, job_id) for job_id in (job.job_id, again.job_id)
            )
            if disturbed != undisturbed or not disturbed:
                complaints.append(
                    f"job {job.number} ({job.job_id}) has other weights than undisturbed {again.job_id}"
                )
        return complaints

    def _use(self, job: Wanted, wanted: list[Wanted]) -> None:
        """Submit a job when it is time, and cancel it if that is planned."""
        if not job.job_id:
            self._sleep_until(job.at_s)
            while job.uses is not None and not wanted[job.uses].job_id:
                time.sleep(0.1)
            self._submit(job, wanted)
        if job.cancel_after_s is not None:
            self._sleep_until(job.at_s + job.cancel_after_s)
            Platform(self._cluster.url).cancel(job)
            self._note("cancelled", number=job.number, job_id=job.job_id, accepted=job.cancel_accepted)

    def _submit(self, job: Wanted, wanted: list[Wanted]) -> None:
        Platform(self._cluster.url).submit(job, wanted, f"seed-{self._options.seed}-{job.number}")
        self._note("submitted", number=job.number, task=job.task, job_id=job.job_id)

    def _disturb(self) -> None:
        """Bring the planned faults about, one after the other; each is mended when its time is over."""
        mending: list[threading.Thread] = []
        busy: set[str] = set()
        for planned in plan(self._options.seed, self._options.seconds, pause_s=self._options.pause_s):
            self._sleep_until(planned.at_s)
            key = planned.kind if planned.kind in ("kill broker", "kill database") else ""
            if key in busy:
                continue
            done = KINDS[planned.kind][0](self._cluster, planned.choice)
            if done is None:
                continue
            self._faults[planned.kind] += 1
            self._note(planned.kind, target=done.target, lasts_s=round(planned.lasts_s, 1))
            if key:
                busy.add(key)
            mending.append(self._in_thread(self._mend, planned.kind, planned.lasts_s, done, busy))
        for thread in mending:
            thread.join()

    def _mend(self, kind: str, lasts_s: float, done: Done, busy: set[str]) -> None:
        time.sleep(lasts_s)
        done.restore()
        busy.discard(kind)
        self._note(f"mended: {kind}", target=done.target)

    def _watch(self, over: threading.Event) -> None:
        """Look at the trainers that live: never may two attempts, of one job or of two, use one device."""
        devices: dict[tuple[str, int], list[tuple[str, int]]] = {}
        seen: set[frozenset[tuple[str, int]]] = set()
        while not over.wait(LOOK_S):
            live = {(one.job_id, one.attempt) for one in self._cluster.processes() if one.kind == "trainer"}
            with contextlib.suppress(Exception):
                devices |= checks.devices_of(self._cluster.database, live - devices.keys())
            users: dict[tuple[str, int], set[tuple[str, int]]] = {}
            for attempt in live:
                for device in devices.get(attempt, ()):
                    users.setdefault(device, set()).add(attempt)
            for device, attempts in users.items():
                if len(attempts) > 1 and frozenset(attempts) not in seen:
                    seen.add(frozenset(attempts))
                    self._fail(f"device {device} was used by {sorted(attempts)} at the same time")

    def _wait_for_silence(self) -> None:
        """What ended last may take a moment to be gone."""
        deadline = time.monotonic() + 60
        while checks.orphans(self._cluster) or checks.held_devices(self._cluster.database):
            if time.monotonic() > deadline:
                return
            time.sleep(0.2)

    def _in_thread(self, work: Callable[..., None], *args: object) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*args)
            except Exception as error:
                self._fail(f"{work.__name__}: {error!r}")

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _sleep_until(self, at_s: float) -> None:
        time.sleep(max(0.0, self._begin + at_s - time.monotonic()))

    def _fail(self, complaint: str) -> None:
        self._note("complaint", text=complaint)
        self._failures.append(complaint)

    def _note(self, what: str, **about: object) -> None:
        entry = {"at_s": round(time.monotonic() - self._begin, 2), "what": what, **about}
        with self._lock:
            self._log.write(json.dumps(entry) + "\n")


def chaos(options: Options, root: Path) -> tuple[Report, Path]:
    """Make what jobs need in `root`, start a cluster, run; the report, and the folder with all logs."""
    material = Material.make(root)
    env = {"CHAOS_STEP_S": str(options.step_s)}
    if not options.real:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PROGRAMS), os.environ.get("PYTHONPATH"))))
    with running_cluster(root, hosts=options.hosts, env=env) as cluster:
        return Run(cluster, material, options).run(), cluster.folder


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seed", type=int, default=int(time.time()))
    words.add_argument("--minutes", type=float, default=20.0)
    words.add_argument("--jobs", type=int, default=60)
    words.add_argument("--steps", type=int, default=100, help="most optimizer steps of a job")
    words.add_argument("--step-s", type=float, default=0.3, help="seconds that the stand-in takes for a step")
    words.add_argument("--real", action="store_true", help="train, in place of the stand-in for the trainer")
    words.add_argument(
        "--nodes", type=int, nargs="+", default=[1], help="numbers of hosts that jobs may have"
    )
    given = words.parse_args()
    options = Options(
        given.seed,
        60 * given.minutes,
        given.jobs,
        given.steps,
        given.step_s,
        given.real,
        nodes=tuple(given.nodes),
    )
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="regatta-material-") as root:
        report, folder = chaos(options, Path(root))
    print(json.dumps(report.facts, indent=1))
    for complaint in report.complaints:
        print(f"- {complaint}")
    print(f"{len(report.complaints)} complaints; events.jsonl and all logs: {folder}")
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
