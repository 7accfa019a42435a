"""Documents of jobs are written straight from the rows: they have the members that their schemas describe."""

from collections.abc import Callable
from typing import Any

import httpx

from api.schemas.jobs import Job, JobSummary
from store.database import Database
from store.reasons import Reason
from store.settings import Settings
from store.states import Status
from tests.api import parts
from tests.api.parts import on_both_databases


@on_both_databases
def test_every_form_of_a_job_is_what_its_schema_says(
    client: httpx.Client,
    submit: Callable[..., dict[str, Any]],
    config: dict[str, Any],
    database: Database,
    settings: Settings,
) -> None:
    submit()
    submit(labels={"team": "blue", "a": "1"}, name="named", priority=3, timeout_s=60.0)
    failed = parts.Job(submit()["id"], database, settings)
    failed.start()
    failed.finish(Status.failed, Reason.out_of_memory)
    parts.Job(submit()["id"], database, settings).start()
    submit(config=config | {"model_name_or_path": f"job:{submit()['id']}"})

    posted = submit(priority=-5)
    assert client.get(f"/jobs/{posted['id']}").json() == posted

    listed = client.get("/jobs").json()["items"]
    assert len(listed) == 7
    for shown in listed:
        assert Job.model_validate(shown).model_dump(mode="json") == shown
        assert client.get(f"/jobs/{shown['id']}").json() == shown
    summaries = client.get("/jobs?view=summary").json()["items"]
    assert [JobSummary.model_validate(shown).model_dump(mode="json") for shown in summaries] == summaries
    assert summaries == [{name: shown[name] for name in JobSummary.model_fields} for shown in listed]


@on_both_databases
def test_places_are_told_alike_for_one_job_and_for_many(
    client: httpx.Client, submit: Callable[..., dict[str, Any]]
) -> None:
    posted = [submit(priority=priority) for priority in (0, 5, 0, -1, 5)]
    places = [client.get(f"/jobs/{job['id']}").json()["queue"]["position"] for job in posted]
    assert places == [3, 1, 4, 5, 2]
    listed = {job["id"]: job["queue"]["position"] for job in client.get("/jobs").json()["items"]}
    assert [listed[job["id"]] for job in posted] == places
