"""From an empty process to the first training step, beside what importing Paddle alone takes.

By turns: `regatta train` of one step on a tiny model, until that is logged; and a Python process that imports
Paddle and ends. Processor time, of the whole process, tells about the same on a machine that is busy with
other things.

    python benchmarks/cold_start.py [--runs 7]
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import table, write_section
from tests.service import build_tiny_gemma, write_sft_data

LIMIT_S = 1.5
"""What training may take on top of Paddle's import."""


def argument_file(folder: Path) -> Path:
    path = folder / "config.json"
    config = {
        "model_name_or_path": str(build_tiny_gemma(folder / "tiny-gemma")),
        "dataset_name_or_path": str(write_sft_data(folder / "data")),
        "output_dir": str(folder / "out"),
        "do_train": True,
        "max_steps": 1,
        "logging_steps": 1,
        "save_strategy": "no",
        "src_length": 64,
        "max_length": 128,
    }
    path.write_text(json.dumps(config))
    return path


def spent() -> float:
    """Seconds of processor time of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_step(arguments: Path, env: dict[str, str]) -> tuple[float, float]:
    """Seconds from the start of the command to its first metric, and of processor time to its end."""
    events = arguments.with_name("events.jsonl")
    events.unlink(missing_ok=True)
    command = [sys.executable, "-m", "cli", "train", "finetune", str(arguments)]
    began, before = time.time(), spent()
    subprocess.run(
        command, env=env | {"REGATTA_EVENTS": str(events)}, check=True, timeout=120, stdout=subprocess.DEVNULL
    )
    told = map(json.loads, events.read_text().splitlines())
    return next(event["t"] for event in told if event["type"] == "metric") - began, spent() - before


def import_alone(env: dict[str, str]) -> tuple[float, float]:
    """Seconds of a process that imports Paddle, and of processor time."""
    began, before = time.time(), spent()
    command = [sys.executable, "-c", "import paddle"]
    subprocess.run(command, env=env, check=True, timeout=120, capture_output=True)
    return time.time() - began, spent() - before


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # Modules are compiled once, as an installation does it.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["OMP_NUM_THREADS"] = "1"
        arguments = argument_file(folder)
        first_step(arguments, env)
        pairs = [(*import_alone(env), *first_step(arguments, env)) for _ in range(runs)]
    medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
    added = statistics.median(step - paddle for paddle, _, step, _ in pairs)
    added_work = statistics.median(step - paddle for _, paddle, _, step in pairs)
    rows = [
        ["a process that imports Paddle", *(f"{value:.2f} s" for value in medians[:2])],
        ["`regatta train` of one step", *(f"{value:.2f} s" for value in medians[2:])],
        ["difference (median of the pairs)", f"{added:.2f} s", f"{added_work:.2f} s"],
    ]
    text = f"Medians of {runs} runs of each, by turns; limit of the difference {LIMIT_S} s.\n\n"
    write_section("Cold start", text + table(["", "until the step is told", "processor time"], rows))
    return 0 if added <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
