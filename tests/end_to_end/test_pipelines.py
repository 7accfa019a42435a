"""A pipeline through real worker processes: an adapter is trained, merged, preferred, quantized and exported,
each step from the result of the one before.
"""

import json
from pathlib import Path
from typing import Any

from tests.service import JOB_TIMEOUT_S, Service, wait_until

TERMINAL = ("succeeded", "failed", "cancelled")
COMMON: dict[str, Any] = {"max_steps": 2, "per_device_train_batch_size": 2, "logging_steps": 1}


def preference(number: int) -> dict[str, Any]:
    """A question with a right and a wrong answer."""
    right, wrong = f"Berth {number} is free.", "I do not know."
    return {"src": [f"Is berth {number} free?"], "tgt": [], "response": [wrong, right], "sort": [0, 1]}


def upload(service: Service, records: list[dict[str, Any]]) -> str:
    """Upload preference data; the reference to it."""
    lines = "".join(json.dumps(record) + "\n" for record in records)
    answer = service.client.post("/datasets", files={"train": ("train.jsonl", lines)})
    assert answer.status_code == 201, answer.text
    return f"dataset:{answer.json()['id']}"


def steps(model: Path, data: Path, preferences: str) -> list[dict[str, Any]]:
    """The jobs of the pipeline; the quantized model is made of the adapter that dpo trains."""
    sft = {
        "model_name_or_path": str(model),
        "dataset_name_or_path": str(data),
        "lora": True,
        "do_train": True,
    }
    dpo = {
        "model_name_or_path": "job:merged",
        "train_dataset_path": preferences,
        "max_seq_len": 64,
        "max_prompt_len": 32,
        "lora": True,
        "do_train": True,
    }
    quantize = {
        "model_name_or_path": "job:dpo",
        "dataset_name_or_path": str(data),
        "do_ptq": True,
        "quant_type": "weight_only_int8",
        "ptq_step": 2,
    }
    jobs = [
        ("sft", "finetune", sft | COMMON | {"max_length": 64, "src_length": 32}),
        ("merged", "merge", {"lora_path": "job:sft"}),
        ("dpo", "dpo", dpo | COMMON),
        ("int8", "quantize", quantize | {"max_length": 64, "src_length": 32}),
        ("graph", "export", {"model_name_or_path": "job:int8"}),
    ]
    return [
        {"id": name, "task": task, "config": config | {"output_dir": "out"}} for name, task, config in jobs
    ]


def test_each_step_goes_on_from_the_one_before(service: Service, model: Path, data: Path) -> None:
    preferences = upload(service, [preference(number) for number in range(12)])
    answer = service.client.post("/pipelines", json={"jobs": steps(model, data, preferences)})
    assert answer.status_code == 201, answer.text
    path = answer.headers["location"]
    pipeline: dict[str, Any] = {}

    def ended() -> bool:
        pipeline.update(service.client.get(path).json())
        return pipeline["status"] in TERMINAL

    wait_until(ended, 5 * JOB_TIMEOUT_S, lambda: str(pipeline))
    logs = {job["step"]: service.log_text(job["id"])[-3000:] for job in pipeline["jobs"]}
    assert pipeline["status"] == "succeeded", f"{pipeline}\n{logs}"
    files = {
        job["step"]: {
            file["path"] for file in service.client.get(f"/jobs/{job['id']}/result").json()["files"]
        }
        for job in pipeline["jobs"]
    }
    assert "adapter_model.safetensors" in files["sft"] & files["dpo"]
    assert "model.safetensors" in files["merged"] & files["int8"]
    assert any(name.endswith((".pdmodel", ".json")) for name in files["graph"])


def test_a_job_goes_on_from_a_checkpoint_of_another_one(service: Service, model: Path, data: Path) -> None:
    config = {
        "model_name_or_path": str(model),
        "dataset_name_or_path": str(data),
        "output_dir": "out",
        "do_train": True,
        "save_steps": 1,
    }
    first = service.wait(service.submit(config | COMMON)["id"])
    reference = {"resume_from_checkpoint": f"job:{first['id']}/checkpoint-1", "max_steps": 3}
    second = service.wait(service.submit(config | COMMON | reference)["id"])
    steps = [metric["step"] for metric in service.pages(f"/jobs/{second['id']}/metrics", kind="train")]
    assert steps == [2, 3]
