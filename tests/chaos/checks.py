"""What has to hold after a chaos run, however it went. Every check gives its complaints; none are wanted."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import select

from store.database import Database, database_now
from store.tables import Attempt, AttemptNode
from tests.chaos.cluster import Cluster
from tests.chaos.jobs import TRAINING, Platform, Wanted


@dataclass(frozen=True)
class Use:
    """A device that was given to an attempt for a while (unix seconds)."""

    since: float
    until: float
    job_id: str
    attempt: int


def ends(platform: Platform, wanted: Sequence[Wanted]) -> list[str]:
    """Every job has succeeded, or was cancelled as asked, and there are no others."""
    complaints = []
    shown = {job["id"]: job for job in platform.pages("/jobs")}
    if len(shown) != len(wanted):
        complaints.append(f"{len(wanted)} jobs were submitted, {len(shown)} are there")
    for job in wanted:
        found = shown.get(job.job_id, {"status": "unknown"})
        if found["status"] != ("cancelled" if job.cancel_accepted else "succeeded"):
            complaints.append(
                f"job {job.number} ({job.task}, {job.job_id}) is {found['status']}: {found.get('reason')}, "
                f"{found.get('message')}"
            )
    return complaints


def metrics(platform: Platform, wanted: Sequence[Wanted]) -> list[str]:
    """The metric of each optimizer step is there once; a cancelled job has those of its first steps."""
    complaints = []
    for job in (one for one in wanted if one.task in TRAINING):
        steps = [row["step"] for row in platform.pages(f"/jobs/{job.job_id}/metrics", kind="train")]
        last = max(steps, default=0) if job.cancel_accepted else job.steps
        if sorted(steps) != list(range(1, last + 1)):
            complaints.append(
                f"job {job.number} ({job.job_id}) has metrics of the steps {steps}, not of 1..{last}"
            )
    return complaints


def terminal_states(platform: Platform, wanted: Sequence[Wanted]) -> list[str]:
    """Nothing has happened to a job after its end."""
    complaints = []
    for job in wanted:
        rows = platform.pages(f"/jobs/{job.job_id}/events")
        statuses = [row["to_status"] for row in rows if row["type"] == "status"]
        final = [status in ("succeeded", "failed", "cancelled") for status in statuses]
        if final.count(True) != 1 or not final[-1]:
            complaints.append(f"job {job.number} ({job.job_id}) went through {statuses}")
    return complaints


def log_lines(cluster: Cluster, platform: Platform, wanted: Sequence[Wanted]) -> list[str]:
    """What is served of an attempt are the first lines of its trainer, and all of the last attempt's."""
    complaints = []
    for job in wanted:
        served: dict[int, list[str]] = defaultdict(list)
        for line in platform.pages(f"/jobs/{job.job_id}/logs"):
            served[line["attempt"]].append(line["line"])
        raw = {
            int(path.parent.name): path.read_text().splitlines()
            for path in cluster.folder.glob(f"host-*/work/{job.job_id}/attempts/*/rank-0.log")
        }
        for attempt, written in raw.items():
            lines = served.get(attempt, [])
            expected = written if attempt == max(raw) else written[: len(lines)]
            if job.resources.get("devices_per_node", 1) == 1 and lines != expected:
                complaints.append(
                    f"job {job.number} ({job.job_id}), attempt {attempt}: {len(lines)} lines are served, "
                    f"{len(written)} were written, or they are not the same"
                )
    return complaints


def double_bookings(database: Database) -> list[str]:
    """No device was given to two attempts at the same time, by the history of all attempts."""
    uses: dict[tuple[str, int], list[Use]] = defaultdict(list)
    with database.reading() as session:
        now = database_now(session)
        rows = session.execute(
            select(AttemptNode, Attempt.placed_at).join(
                Attempt, (Attempt.job_id == AttemptNode.job_id) & (Attempt.number == AttemptNode.attempt)
            )
        )
        for node, placed_at in rows:
            for device in node.devices:
                until = now if node.ended_at is None else node.ended_at
                uses[node.host, device].append(Use(placed_at, until, node.job_id, node.attempt))
    complaints = []
    for (host, device), history in uses.items():
        history.sort(key=lambda use: use.since)
        for before, after in pairwise(history):
            if after.since < before.until:
                complaints.append(f"device {device} of {host} was given to {before} and {after}")
    return complaints


def held_devices(database: Database) -> list[str]:
    """No device is still given to an attempt."""
    with database.reading() as session:
        held = session.execute(select(AttemptNode).where(AttemptNode.ended_at.is_(None))).scalars()
        return [f"{node.host} still holds {node.devices} for {node.job_id}, {node.attempt}" for node in held]


def orphans(cluster: Cluster) -> list[str]:
    """No process of an attempt lives."""
    return [
        f"{found.kind} of {found.job_id}, {found.attempt} on {found.host} lives"
        for found in cluster.processes()
    ]


def weights(platform: Platform, job_id: str) -> dict[str, Any]:
    """The digests of a result's weights."""
    files = platform.get(f"/jobs/{job_id}/result")["files"]
    return {file["path"]: file["sha256"] for file in files if file["path"].endswith(".safetensors")}


def devices_of(
    database: Database, attempts: set[tuple[str, int]]
) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """The devices (host, number) that attempts (job id, number) were given."""
    if not attempts:
        return {}
    with database.reading() as session:
        query = select(AttemptNode).where(AttemptNode.job_id.in_({job_id for job_id, _ in attempts}))
        nodes = list(session.execute(query).scalars())
    found: dict[tuple[str, int], list[tuple[str, int]]] = {attempt: [] for attempt in attempts}
    for node in nodes:
        if (node.job_id, node.attempt) in attempts:
            found[node.job_id, node.attempt] += [(node.host, device) for device in node.devices]
    return found
