"""A harbour full of life for pictures: hosts and jobs in several states, curves and data."""

import json
import math
import random
from typing import Any

from store.hosts import cordon_host, drain_host
from tests.api.parts import Job
from tests.browser.served import Served

GIB = 1 << 30
INFO = {"regatta": "0.1.0", "python": "3.11.9", "cores": 64, "memory_bytes": 512 * GIB}


def hosts(service: Served) -> None:
    """Three hosts of GPUs: ready, cordoned and draining."""
    for name, devices in (("quay-1", 8), ("quay-2", 4), ("quay-3", 4)):
        service.host(name, "gpu", devices, memory=24 * GIB, labels={"rack": name[-1], "net": "ib"}, info=INFO)
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


def records() -> str:
    """A data set of questions and answers of different lengths."""
    chance = random.Random(5)
    berths = [f"berth {n}" for n in range(1, 40)]
    rows = []
    for n in range(3000):
        berth = chance.choice(berths)
        answer = f"Berth {berth.split()[1]} is free from {n % 12 + 1} o'clock."
        answer += " Please call the harbour master first." * chance.choice((0, 0, 1, 1, 2, 4))
        rows.append({"src": f"May I moor at {berth} tonight?", "tgt": answer})
    return "".join(json.dumps(row) + "\n" for row in rows)
