"""Stores what POST /jobs asks for, once per Idempotency-Key."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from api.confidential import encrypted, leaks
from api.estimate import with_estimate
from api.principal import Principal
from api.problems import ApiError, invalid
from api.resources import Offer
from api.service import Service
from api.sources import Sources, StoredSources
from api.submission import Submission, check
from api.webhooks import Prepared, prepare
from store import idempotency, jobs, tables, wake
from store.errors import IdempotencyConflict
from store.hosts import devices_of_hosts
from store.inputs import InputGone
from store.job_rows import JobRow
from store.queue import Place, places
from store.secrets import secrets_of_project
from trainer.config.problems import Problem


def checked(
    service: Service,
    principal: Principal,
    body: Mapping[str, Any],
    *,
    count: bool = False,
    sources: Sources | None = None,
) -> Submission:
    """The checked body with its estimate. Raises ApiError (422) with everything that is wrong.

    Args:
        count: whether the tokens of its data are counted for the estimate.
        sources: the jobs and data sets that it may refer to; default: those of the client's project.
    """
    sources = sources or StoredSources(service.database, service.artifacts, principal.project)
    with service.database.reading() as session:
        hosts = _offers(session)
        stored = secrets_of_project(session, principal.project)
    networks = service.settings.webhook_allowed_networks
    submission = check(body, service.roots, lambda: hosts, sources, networks)
    if shown := leaks(service, stored, body):
        raise invalid(shown)
    submission = replace(submission, secrets=encrypted(service, submission.request.secrets))
    return with_estimate(submission, hosts, count=count)


@dataclass(frozen=True)
class Creation:
    """The job of a request.

    Attributes:
        row, place: the job and its place in the queue when this call has made it.
        webhook_secret: what was made for its webhook.
    """

    job_id: str
    row: JobRow | None = None
    place: Place | None = None
    webhook_secret: str | None = None


def create_job(
    service: Service,
    principal: Principal,
    body: Mapping[str, Any],
    key: str | None,
    translate: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda body: body,
) -> Creation:
    """The job of this body.

    A known key is answered before anything is checked: what could be submitted then may not be possible any
    more, and the client only wants to know what became of its first request.

    Args:
        translate: makes the body of POST /jobs of one that is sent elsewhere; a repetition is not translated
            again.

    Raises:
        ApiError: 422 for a bad body; 409 for a key that came with another body.
    """
    canonical = json.dumps(body, sort_keys=True, ensure_ascii=False).encode()
    try:
        known = _known(service, principal.project, key, canonical)
        if known is not None:
            return Creation(known.id)
        submission = checked(service, principal, translate(body))
        webhook = prepare(service.settings, submission.request.webhook)
        made = _store(service, new_job(principal, submission, webhook), key, canonical)
    except IdempotencyConflict as error:
        raise ApiError("idempotency-conflict", f"{error}.") from error
    except InputGone as error:
        raise invalid([gone(error)]) from error
    if made.row is None:
        return made
    wake.wake(service.settings.broker_url, wake.SCHEDULER)
    return replace(made, webhook_secret=webhook.made_secret if webhook else None)


def _known(service: Service, project: str, key: str | None, canonical: bytes) -> tables.Job | None:
    if key is None:
        return None
    with service.database.reading() as session:
        return idempotency.find_replay(session, project, key, canonical)


def _store(service: Service, new: jobs.NewJob, key: str | None, canonical: bytes) -> Creation:
    with service.database.transaction() as session:
        if key is None:
            row, created = jobs.add_job(session, new), True
        else:
            row, created = idempotency.create_or_replay(session, key, canonical, new)
        if not created:
            return Creation(row.id)
        place = places(session, [row.columns], may_wait=bool(new.inputs))
        return Creation(row.id, row, place.get(row.id))


def gone(error: InputGone) -> Problem:
    """What a job referred to was deleted, or has ended, while the job was checked."""
    return Problem(("body", "config", error.argument), str(error), "Send the job again.")


def new_job(principal: Principal, submission: Submission, webhook: Prepared | None = None) -> jobs.NewJob:
    """What is stored of a checked request."""
    request, resources = submission.request, submission.resources
    return jobs.NewJob(
        task=request.task,
        project=principal.project,
        submitted_by=principal.actor,
        config_given=submission.given,
        config_resolved=submission.resolved,
        name=request.name,
        nodes=resources.nodes,
        devices_per_node=resources.devices_per_node,
        device=resources.device,
        priority=request.priority,
        max_retries=request.max_retries,
        timeout_s=request.timeout_s,
        labels=request.labels,
        secrets=submission.secrets,
        warnings=tuple(warning.as_dict() for warning in submission.warnings),
        estimate=submission.estimate and submission.estimate.as_dict(),
        webhook=webhook.new if webhook else None,
        inputs=submission.inputs,
    )


def _offers(session: Session) -> list[Offer]:
    """What every host has that ever registered: one that is away now may come back."""
    return [
        Offer(device, len(devices), tuple(_memory(devices))) for device, devices in devices_of_hosts(session)
    ]


def _memory(devices: Iterable[Mapping[str, Any]]) -> Iterator[int]:
    """The memory of the devices that tell it."""
    return (device["memory_bytes"] for device in devices if isinstance(device.get("memory_bytes"), int))
