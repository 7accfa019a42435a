"""Hosts that get no more jobs because attempts have failed there in a way that may be the host's doing."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.audit import add_action
from store.clock import database_now
from store.reasons import OF_HOSTS, Reason
from store.retry_policy import ExclusionPolicy
from store.tables import Host, Job

_OWN = (Reason.device_error, Reason.host_failed, Reason.start_timeout)
"""These are the host's doing whatever the job is: each of them counts."""
_CRASHES = (Reason.trainer_crashed, Reason.trainer_killed)
"""These may be the job's: they count once for each job, and never exclude the last host of its kind."""
_KEPT = 32


def note_failure(
    session: Session, host_name: str, job_id: str | None, reason: Reason, policy: ExclusionPolicy
) -> bool:
    """Remember that an attempt has failed on a host; True when the host is excluded because of it.

    A broken device excludes at once; other failures, when there were `policy.limit` within `policy.window_s`
    and no success in between.
    """
    if reason not in _OWN and reason not in _CRASHES:
        return False
    query = select(Host).where(Host.name == host_name).with_for_update()
    host = session.execute(query, execution_options={"populate_existing": True}).scalar_one_or_none()
    if host is None:
        return False
    now = database_now(session)
    entry = {"job_id": job_id, "reason": reason.value, "at": now}
    recent = [each for each in host.failures if each["at"] > now - policy.window_s]
    host.failures = [*recent, entry][-_KEPT:]
    why = _verdict(reason, host.failures, policy)
    if why and is_excluded(host, now):
        why = ""
    if why and reason in _CRASHES and not _has_others(session, host, now):
        why = ""
    if why:
        exclude(session, host, why, policy)
    session.flush()
    return bool(why)


def exclude(session: Session, host: Host, why: str, policy: ExclusionPolicy) -> None:
    """Give the host no new jobs until the policy's time is over, or an operator uncordons it."""
    now = database_now(session)
    host.exclusion_reason = why
    host.excluded_until = now + policy.duration_s if policy.duration_s else None
    session.flush()
    data = {"host": host.name, "reason": why, "until": host.excluded_until}
    add_action(
        session, "host_excluded", f"host {host.name}: {why}", project=None, actor="scheduler", data=data
    )


def note_memory_errors(
    session: Session, host_name: str, counts: Mapping[str, int], policy: ExclusionPolicy
) -> bool:
    """Keep how many memory errors the devices of a host could not correct, by UUID; True when there are more
    than there were, and the host is excluded because of them.
    """
    query = select(Host).where(Host.name == host_name).with_for_update()
    host = session.execute(query, execution_options={"populate_existing": True}).scalar_one()
    before = {str(device.get("uuid")): device.get("uncorrected_errors") or 0 for device in host.devices}
    if all(counts.get(uuid, count) == count for uuid, count in before.items()):
        return False
    host.devices = [
        {**device, "uncorrected_errors": counts.get(str(device.get("uuid")), 0)} for device in host.devices
    ]
    grown = {uuid: counts[uuid] for uuid, count in before.items() if counts.get(uuid, 0) > count}
    if grown:
        worst = ", ".join(f"{uuid}: {count}" for uuid, count in sorted(grown.items()))
        exclude(session, host, f"memory errors that could not be corrected ({worst})", policy)
    session.flush()
    return bool(grown)


def note_success(session: Session, host_name: str) -> None:
    """A job has succeeded on the host: what failed there before is not held against it."""
    host = session.get(Host, host_name)
    if host is not None and host.failures:
        host.failures = []
        session.flush()


def is_excluded(host: Host, now: float) -> bool:
    """Whether the host gets no jobs because of what has failed there."""
    return bool(host.exclusion_reason) and (host.excluded_until is None or host.excluded_until > now)


def hosts_to_avoid(session: Session) -> dict[str, frozenset[str]]:
    """The hosts on which the last attempts of queued jobs have failed, where that may be the host's doing, by
    the jobs' ids.
    """
    query = select(Job.id, Job.evidence).where(Job.status == "queued", Job.reason.in_(OF_HOSTS))
    return {row.id: frozenset({row.evidence["host"]}) for row in session.execute(query) if row.evidence}


def _verdict(reason: Reason, failures: Sequence[Mapping[str, Any]], policy: ExclusionPolicy) -> str:
    """Why the host is to be excluded; empty when it is not."""
    if reason is Reason.device_error:
        return "a device is broken"
    own = [each for each in failures if each["reason"] in _OWN]
    crashed = {each["job_id"] for each in failures if each["reason"] in _CRASHES}
    if len(own) + len(crashed) < policy.limit:
        return ""
    names = ", ".join(sorted({each["reason"] for each in failures}))
    count = len(own) + len(crashed)
    return f"{count} attempts failed there within {policy.window_s:g} seconds ({names})"


def _has_others(session: Session, host: Host, now: float) -> bool:
    """Whether other hosts with devices of its kind get jobs."""
    others = select(func.count(Host.name)).where(
        Host.name != host.name,
        Host.device == host.device,
        Host.accepts_jobs.is_(True),
        Host.cordoned.is_(False),
        (Host.exclusion_reason == "") | (Host.excluded_until < now),
    )
    return session.execute(others).scalar_one() > 0
