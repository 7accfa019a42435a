"""Whatever is asked in whatever order, by whomever: the history of a job stays one."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.attempts import Node, claim, place, release, renew
from store.database import Database
from store.errors import Conflict
from store.events import list_events
from store.jobs import existing_job, request_cancel
from store.outbox import publish
from store.reaper import reap
from store.reasons import Reason
from store.reports import Outcome, finish, report
from store.reruns import retry_job
from store.retry_policy import RetryPolicy
from store.states import ACTIVE, TERMINAL, TRANSITIONS, Status
from store.tables import Attempt, AttemptNode
from tests.store.given import host, queued_job, run_out_of_time

HOSTS = ("a", "b")
OUTCOMES = (
    Outcome(Status.succeeded, Reason.completed),
    Outcome(Status.failed, Reason.trainer_crashed),
    Outcome(Status.failed, Reason.bad_data),
    Outcome(Status.failed, Reason.host_stopping),
)
WEIGHTS = {
    "place": 5,
    "claim": 8,
    "report": 6,
    "finish": 4,
    "renew": 1,
    "release": 2,
    "cancel": 1,
    "retry": 3,
    "publish": 2,
    "time passes": 1,
    "reap": 2,
}


class Step(NamedTuple):
    """A request of the runner on `host`, possibly one whose attempt was over `behind` attempts ago."""

    name: str
    host: str
    behind: int
    whole_gang: bool
    outcome: Outcome


def random_steps(seed: int) -> list[Step]:
    """Hypothesis prefers short and repetitive lists, in which a job gets nowhere; plain chance does not."""
    chance = Random(seed)
    names = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=30)
    return [
        Step(
            name,
            host=chance.choice(HOSTS),
            behind=chance.choice((0, 0, 0, 0, 1)),
            whole_gang=chance.random() < 0.3,
            outcome=chance.choice(OUTCOMES),
        )
        for name in names
    ]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lasting_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """One database for all examples; each has a job of its own."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("interleavings") / "regatta.db"
        path.write_bytes(request.getfixturevalue("migrated_sqlite").read_bytes())
        url = f"sqlite:///{path}"
    else:
        url = request.getfixturevalue("postgres")(request.getfixturevalue("migrated_postgres"))
    database = Database(url)
    yield database
    database.dispose()


def act(session: Session, job_id: str, step: Step) -> None:
    job = existing_job(session, job_id)
    attempt = job.attempt - step.behind
    owner = f"runner-{step.host}-{attempt}"
    if step.name == "place":
        gang = HOSTS if step.whole_gang else (step.host,)
        place(session, job, [Node(f"{job_id}-{one}", (0,)) for one in gang])
    elif step.name == "claim":
        claim(session, job_id, attempt, f"{job_id}-{step.host}", owner, ttl_s=60)
    elif step.name == "renew":
        renew(session, job_id, attempt, owner, ttl_s=60)
    elif step.name == "report":
        report(session, job_id, attempt, owner, [{"t": 1.0, "type": "progress", "step": 1}], 10, start=0)
    elif step.name == "finish":
        finish(session, job_id, attempt, owner, step.outcome)
    elif step.name == "release":
        release(session, job_id, attempt, owner)
    elif step.name == "cancel":
        request_cancel(session, job_id)
    elif step.name == "retry":
        retry_job(session, job_id)
    elif step.name == "reap":
        reap(session, grace_s=15, start_timeout_s=60, policy=RetryPolicy(fault_limit=2))


def check(session: Session, job_id: str) -> None:
    job = existing_job(session, job_id)
    live = select(func.count()).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None))
    assert session.execute(live).scalar_one() == (1 if job.status in ACTIVE else 0)
    open_nodes = session.execute(
        select(AttemptNode).where(AttemptNode.job_id == job_id, AttemptNode.ended_at.is_(None))
    ).scalars()
    assert len({node.attempt for node in open_nodes}) <= 1, "no two attempts hold devices"

    history = [event for event in list_events(session, job_id, limit=1000) if event.type == "status"]
    assert history[-1].to_status == job.status
    assert history[-1].attempt == job.attempt
    outcomes: dict[int, int] = defaultdict(int)
    for before, after in pairwise(history):
        assert before.to_status == after.from_status, "each event begins where the last one ended"
        assert before.time <= after.time
        source, target = Status(after.from_status), Status(after.to_status)
        assert Reason(after.reason) in TRANSITIONS[source, target]
        assert after.attempt == before.attempt + (1 if target is Status.queued else 0)
        outcomes[before.attempt] += target in TERMINAL or (target is Status.queued and source not in TERMINAL)
    assert all(count <= 1 for count in outcomes.values()), "an attempt has one outcome"


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.builds(random_steps, st.integers(0, 2**32)))
def test_any_interleaving_leaves_one_consistent_history(
    lasting_database: Database, steps: list[Step]
) -> None:
    with lasting_database.transaction() as session:
        job_id = queued_job(session, max_retries=1, nodes=2).id
        for name in HOSTS:
            host(session, f"{job_id}-{name}", devices=1)
    for step in steps:
        if step.name == "publish":
            publish(lasting_database, lambda *_: None, republish_s=30)
        elif step.name == "time passes":
            run_out_of_time(lasting_database, job_id)
        else:
            with suppress(Conflict), lasting_database.transaction() as session:
                act(session, job_id, step)
        with lasting_database.reading() as session:
            check(session, job_id)
