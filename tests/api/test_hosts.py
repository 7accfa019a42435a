"""Administrators keep jobs away from hosts."""

import pytest

from store.exclusion import note_failure
from store.hosts import register_host
from store.keys import Scope
from store.reasons import Reason
from store.retry_policy import ExclusionPolicy
from tests.api.keyed import Keyed
from tests.api.parts import on_both_databases


def register(keyed: Keyed, name: str) -> None:
    with keyed.database.transaction() as session:
        register_host(session, name, device="cpu", devices=[{"index": 0}])


@on_both_databases
def test_a_host_is_cordoned_drained_and_opened_again_and_it_is_kept_who_did_so(keyed: Keyed) -> None:
    register(keyed, "rack-1")
    with keyed.client(scopes=[Scope.admin]) as boss:
        seen = []
        for what, query in (("cordon", {"reason": "a fan is broken"}), ("drain", {}), ("uncordon", {})):
            answer = boss.post(f"/hosts/rack-1/{what}", params=query)
            assert answer.status_code == 200, answer.text
            (listed,) = boss.get("/hosts").json()["items"]
            assert listed == answer.json()
            seen.append((listed["cordoned"], listed["draining"], listed["cordon_reason"]))
        assert seen == [(True, False, "a fan is broken"), (True, True, ""), (False, False, "")]
        events = [event for event in boss.get("/events").json()["items"] if event["type"].startswith("host_")]
    assert {event["type"] for event in events} == {"host_cordoned", "host_drained", "host_uncordoned"}
    assert all(event["actor"] and event["data"]["host"] == "rack-1" for event in events)


@pytest.mark.parametrize("what", ["cordon", "drain", "uncordon"])
def test_only_administrators_keep_jobs_away(keyed: Keyed, what: str) -> None:
    register(keyed, "rack-1")
    with keyed.client() as client:
        assert client.post(f"/hosts/rack-1/{what}").status_code == 403


@on_both_databases
def test_an_unknown_host_and_a_reason_that_cannot_be_shown_are_refused(keyed: Keyed) -> None:
    register(keyed, "rack-1")
    with keyed.client(scopes=[Scope.admin]) as boss:
        for name in ("rack-2", "%00"):
            assert boss.post(f"/hosts/{name}/cordon").status_code == 404
        assert boss.post("/hosts/rack-1/cordon", params={"reason": "a\0b"}).status_code in (400, 422)
        assert boss.post("/hosts/rack-1/drain", params={"reason": "x" * 501}).status_code == 422


@on_both_databases
def test_a_host_that_is_excluded_is_shown_so_and_opened_again(keyed: Keyed) -> None:
    register(keyed, "rack-1")
    with keyed.database.transaction() as session:
        note_failure(session, "rack-1", None, Reason.device_error, ExclusionPolicy(duration_s=0))
    with keyed.client(scopes=[Scope.admin]) as boss:
        (listed,) = boss.get("/hosts").json()["items"]
        assert (listed["excluded"], listed["exclusion_reason"]) == (True, "a device is broken")
        assert listed["excluded_until"] is None
        told = boss.get("/metrics").text
        assert 'regatta_host_excluded{host="rack-1"} 1.0' in told
        assert 'regatta_host_accepts_jobs{host="rack-1"} 0.0' in told
        opened = boss.post("/hosts/rack-1/uncordon").json()
        assert (opened["excluded"], opened["exclusion_reason"]) == (False, "")
        events = boss.get("/events").json()["items"]
    assert {"host_excluded", "host_uncordoned"} <= {event["type"] for event in events}
