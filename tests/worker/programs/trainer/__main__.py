"""Speaks the trainer's process protocol and does what its config says, without any training."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

CONFIG = {
    "output_dir": "output",
    "steps": 3,
    "step_s": 0.0,
    "save_steps": 0,
    "lines_per_step": 1,
    "exit_code": 0,
    "error": None,
    "kill_self": 0,
    "ignore_sigterm": False,
    "children": 0,
    "hang_at": 0,
    "wait_at": 0,
    "events": [],
    "report_result": True,
    "remove": [],
    "tell_variables": [],
} | json.loads(Path(sys.argv[2]).read_text())

output = Path(CONFIG["output_dir"]).absolute()
output.mkdir(parents=True, exist_ok=True)
stopped = threading.Event()


def say_in_every_rank() -> None:
    """What the ranks of several processes write to logs of their own."""
    words = sys.argv[3:]
    if "--nproc" not in words:
        return
    folder = Path(words[words.index("--logs") + 1])
    for rank in range(1, int(words[words.index("--nproc") + 1])):
        (folder / f"rank-{rank}.log").write_text(f"here is rank {rank}\n")


def emit(event_type: str, **fields: object) -> None:
    with Path(os.environ["REGATTA_EVENTS"]).open("a") as file:
        file.write(json.dumps({"t": time.time(), "type": event_type, **fields}) + "\n")


def guard() -> None:
    while True:
        until = float(Path(os.environ["REGATTA_DEADLINE_FILE"]).read_text())
        if time.clock_gettime(time.CLOCK_BOOTTIME) > until:
            os._exit(75)
        time.sleep(0.1)


def save(step: int) -> Path:
    directory = output / f"checkpoint-{step}"
    if not directory.exists():
        temporary = output / f".tmp-{step}-{os.getpid()}"
        temporary.mkdir()
        (temporary / "model.safetensors").write_text(f"weights of step {step}")
        (temporary / "trainer_state.json").write_text(json.dumps({"step": step}))
        temporary.rename(directory)
    emit(
        "checkpoint",
        name=directory.name,
        path=str(directory),
        step=step,
        metrics={"loss": 1 / step},
        best=False,
    )
    return directory


def newest() -> int:
    found = [re.fullmatch(r"checkpoint-(\d+)", entry.name) for entry in output.iterdir()]
    steps = [int(m[1]) for m in found if m and (output / m[0] / "trainer_state.json").exists()]
    return max(steps, default=0)


def train() -> None:
    first = newest()
    print(f"starting at step {first}", flush=True)
    emit("progress", step=first, total_steps=CONFIG["steps"], epoch=0.0, loss=None)
    for line in CONFIG["events"]:
        with Path(os.environ["REGATTA_EVENTS"]).open("a") as file:
            file.write(line + "\n")
    for step in range(first + 1, CONFIG["steps"] + 1):
        for number in range(CONFIG["lines_per_step"]):
            print(f"step {step} line {number}")
        sys.stdout.flush()
        emit("metric", step=step, loss=1 / step)
        emit("progress", step=step, total_steps=CONFIG["steps"])
        if CONFIG["save_steps"] and step % CONFIG["save_steps"] == 0:
            save(step)
        if CONFIG["hang_at"] == step:
            time.sleep(600)
        while CONFIG["wait_at"] == step and not Path("go-on").exists():
            time.sleep(0.02)
        if stopped.wait(CONFIG["step_s"]):
            directory = save(step)
            emit("result", path=str(directory), metrics={}, stopped=True)
            sys.exit(0)


signal.signal(signal.SIGTERM, signal.SIG_IGN if CONFIG["ignore_sigterm"] else lambda *_: stopped.set())
threading.Thread(target=guard, daemon=True).start()
pids = [
    subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=bool(n % 2)
    ).pid
    for n in range(CONFIG["children"])
]
Path("pids.json").write_text(json.dumps([os.getpid(), *pids]))
say_in_every_rank()
for name in CONFIG["tell_variables"]:
    print(f"{name} is {os.environ[name]}", json.dumps({"value": os.environ[name]}), flush=True)
    print("x" * (16 * 1024 - 4) + os.environ[name], flush=True)
    emit("warning", msg=f"{name} is {os.environ[name]}")
    CONFIG["error"] = CONFIG["error"] and CONFIG["error"] | {"msg": f"no entry with {os.environ[name]}"}
train()
for name in CONFIG["remove"]:
    emit("checkpoint_removed", name=name)
if CONFIG["error"]:
    emit("error", **CONFIG["error"])
if CONFIG["kill_self"]:
    os.kill(os.getpid(), CONFIG["kill_self"])
if CONFIG["exit_code"] == 0 and CONFIG["report_result"]:
    (output / "model.safetensors").write_text("final weights")
    (output / "trainer_state.json").write_text("{}")
    emit("result", path=str(output), metrics={"train_loss": 0.5}, stopped=False)
sys.exit(CONFIG["exit_code"])
