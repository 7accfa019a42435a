"""Every argument file that ships as a preset and trains, with its own parallel degrees, as a job.

Nothing is changed but paths, lengths, intervals and the number of examples in a step; eight processes stand
in for eight GPUs. The curve of each is that of the same file on one device.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_preferences import judged, pair, write_split
from tests.service import Service, running_service, write_sft_data
from trainer.tools.tiny_model import build_tiny_model

STEPS = 3
SLOTS = 8
#: Argument files with the devices that their degrees ask for; where sharding has no degree, with two for it.
DEVICES = {
    ("gemma", "sft"): 8,
    ("gemma", "dpo"): 4,
    ("gemma", "dpo_lora"): 2,
    ("gemma", "kto"): 8,
    ("gemma", "kto_lora"): 8,
    ("bloom", "sft"): 4,
    ("bloom", "lora"): 1,
    ("bloom", "pt"): 1,
}
DEGREES = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "sharding",
    "sharding_parallel_degree",
)


@pytest.fixture(scope="module")
def service(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose host offers eight CPU slots."""
    with running_service(tmp_path_factory.mktemp("service"), root, devices=f"cpu:{SLOTS}") as up:
        yield up


@pytest.fixture(scope="module")
def models(root: Path) -> dict[str, Path]:
    """A small random model of each family, with as many heads as the widest file splits."""
    sizes: dict[str, Any] = {"vocab_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8}
    bloom: dict[str, Any] = {"hidden_size": 64}
    gemma: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "head_dim": 8,
        "num_key_value_heads": 1,
    }
    return {
        "gemma": build_tiny_model("gemma", root / "eight-heads-gemma", **sizes, **gemma),
        "bloom": build_tiny_model("bloom", root / "eight-heads-bloom", **sizes, **bloom),
    }


@pytest.fixture(scope="module")
def texts(root: Path) -> Path:
    return write_sft_data(root / "texts")


@pytest.fixture(scope="module")
def preferences(root: Path) -> Path:
    folder = root / "judged"
    for task, record in (("dpo", pair), ("kto", judged)):
        (folder / task).mkdir(parents=True)
        write_split(folder / task / "train.jsonl", [record(number) for number in range(24)])
        write_split(folder / task / "dev.jsonl", [record(number) for number in range(24, 30)])
    return folder


def arguments(
    service: Service, family: str, name: str, model: Path, texts: Path, preferences: Path
) -> dict[str, Any]:
    """The argument file on a tiny model: steps of eight examples on any number of devices."""
    config = service.client.get(f"/presets/{family}/{name}").json()["config"]
    common = {
        "model_name_or_path": str(model),
        "max_steps": STEPS,
        "logging_steps": 1,
        "eval_steps": STEPS,
        "save_steps": STEPS,
        "warmup_steps": 0,
        "per_device_train_batch_size": 1,
    }
    if name.startswith(("dpo", "kto")):
        data = preferences / name.removesuffix("_lora")
        files = {"train_dataset_path": data / "train.jsonl", "dev_dataset_path": data / "dev.jsonl"}
        more = {field: str(path) for field, path in files.items()} | {"max_seq_len": 64, "max_prompt_len": 32}
    else:
        more = {"dataset_name_or_path": str(texts), "src_length": 32, "max_length": 64}
    return config | common | more


def task_of(name: str) -> str:
    method = name.removesuffix("_lora")
    return method if method in ("dpo", "kto") else "finetune"


def data_ways(config: dict[str, Any], devices: int) -> int:
    return devices // config.get("tensor_parallel_degree", 1)


def losses(service: Service, job: dict[str, Any]) -> list[float]:
    history = service.pages(f"/jobs/{job['id']}/metrics", kind="train")
    return [metric["values"]["loss"] for metric in history]


@pytest.mark.parallel
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("family", "name"), DEVICES)
def test_an_argument_file_runs_with_its_own_degrees_as_on_one_device(
    service: Service, models: dict[str, Path], texts: Path, preferences: Path, family: str, name: str
) -> None:
    devices = DEVICES[family, name]
    config = arguments(service, family, name, models[family], texts, preferences)
    in_a_step = 8 // data_ways(config, devices)
    wide = config | {"gradient_accumulation_steps": in_a_step}
    alone = {field: value for field, value in config.items() if field not in DEGREES}
    alone |= {"gradient_accumulation_steps": 8}
    asked = {"resources": {"devices_per_node": devices}}
    found = [
        service.wait(service.submit(wide, task=task_of(name), **asked)["id"]),
        service.wait(service.submit(alone, task=task_of(name))["id"]),
    ]
    assert [job["status"] for job in found] == ["succeeded", "succeeded"]
    assert found[0]["resources"]["devices_per_node"] == devices
    curve, expected = (losses(service, job) for job in found)
    assert len(curve) == STEPS
    assert curve == pytest.approx(expected, rel=1e-4)
    results = [service.client.get(f"/jobs/{job['id']}/result").json() for job in found]
    assert [file["path"] for file in results[0]["files"]] == [file["path"] for file in results[1]["files"]]
