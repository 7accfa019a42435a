"""The jobs of a chaos run: small ones of all tasks, some of which are cancelled."""

import contextlib
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from trainer.tools.tiny_model import build_tiny_model

ANSWER_TIMEOUT_S = 600.0
"""How long the API may be away at a time."""

TERMINAL = ("succeeded", "failed", "cancelled")
TRAINING = ("finetune", "dpo", "kto")


@dataclass
class Wanted:
    """A job of the plan.

    Attributes:
        at_s: when it is submitted, in seconds after the beginning.
        cancel_after_s: when it is cancelled, in seconds after that; None: never.
        uses: the number of the job whose result is its model.
    """

    number: int
    at_s: float
    task: str
    config: dict[str, Any]
    resources: dict[str, Any] = field(default_factory=dict)
    cancel_after_s: float | None = None
    uses: int | None = None
    job_id: str = ""
    cancel_accepted: bool = False

    @property
    def steps(self) -> int:
        return self.config.get("max_steps", 0) if self.task in TRAINING else 0


@dataclass(frozen=True)
class Material:
    """A model and data that all jobs use."""

    model: Path
    sft: Path
    preferences: Path

    @classmethod
    def make(cls, root: Path) -> "Material":
        model = build_tiny_model("gemma", root / "model", vocab_size=512, hidden_size=32, num_hidden_layers=2)
        sft, preferences = root / "sft", root / "preferences"
        rows = [{"src": f"Which boat lies at berth {n}?", "tgt": f"Boat {n * 7 % 50}."} for n in range(32)]
        _write(sft / "train.json", rows)
        _write(sft / "dev.json", rows[:4])
        pairs = [
            {"src": [row["src"]], "tgt": [], "response": ["I do not know.", row["tgt"]], "sort": [0, 1]}
            for row in rows
        ]
        _write(preferences / "dpo.jsonl", pairs)
        judged = [
            row | {"response": [row["response"][n % 2]], "sort": [n % 2]} for n, row in enumerate(pairs)
        ]
        _write(preferences / "kto.jsonl", judged)
        return cls(model, sft, preferences)


def plan_jobs(
    seed: int, count: int, seconds: float, steps: int, material: Material, nodes: Sequence[int] = (1,)
) -> list[Wanted]:
    """So many jobs, a third at the beginning and the others over the first part of a run, which follow from
    the seed alone.
    """
    chance = random.Random(seed + 1)
    wanted: list[Wanted] = []
    tasks = ("finetune", "finetune", "dpo", "kto", "merge", "quantize", "export", "evaluate")
    for number in range(count):
        task = tasks[number % len(tasks)]
        adapters = [one.number for one in wanted if one.config.get("lora") and one.cancel_after_s is None]
        uses = chance.choice(adapters) if task == "merge" and adapters else None
        if task == "merge" and uses is None:
            task = "finetune"
        at_s = chance.uniform(0, 0.6 * seconds) if number >= count // 3 else 0.0
        job = Wanted(number, at_s, task, _config(task, steps, chance, material))
        if uses is not None:
            job.uses = uses
            job.at_s = max(job.at_s, wanted[uses].at_s + 1)
        elif chance.random() < 0.15:
            job.cancel_after_s = chance.uniform(0, 0.3 * seconds)
        if task == "finetune":
            job.resources = {"nodes": chance.choice(nodes), "devices_per_node": chance.choice((1, 1, 2))}
        wanted.append(job)
    return wanted


def _config(task: str, steps: int, chance: random.Random, material: Material) -> dict[str, Any]:
    model, sft = str(material.model), str(material.sft)
    lengths = {"src_length": 16, "max_length": 32}
    training = {
        "model_name_or_path": model,
        "do_train": True,
        "max_steps": chance.randint(max(steps // 2, 2), steps),
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": max(steps // 8, 1),
        "save_total_limit": 2,
        "seed": chance.randint(1, 3),
    }
    preferences = training | {"max_seq_len": 48, "max_prompt_len": 24}
    configs = {
        "finetune": training | lengths | {"dataset_name_or_path": sft, "lora": chance.random() < 0.6},
        "dpo": preferences | {"train_dataset_path": str(material.preferences / "dpo.jsonl")},
        "kto": preferences | {"train_dataset_path": str(material.preferences / "kto.jsonl")},
        "merge": {},
        "quantize": lengths
        | {
            "model_name_or_path": model,
            "dataset_name_or_path": sft,
            "do_ptq": True,
            "quant_type": "weight_only_int8",
            "ptq_step": 1,
        },
        "export": {"model_name_or_path": model},
        "evaluate": lengths | {"model_name_or_path": model, "dataset_name_or_path": sft, "do_eval": True},
    }
    return configs[task] | {"output_dir": "out"}


class Platform:
    """Speaks to the API as a platform does that takes no answer for no answer: it asks again."""

    def __init__(self, url: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self.client = httpx.Client(base_url=url, trust_env=False, timeout=10)
        self._timeout_s = timeout_s

    def submit(self, job: Wanted, wanted: Sequence[Wanted], key: str) -> None:
        config = dict(job.config)
        if job.uses is not None:
            config["lora_path"] = f"job:{wanted[job.uses].job_id}"
        body: dict[str, Any] = {"task": job.task, "config": config, "name": f"job {job.number}"}
        if job.resources:
            body["resources"] = job.resources
        answer = self._ask(lambda: self.client.post("/jobs", json=body, headers={"idempotency-key": key}))
        assert answer.status_code in (200, 201), answer.text
        job.job_id = answer.json()["id"]

    def cancel(self, job: Wanted) -> None:
        answer = self._ask(lambda: self.client.post(f"/jobs/{job.job_id}/cancel"))
        assert answer.status_code in (200, 202, 409), answer.text
        job.cancel_accepted |= answer.status_code != httpx.codes.CONFLICT

    def job(self, job_id: str) -> dict[str, Any]:
        return self.get(f"/jobs/{job_id}")

    def get(self, path: str, **filters: str) -> dict[str, Any]:
        answer = self._ask(lambda: self.client.get(path, params=filters))
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()

    def pages(self, path: str, **filters: str) -> list[dict[str, Any]]:
        """All items of a list."""
        items: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.get(path, limit="100", **filters, **cursor)
            items += page["items"]
            if not page["next_cursor"]:
                return items
            cursor = {"cursor": page["next_cursor"]}

    def wait(self, job_ids: Sequence[str], timeout_s: float) -> None:
        """Wait until all of them have ended."""
        deadline = time.monotonic() + timeout_s
        for job_id in job_ids:
            while (job := self.job(job_id))["status"] not in TERMINAL:
                assert time.monotonic() < deadline, f"it does not end: {job}"
                time.sleep(0.2)

    def _ask(self, ask: Callable[[], httpx.Response]) -> httpx.Response:
        deadline = time.monotonic() + self._timeout_s
        while True:
            with contextlib.suppress(httpx.HTTPError):
                answer = ask()
                if answer.status_code < 500:
                    return answer
            assert time.monotonic() < deadline, "the API does not answer"
            time.sleep(0.2)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
