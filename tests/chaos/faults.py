"""What can go wrong in a cluster, and a plan of it that follows from a seed alone."""

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from tests.chaos.cluster import Cluster, Host, Part

Restore = Callable[[], None]


@dataclass(frozen=True)
class Done:
    """A fault that was brought about: to whom, and what ends it."""

    target: str
    restore: Restore


@dataclass(frozen=True)
class Planned:
    """A fault of the plan.

    Attributes:
        at_s: seconds after the beginning of the run.
        choice: 0 <= choice < 1, which of those that it can hit it hits.
        lasts_s: after so many seconds it is mended.
    """

    at_s: float
    kind: str
    choice: float
    lasts_s: float


Fault = Callable[[Cluster, float], Done | None]
"""Brings a fault about; None when there is nobody to hit."""


def kill_worker(cluster: Cluster, choice: float) -> Done | None:
    return _kill(cluster, _one(cluster.hosts, choice).worker)


def kill_api(cluster: Cluster, _choice: float) -> Done | None:
    return _kill(cluster, cluster.api)


def kill_scheduler(cluster: Cluster, _choice: float) -> Done | None:
    return _kill(cluster, cluster.scheduler)


def kill_broker(cluster: Cluster, _choice: float) -> Done | None:
    if not cluster.broker.is_alive():
        return None
    return Done(f"process {cluster.kill_broker()}", cluster.start_broker)


def kill_database(cluster: Cluster, _choice: float) -> Done | None:
    if not cluster.postgres.get_postmaster_info().is_running():
        return None
    return Done(f"process {cluster.kill_database()}", cluster.start_database)


def kill_trainer(cluster: Cluster, choice: float) -> Done | None:
    return _signal_process(cluster, "trainer", choice, psutil.Process.kill, None)


def kill_runner(cluster: Cluster, choice: float) -> Done | None:
    return _signal_process(cluster, "runner", choice, psutil.Process.kill, None)


def freeze_runner(cluster: Cluster, choice: float) -> Done | None:
    return _signal_process(cluster, "runner", choice, psutil.Process.suspend, psutil.Process.resume)


def cut_host(cluster: Cluster, choice: float) -> Done | None:
    """Close all its connections and refuse new ones."""
    host = _one(cluster.hosts, choice)
    for cable in host.cables:
        cable.cut()
    return Done(host.name, lambda: _mend(host))


def silence_host(cluster: Cluster, choice: float) -> Done | None:
    """Let all that it sends and should get vanish."""
    host = _one(cluster.hosts, choice)
    for cable in host.cables:
        cable.silence()
    return Done(host.name, lambda: _mend(host))


def cut_broker_of_host(cluster: Cluster, choice: float) -> Done | None:
    host = _one(cluster.hosts, choice)
    host.cables[1].cut()
    return Done(host.name, lambda: _mend(host))


KINDS: dict[str, tuple[Fault, float, tuple[float, float]]] = {
    "kill worker": (kill_worker, 3, (0, 8)),
    "kill trainer": (kill_trainer, 4, (0, 0)),
    "kill runner": (kill_runner, 2, (0, 0)),
    "freeze runner": (freeze_runner, 1, (2, 15)),
    "kill api": (kill_api, 2, (0, 5)),
    "kill scheduler": (kill_scheduler, 2, (0, 5)),
    "kill broker": (kill_broker, 2, (0, 15)),
    "kill database": (kill_database, 2, (0, 15)),
    "cut host": (cut_host, 2, (1, 25)),
    "silence host": (silence_host, 2, (1, 25)),
    "cut broker of host": (cut_broker_of_host, 1, (1, 25)),
}
"""What each kind does, how often it comes in proportion to the others, and how long it lasts (seconds)."""


def plan(seed: int, seconds: float, *, pause_s: tuple[float, float] = (1.0, 8.0)) -> list[Planned]:
    """The faults of a run of so many seconds; several may last at once."""
    chance = random.Random(seed)
    weights = [weight for _, weight, _ in KINDS.values()]
    planned, at_s = [], chance.uniform(*pause_s)
    while at_s < seconds:
        kind = chance.choices(list(KINDS), weights)[0]
        planned.append(Planned(at_s, kind, chance.random(), chance.uniform(*KINDS[kind][2])))
        at_s += chance.uniform(*pause_s)
    return planned


def _one(hosts: list[Host], choice: float) -> Host:
    return hosts[int(choice * len(hosts))]


def _kill(cluster: Cluster, part: Part) -> Done | None:
    pid = part.kill() if cluster.works(part) else None
    return None if pid is None else Done(f"{part.name}, process {pid}", part.start)


def _mend(host: Host) -> None:
    for cable in host.cables:
        cable.cut()
        cable.mend()


def _signal_process(
    cluster: Cluster,
    kind: str,
    choice: float,
    act: Callable[[psutil.Process], None],
    undo: Callable[[psutil.Process], None] | None,
) -> Done | None:
    found = [process for process in cluster.processes() if process.kind == kind]
    found.sort(key=lambda one: (one.host, one.job_id, one.attempt, one.process.pid))
    if not found:
        return None
    one = found[int(choice * len(found))]
    with contextlib.suppress(psutil.NoSuchProcess):
        act(one.process)

    def restore() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            if undo is not None:
                undo(one.process)

    return Done(f"job {one.job_id}, attempt {one.attempt} on {one.host}, process {one.process.pid}", restore)
