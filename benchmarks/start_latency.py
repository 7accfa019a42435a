"""How long a job waits for its trainer on an idle host: from POST /jobs to the start of the trainer process.

A whole service (API, scheduler, worker, Valkey), once with SQLite and once with PostgreSQL; jobs one after
the other, each cancelled and its trainer killed once that is there. The kernel tells the start, to 10 ms.

    python benchmarks/start_latency.py [--jobs 40]

Where others use the machine, too, `chrt -r 1` before it gives what an idle host would.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.api_speed import postgres
from benchmarks.results import table, write_section
from tests.service import TERMINAL, Service, build_tiny_gemma, running_service, write_sft_data

LOOK_S = 0.3
REST_S = 2.0
"""In which the runner and its like come to rest."""
WARM_UP = 3
"""Jobs that are not counted: the first ones load what later ones find."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def started_at(process: psutil.Process) -> float:
    """CLOCK_BOOTTIME seconds at which the kernel made the process."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19]) * TICK_S


def wait_for_trainer(service: Service, job_id: str) -> psutil.Process:
    """The job's trainer. Its start is told by the kernel, so there is no hurry to find it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(LOOK_S)
        trainer = service.trainer(job_id)
        if trainer is not None:
            return trainer
    sys.exit(f"no trainer of job {job_id}: {service.job(job_id)}")


def one_job(service: Service, config: dict) -> tuple[float, float]:
    """Seconds from sending a job, and from its acceptance, to the start of its trainer."""
    sent = time.clock_gettime(time.CLOCK_BOOTTIME)
    job_id = service.submit(config)["id"]
    accepted = time.clock_gettime(time.CLOCK_BOOTTIME)
    trainer = wait_for_trainer(service, job_id)
    started = started_at(trainer)
    service.client.post(f"/jobs/{job_id}/cancel").raise_for_status()
    trainer.kill()
    service.wait_for(job_id, lambda job: job["status"] in TERMINAL)
    time.sleep(REST_S)
    return started - sent, started - accepted


def measure(name: str, folder: Path, root: Path, jobs: int, database_url: str = "") -> list[list[str]]:
    """The rows of the table for one database."""
    folder.mkdir()
    config = {
        "model_name_or_path": str(root / "tiny-gemma"),
        "dataset_name_or_path": str(root / "data"),
        "output_dir": "out",
        "do_train": True,
        "max_steps": 2,
    }
    with running_service(folder, root, REGATTA_DATABASE_URL=database_url) as service:
        times = [one_job(service, config) for _ in range(WARM_UP + jobs)][WARM_UP:]
    rows = []
    for what, column in (("sending", 0), ("acceptance", 1)):
        ordered = sorted(pair[column] for pair in times)
        p50, p99 = (1000 * ordered[int(share * (len(ordered) - 1) + 0.5)] for share in (0.5, 0.99))
        rows.append([f"{name}, from {what}", f"{p50:.0f} ms", f"{p99:.0f} ms"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=40, help="jobs that are measured on each database")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), help="on this one alone")
    given = parser.parse_args()
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="regatta-start-") as temporary:
        root = Path(temporary) / "root"
        build_tiny_gemma(root / "tiny-gemma")
        write_sft_data(root / "data")
        if given.database != "postgresql":
            rows += measure("SQLite", Path(temporary) / "sqlite", root, given.jobs)
        if given.database != "sqlite":
            with postgres(Path(temporary)) as url:
                folder = Path(temporary) / "postgresql"
                rows += measure("PostgreSQL", folder, root, given.jobs, url)
    about = (
        f"From POST /jobs until the trainer process exists, {given.jobs} jobs on a database, host idle.\n\n"
    )
    write_section("Start of a job", about + table(["", "p50", "p99"], rows))


if __name__ == "__main__":
    main()
