"""A harbour full of life for pictures: hosts in every state, jobs in every state, data, curves and logs."""

import json
import math
import random
from pathlib import Path
from typing import Any

from store.hosts import cordon_host, drain_host
from store.logs import LogLine
from tests.api.parts import Job
from tests.browser.served import Served

GIB = 1 << 30
INFO = {"regatta": "0.1.0", "python": "3.11.9", "cores": 64, "memory_bytes": 512 * GIB}


def hosts(service: Served) -> None:
    """Three hosts of GPUs: ready, cordoned and draining."""
    for name, devices in (("quay-1", 8), ("quay-2", 4), ("quay-3", 4)):
        service.host(name, "gpu", devices, memory=80 * GIB, labels={"rack": name[-1], "net": "ib"}, info=INFO)
    with service.database.transaction() as session:
        cordon_host(session, "quay-2", "a fan is noisy", actor="local")
        drain_host(session, "quay-3", "new driver tonight", actor="local")


def run(service: Served, host: str, devices: tuple[int, ...], **members: Any) -> Job:
    """A job that runs on some devices of a host."""
    job = service.job(**members)
    service.start(job, host, devices)
    return job


def curve(job: Job, steps: int, total: int, *, floor: float, seed: int) -> None:
    """Numbers of training steps that look like training."""
    chance = random.Random(seed)
    events: list[dict[str, Any]] = [
        {"t": 1.0, "type": "progress", "step": 0, "total_steps": total, "epoch": 0.0}
    ]
    for step in range(1, steps + 1):
        loss = floor + 3.1 * math.exp(-step / (total / 5)) + chance.gauss(0, 0.05)
        rate = 3e-4 * min(1, step / 30) * (1 - step / total)
        events.append(
            {
                "t": 1.0 + step,
                "type": "metric",
                "step": step,
                "epoch": 3 * step / total,
                "loss": loss,
                "learning_rate": rate,
                "grad_norm": 0.6 + abs(chance.gauss(0, 0.2)) + 2 * math.exp(-step / 20),
                "tokens_per_second": 41_000 + chance.gauss(0, 900),
            }
        )
        if step % 50 == 0:
            events.append({"t": 1.0 + step, "type": "eval", "step": step, "eval_loss": loss + 0.12})
    events.append(
        {
            "t": 2.0 + steps,
            "type": "progress",
            "step": steps,
            "total_steps": total,
            "epoch": 3 * steps / total,
            "total_epochs": 3.0,
            "loss": floor + 0.2,
            "tokens_per_second": 41_300.0,
            "eta_s": 1.5 * (total - steps),
        }
    )
    job.say(*events)


def log(job: Job, steps: int) -> None:
    """Lines as a trainer writes them, with a warning among them."""
    texts = ["loading the model", "tokenizing train.json", "training begins"]
    texts += [
        f"step {step}/{steps} loss {3.4 - step / steps:.4f} lr 3.0e-04 41.2k tokens/s"
        for step in range(1, steps)
    ]
    texts[5] = "WARNING: a record of 2310 tokens was cut to 2048"
    lines = [LogLine(1, seq, 1764590400.0 + seq, 0, text) for seq, text in enumerate(texts, 1)]
    job.stream.append(job.id, lines)
    job.archive.append(job.id, lines)


def checkpoints(job: Job, folder: Path, steps: range) -> None:
    """Published checkpoints of small files."""
    for step in steps:
        made = folder / f"{job.id}-{step}"
        made.mkdir()
        (made / "config.json").write_text(json.dumps({"model_type": "gemma", "step": step}))
        (made / "model.safetensors").write_bytes(bytes(4096))
        job.publish(f"checkpoint-{step}", made, step=step, metrics={"eval_loss": 1.2 - step / 1000})


def records() -> str:
    """A data set of questions and answers of different lengths."""
    chance = random.Random(5)
    berths = [f"berth {n}" for n in range(1, 40)]
    rows = []
    for n in range(600):
        berth = chance.choice(berths)
        answer = f"Berth {berth.split()[1]} is free from {n % 12 + 1} o'clock."
        answer += " Please call the harbour master first." * chance.choice((0, 0, 1, 1, 2, 4))
        rows.append({"src": f"May I moor at {berth} tonight?", "tgt": answer})
    return "".join(json.dumps(row) + "\n" for row in rows)
