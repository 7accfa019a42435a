"""Speaks the trainer's process protocol with the argument files of all tasks, without any training.

What it calls weights is a digest that depends on every step before it, so that a step that is left out or
taken twice shows in the result. `CHAOS_STEP_S` in its environment is how long a step takes.
"""

import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

TRAINING = ("finetune", "dpo", "kto")
ADAPTER = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}

task, config = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
steps = config.get("max_steps") or 0 if task in TRAINING else 0
output = Path(config.get("output_dir") or "output").absolute()
step_s = float(os.environ.get("CHAOS_STEP_S", "0.1"))
stopped = threading.Event()
WEIGHTS = "adapter_model.safetensors" if config.get("lora") else "model.safetensors"


def emit(event_type: str, **fields: object) -> None:
    line = json.dumps({"t": time.time(), "type": event_type, **fields}) + "\n"
    descriptor = os.open(os.environ["REGATTA_EVENTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def guard() -> None:
    while True:
        until = float(Path(os.environ["REGATTA_DEADLINE_FILE"]).read_text())
        if time.clock_gettime(time.CLOCK_BOOTTIME) > until:
            os._exit(75)
        time.sleep(0.1)


def write_model(directory: Path, weights: str, step: int) -> None:
    """Under another name first: a checkpoint is there as a whole or not at all."""
    temporary = directory.with_name(f".{directory.name}.{os.getpid()}")
    temporary.mkdir(parents=True)
    write_files(temporary, weights, step)
    temporary.rename(directory)


def write_files(directory: Path, weights: str, step: int) -> None:
    """The files of a model or an adapter; the one that says that they are complete comes last."""
    if config.get("lora"):
        settings = ADAPTER | {"base_model_name_or_path": config["model_name_or_path"]}
        (directory / "adapter_config.json").write_text(json.dumps(settings))
    else:
        (directory / "config.json").write_text("{}")
    (directory / WEIGHTS).write_text(weights)
    (directory / "trainer_state.json").write_text(json.dumps({"step": step}))


def save(weights: str, step: int) -> Path:
    directory = output / f"checkpoint-{step}"
    if not directory.exists():
        write_model(directory, weights, step)
    emit("checkpoint", name=directory.name, path=str(directory), step=step, metrics={}, best=False)
    return directory


def newest() -> tuple[int, str]:
    """The step and weights to go on from."""
    found = [re.fullmatch(r"checkpoint-(\d+)", entry.name) for entry in output.glob("checkpoint-*")]
    step = max((int(m[1]) for m in found if m and (output / m[0] / "trainer_state.json").exists()), default=0)
    if step == 0:
        return 0, hashlib.sha256(str(config.get("seed")).encode()).hexdigest()
    return step, (output / f"checkpoint-{step}" / WEIGHTS).read_text()


def train() -> None:
    output.mkdir(parents=True, exist_ok=True)
    step, weights = newest()
    print(f"going on from step {step}", flush=True)
    emit("progress", step=step, total_steps=steps)
    while step < steps:
        if stopped.wait(step_s):
            emit("result", path=str(save(weights, step)), metrics={}, stopped=True)
            return
        step += 1
        weights = hashlib.sha256(f"{weights} {step}".encode()).hexdigest()
        print(f"step {step}: {weights}", flush=True)
        emit("metric", step=step, loss=1 / step)
        emit("progress", step=step, total_steps=steps)
        if config.get("save_steps") and step % config["save_steps"] == 0:
            save(weights, step)
    write_files(output, weights, steps)
    emit("result", path=str(output), metrics={}, stopped=False)


signal.signal(signal.SIGTERM, lambda *_: stopped.set())
threading.Thread(target=guard, daemon=True).start()
train()
