"""Hosts, their devices, and named leases."""

from sqlalchemy import update

from store.attempts import Node, claim, place, renew
from store.database import Database
from store.hosts import (
    allocations,
    busy_devices,
    cordon_host,
    drain_host,
    heartbeat_host,
    list_hosts,
    live_hosts,
    register_host,
    set_accepts_jobs,
    uncordon_host,
)
from store.leases import acquire_lease, release_lease
from store.reasons import Reason
from store.reports import Outcome, finish
from store.states import Status
from store.tables import Host, Lease
from tests.store.given import HOST, OWNER, TTL_S, host, placed_job, queued_job


def test_a_host_that_registers_again_is_described_anew(database: Database) -> None:
    with database.transaction() as session:
        register_host(session, "a", device="gpu", devices=[{"index": 0}], info={"version": "1"})
        set_accepts_jobs(session, "a", False)
    with database.transaction() as session:
        register_host(session, "a", device="cpu", devices=[{"index": 0}, {"index": 1}], labels={"rack": "7"})
    with database.reading() as session:
        (row,) = list_hosts(session)
        assert (row.device, len(row.devices), row.labels, row.info) == ("cpu", 2, {"rack": "7"}, {})
        assert row.accepts_jobs
        assert row.registered_at <= row.heartbeat_at


def test_a_cordoned_host_gets_nothing_until_it_is_uncordoned_though_its_worker_starts_again(
    database: Database,
) -> None:
    with database.transaction() as session:
        host(session)
        cordon_host(session, HOST, "a fan is broken", actor="admin")
    with database.transaction() as session:
        row = register_host(session, HOST, device="cpu", devices=[{"index": 0}])
        assert (row.cordoned, row.draining, row.cordon_reason) == (True, False, "a fan is broken")
        assert live_hosts(session, 60.0) == []
        assert not place(session, queued_job(session), [Node(HOST, (0,))])
    with database.transaction() as session:
        uncordon_host(session, HOST, actor="admin")
    with database.transaction() as session:
        assert [row.name for row in live_hosts(session, 60.0)] == [HOST]
        assert place(session, queued_job(session), [Node(HOST, (0,))])


def test_who_renews_on_a_drained_host_learns_that_it_is_to_stop(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)
        claim(session, job.id, 1, HOST, OWNER, ttl_s=TTL_S)
        cordon_host(session, HOST)
        assert not renew(session, job.id, 1, OWNER, ttl_s=TTL_S).draining
        assert drain_host(session, HOST)[1] == [job.id]
        assert renew(session, job.id, 1, OWNER, ttl_s=TTL_S).draining


def test_only_hosts_with_a_fresh_heartbeat_that_accept_jobs_are_live(database: Database) -> None:
    with database.transaction() as session:
        for name in ("fresh", "silent", "draining"):
            host(session, name)
        session.execute(
            update(Host).where(Host.name == "silent").values(heartbeat_at=Host.heartbeat_at - 100)
        )
        assert set_accepts_jobs(session, "draining", False)
        assert [row.name for row in live_hosts(session, within_s=30)] == ["fresh"]
        assert heartbeat_host(session, "silent")
        assert [row.name for row in live_hosts(session, within_s=30)] == ["fresh", "silent"]


def test_an_unknown_host_has_to_register_first(database: Database) -> None:
    with database.transaction() as session:
        assert not heartbeat_host(session, "nobody")
        assert not set_accepts_jobs(session, "nobody", True)


def test_devices_are_busy_from_placement_to_the_end(database: Database) -> None:
    with database.transaction() as session:
        first, second = placed_job(session), queued_job(session)
        assert place(session, second, [Node(HOST, (1,))])
        assert busy_devices(session) == {HOST: {0, 1}}
        assert claim(session, first.id, 1, HOST, OWNER, ttl_s=TTL_S)
        finish(session, first.id, 1, OWNER, Outcome(Status.succeeded, Reason.completed))
        assert busy_devices(session) == {HOST: {1}}
        assert [node.job_id for node in allocations(session)] == [second.id]


def test_a_role_is_held_by_one_owner_until_it_lets_go_or_its_time_is_over(database: Database) -> None:
    with database.transaction() as session:
        assert acquire_lease(session, "scheduler", "a", ttl_s=60)
        assert not acquire_lease(session, "scheduler", "b", ttl_s=60)
        assert acquire_lease(session, "scheduler", "a", ttl_s=60)
        release_lease(session, "scheduler", "b")
        assert not acquire_lease(session, "scheduler", "b", ttl_s=60)
        release_lease(session, "scheduler", "a")
        assert acquire_lease(session, "scheduler", "b", ttl_s=60)
        session.execute(update(Lease).values(lease_until=Lease.lease_until - 100))
        assert acquire_lease(session, "scheduler", "a", ttl_s=60)
        session.execute(update(Lease).values(lease_until=Lease.lease_until + 3600))  # the clock was set back
        assert acquire_lease(session, "scheduler", "b", ttl_s=60)
