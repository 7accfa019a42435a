"""Many followers of a busy log, over cuts and a restart of the API: nobody loses or repeats a line."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

from store.artifacts import artifacts_for
from store.database import Database
from store.logs import LogArchive
from store.settings import Settings
from tests.followers import Follower, Writer, end_job, follow_together, running_api, running_job

FOLLOWERS = 40
PER_SECOND = 400
TOTAL = 2400


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


async def follow_over_a_restart(
    followers: list[Follower], restart: Callable[[], object], end: Callable[[], object]
) -> None:
    following = asyncio.create_task(follow_together(followers, TOTAL))
    while min(follower.last for follower in followers) < TOTAL * 2 // 3 and not following.done():
        await asyncio.sleep(0.05)
    await asyncio.to_thread(restart)
    await asyncio.to_thread(end)
    await following


def test_every_follower_sees_every_line_once(
    broker: object, settings: Settings, database: Database, tmp_path: Path
) -> None:
    job_id = running_job(database)
    archive = LogArchive(artifacts_for(settings.artifacts_url))
    writer = Writer(settings, archive, job_id, per_second=PER_SECOND, total=TOTAL)

    def end() -> None:
        writer.join(60)
        end_job(database, settings, job_id)

    with running_api(settings, free_port(), tmp_path / "api.log") as api:
        followers = [Follower(api.port, f"/jobs/{job_id}/logs") for _ in range(FOLLOWERS)]
        writer.start()
        asyncio.run(follow_over_a_restart(followers, api.restart, end))
    assert [fault for follower in followers for fault in follower.faults] == []
    assert {(follower.last, follower.ended) for follower in followers} == {(TOTAL, True)}
    assert min(follower.connections for follower in followers) >= 3
    assert {follower.goodbyes for follower in followers} == {1}
