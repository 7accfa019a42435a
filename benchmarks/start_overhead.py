"""What the service adds between POST and the first training step.

Runs the same short job in turns: by hand (`regatta train`) and through a running service (`POST /jobs`), and
tells the medians of the time until the first training step is logged, and their difference.

    python benchmarks/start_overhead.py [--runs 5]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import table, write_section
from tests.service import Service, build_tiny_gemma, running_service, write_sft_data


def config(root: Path, output_dir: str) -> dict:
    return {
        "model_name_or_path": str(root / "tiny-gemma"),
        "dataset_name_or_path": str(root / "data"),
        "output_dir": output_dir,
        "do_train": True,
        "max_steps": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "src_length": 64,
        "max_length": 128,
    }


def first_step(events: Path, deadline: float) -> float:
    """Unix time of the first training metric in an event file that a trainer is writing."""
    while time.monotonic() < deadline:
        if events.exists():
            for line in events.read_text().splitlines():
                event = json.loads(line)
                if event["type"] == "metric":
                    return event["t"]
        time.sleep(0.005)
    raise TimeoutError(f"no training step in {events}")


def by_hand(root: Path, scratch: Path) -> float:
    """Seconds from the start of `regatta train` to its first step."""
    argument_file, events = scratch / "config.json", scratch / "events.jsonl"
    argument_file.write_text(json.dumps(config(root, str(scratch / "out"))))
    command = [sys.executable, "-m", "cli", "train", "finetune", str(argument_file)]
    started = time.time()
    subprocess.run(
        command,
        env=os.environ | {"REGATTA_EVENTS": str(events)},
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    return first_step(events, time.monotonic() + 1) - started


def through_the_service(root: Path, service: Service) -> float:
    """Seconds from sending POST /jobs to the job's first step."""
    started = time.time()
    job = service.submit(config(root, "out"))
    service.wait(job["id"])
    metrics = service.client.get(f"/jobs/{job['id']}/metrics", params={"kind": "train"}).json()["items"]
    return datetime.fromisoformat(metrics[0]["time"]).timestamp() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "root"
        build_tiny_gemma(root / "tiny-gemma")
        write_sft_data(root / "data")
        data_dir = Path(temporary) / "service"
        data_dir.mkdir()
        hand, posted = [], []
        with running_service(data_dir, root) as service:
            for run in range(runs):
                scratch = Path(temporary) / f"hand-{run}"
                scratch.mkdir()
                hand.append(by_hand(root, scratch))
                posted.append(through_the_service(root, service))
    alone, served = statistics.median(hand), statistics.median(posted)
    rows = [
        ["`regatta train`", f"{alone:.2f} s"],
        ["`POST /jobs`", f"{served:.2f} s"],
        ["the service adds", f"{served - alone:+.2f} s"],
    ]
    about = f"The same short job by hand and through a service, medians of {runs} runs of each, by turns.\n\n"
    write_section("What the service adds", about + table(["", "until the first step is logged"], rows))


if __name__ == "__main__":
    main()
