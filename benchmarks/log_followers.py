"""Followers of one job's log at a steady rate of lines, over their own cuts and a restart of the API.

A real API process, a real Valkey, clients in this process. Every follower leaves once of its own accord and
comes back; half-way the API is restarted. Each has to see every line exactly once.

    python benchmarks/log_followers.py [--followers 200] [--rate 2000] [--seconds 30]
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import table, write_section
from cli.up import free_port
from store.artifacts import artifacts_for
from store.broker import ensure_broker
from store.database import Database
from store.logs import LogArchive
from store.migrate import upgrade
from store.settings import Settings
from tests.followers import Api, Follower, Writer, end_job, follow_together, running_api, running_job


async def follow(followers: list[Follower], writer: Writer, api: Api, seconds: float, job_end) -> float:
    following = asyncio.create_task(follow_together(followers, writer.total))
    while not any(follower.last for follower in followers):
        await asyncio.sleep(0.05)
    await asyncio.sleep(seconds / 2)
    stopped_s = await asyncio.to_thread(api.restart)
    await asyncio.to_thread(writer.join)
    await asyncio.to_thread(job_end)
    await following
    return stopped_s


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def measure(folder: Path, count: int, rate: int, seconds: float) -> int:
    settings = Settings(data_dir=folder)
    upgrade(settings.database_url)
    database = Database(settings.database_url)
    broker = ensure_broker(settings.data_dir)
    try:
        job_id = running_job(database)
        archive = LogArchive(artifacts_for(settings.artifacts_url))
        writer = Writer(settings, archive, job_id, per_second=rate, total=int(rate * seconds))
        with running_api(settings, free_port("127.0.0.1", 0), folder / "api.log") as api:
            followers = [Follower(api.port, f"/jobs/{job_id}/logs") for _ in range(count)]
            writer.start()
            stopped_s = asyncio.run(
                follow(followers, writer, api, seconds, lambda: end_job(database, settings, job_id))
            )
        return report(followers, writer, api, stopped_s)
    finally:
        database.dispose()
        broker.stop()


def report(followers: list[Follower], writer: Writer, api: Api, stopped_s: float) -> int:
    faults = [fault for follower in followers for fault in follower.faults]
    complete = sum(follower.last == writer.total and follower.ended for follower in followers)
    delays = [delay for follower in followers for delay in follower.delays_s]
    rows = [
        ["followers with every line once", f"{complete} of {len(followers)}"],
        ["lines lost or repeated", len(faults)],
        ["connections of a follower", f"{sum(f.connections for f in followers) / len(followers):.1f}"],
        ["delay of a delivery, p50", f"{percentile(delays, 0.5):.3f} s"],
        ["delay of a delivery, p99", f"{percentile(delays, 0.99):.3f} s"],
        ["processor time of the API", f"{api.cpu_s:.1f} s"],
        ["largest memory of the API", f"{api.most_bytes / 2**20:.0f} MiB"],
        ["the API stopped in", f"{stopped_s:.2f} s"],
    ]
    about = (
        f"{len(followers)} followers of one log, {writer.total} lines written in {writer.seconds:.1f} s; each"
        " follower leaves once and comes back, and the API is restarted half-way.\n\n"
    )
    write_section("Followers of a log", about + table(["", ""], rows))
    for fault in faults[:3]:
        print(fault, file=sys.stderr)
    return int(bool(faults) or complete < len(followers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--followers", type=int, default=200)
    parser.add_argument("--rate", type=int, default=2000, help="lines per second")
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="regatta-followers-") as folder:
        sys.exit(measure(Path(folder), given.followers, given.rate, given.seconds))


if __name__ == "__main__":
    main()
