"""Trains small models on a CPU, each in a process of its own, and compares the peaks that the trainer reports
(`peak_memory_bytes`, `peak_tensor_bytes`) with the estimate of the same argument file.

Texts are so long that every example has max_length tokens.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.config import read_config
from trainer.config.estimate import Estimate, SplitTokens, estimate_job
from trainer.config.preflight import Checked
from trainer.config.topology import Topology
from trainer.token_counts import count_tokens

ROOT = Path(__file__).parents[4]
LIMIT = 0.15
"""How far an estimate may be off."""
STEPS = 3
TEXT = ROOT / "trainer" / "tools" / "text" / "harbour.txt"
#: Sizes of models: (family, fields of config.json).
MODELS: Mapping[str, tuple[str, dict[str, int]]] = {
    "tiny gemma": (
        "gemma",
        {
            "vocab_size": 8192,
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 64,
        },
    ),
    "small gemma": (
        "gemma",
        {
            "vocab_size": 32768,
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 64,
        },
    ),
    "tiny bloom": ("bloom", {"vocab_size": 8192, "hidden_size": 256, "n_layer": 4, "n_head": 4}),
}


@dataclass(frozen=True)
class Case:
    """A run: its model, task, batch and what else its arguments say."""

    name: str
    model: str
    batch: int
    length: int
    task: str = "finetune"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """Bytes of a run: predicted and measured, of the whole process and of its tensors."""

    predicted: int
    measured: int
    predicted_tensors: int
    measured_tensors: int

    @property
    def error(self) -> float:
        """Of the process, relative to what was measured."""
        return self.predicted / self.measured - 1.0

    @property
    def tensor_error(self) -> float:
        """Of the tensors."""
        return self.predicted_tensors / self.measured_tensors - 1.0


def write_model(folder: Path, family: str, sizes: Mapping[str, int]) -> None:
    """A random model with a real tokenizer, whose vocabulary is smaller than that of the model."""
    from trainer.models import new_model, save_model
    from trainer.models.registry import family as family_of
    from trainer.tools.tiny_model import build_tiny_model

    build_tiny_model(family, folder)
    content = json.loads((folder / "config.json").read_text()) | dict(sizes)
    save_model(new_model(family_of(family).config_class.from_dict(content)), folder)


def write_data(folder: Path, records: int = 24, words: int = 1200) -> None:
    """Records of every task, longer than any example here may be."""
    draw = random.Random(0)
    known = TEXT.read_text(encoding="utf-8").split()

    def text(count: int) -> str:
        return " ".join(draw.choices(known, k=count))

    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[dict[str, Any]]] = {"train.json": [], "dpo.jsonl": [], "kto.jsonl": []}
    for number in range(records):
        lines["train.json"].append({"src": text(8), "tgt": text(words)})
        pair = [text(words // 4), text(words // 4)]
        lines["dpo.jsonl"].append({"src": [text(30)], "tgt": [], "response": pair, "sort": [1, 0]})
        judged = {"response": [text(words // 4)], "sort": [number % 2]}
        lines["kto.jsonl"].append({"src": [text(30)], "tgt": [], **judged})
    for name, found in lines.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in found))


def arguments(case: Case, model: Path, data: Path, output: Path) -> dict[str, Any]:
    """The argument file of a case."""
    common = {
        "model_name_or_path": str(model),
        "output_dir": str(output),
        "do_train": True,
        "max_steps": STEPS,
        "per_device_train_batch_size": case.batch,
        "save_strategy": "no",
        "logging_steps": 1,
        "device": "cpu",
        **case.arguments,
    }
    if case.task == "finetune":
        lengths = {"src_length": 32, "max_length": case.length}
        return common | lengths | {"dataset_name_or_path": str(data)}
    lengths = {"max_seq_len": case.length, "max_prompt_len": 64}
    return common | lengths | {"train_dataset_path": str(data / f"{case.task}.jsonl")}


def predict(task: str, given: Mapping[str, Any]) -> Estimate:
    """The estimate of an argument file."""
    config = read_config(task, dict(given)).config
    if config is None:
        raise ValueError("the argument file cannot be read")
    counted: Mapping[str, SplitTokens] = count_tokens(config)  # type: ignore[arg-type]
    return estimate_job(Checked(config), Topology.of(config), "cpu", counted)


def measure(task: str, given: Mapping[str, Any], file: Path) -> Mapping[str, int]:
    """Train in a fresh process of one thread; returns its metrics."""
    file.write_text(json.dumps(given))
    command = [sys.executable, "-m", "trainer", task, str(file)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, check=True, timeout=600, capture_output=True)
    return json.loads((Path(given["output_dir"]) / "all_results.json").read_text())


def compare(cases: tuple[Case, ...], folder: Path) -> Iterator[tuple[Case, Found]]:
    """Run cases one after another."""
    from trainer.ops.host import import_paddle

    import_paddle()
    write_data(folder / "data")
    for name in dict.fromkeys(case.model for case in cases):
        write_model(folder / name, *MODELS[name])
    for number, case in enumerate(cases):
        given = arguments(case, folder / case.model, folder / "data", folder / f"output-{number}")
        memory = predict(case.task, given).memory
        metrics = measure(case.task, given, folder / "arguments.json")
        if memory is not None:
            yield (
                case,
                Found(
                    memory.total,
                    metrics["peak_memory_bytes"],
                    memory.parts.tensors,
                    metrics["peak_tensor_bytes"],
                ),
            )
