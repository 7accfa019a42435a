"""Regatta beside transformers, PEFT and TRL: the same weights, records and micro-batches, by turns.

Effective speed is label tokens per second: tokens that are learned, without padding. Needs the environment of
the `peers` extra; all runs are in float32 on the processor.

    python -m benchmarks.peers.compare --peers PEERS/bin/python --data DIR [--only sft] [--rounds 7]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.contest import Measured, Side, contest
from benchmarks.results import table, write_section

SMALL = {
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "head_dim": 64,
    "vocab_size": 8000,
}
REFERENCE = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "head_dim": 64,
    "vocab_size": 32_000,
}
LENGTH, SRC_LENGTH = 512, 256
#: Records of preference data are used whole; longer ones are left out, for both.
MAX_CHARACTERS = 1_600
RATE = 1e-4
VERSIONS = ("torch", "transformers", "peft", "trl")


@dataclass(frozen=True)
class Place:
    """Where the comparisons run: the peers' interpreter, and the folders of the data, of what is made, and of
    the models, which may have been made before.
    """

    peers: str
    data: Path
    folder: Path
    models: Path


def tokens_of_text(place: Place) -> Path:
    """A text to train the tokenizer on: that of the SFT records."""
    path = place.folder / "text.txt"
    records = map(json.loads, (place.data / "sft" / "train.json").read_text(encoding="utf-8").splitlines())
    lines = (line for record in records for text in (record["src"], record["tgt"]) for line in _texts(text))
    path.write_text("\n".join(line for line in lines if line.strip()), encoding="utf-8")
    return path


def _texts(text: str | list[str]) -> list[str]:
    return [line for part in ([text] if isinstance(text, str) else text) for line in part.splitlines()]


def build(place: Place, name: str, sizes: dict) -> Path:
    """A model of these sizes, which all sides load."""
    folder = place.models / name
    if not folder.exists():
        words = [word for size in sizes.items() for word in ("--set", "=".join(map(str, size)))]
        text = ["--text", str(tokens_of_text(place))]
        command = [sys.executable, "-m", "cli", "tiny-model", "gemma", str(folder), *text, *words]
        subprocess.run(command, check=True, timeout=600, stdout=subprocess.DEVNULL)
    return folder


def regatta(place: Place, name: str, task: str, config: dict) -> Side:
    common = {
        "output_dir": str(place.folder / f"out-{name}"),
        "do_train": True,
        "max_steps": 1000,
        "logging_steps": 1,
        "save_strategy": "no",
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
    }
    return Side(name, sys.executable, "regatta_steps.py", {"task": task, "config": common | config})


def peer(place: Place, name: str, script: str, work: dict) -> Side:
    common = {"output_dir": str(place.folder / f"out-{name}"), "learning_rate": RATE}
    return Side(name, place.peers, script, common | work)


def sft(place: Place) -> list[Side]:
    model = str(build(place, "small", SMALL))
    data = str(place.data / "sft")
    lengths = {"src_length": SRC_LENGTH, "max_length": LENGTH}
    config = {"model_name_or_path": model, "dataset_name_or_path": data, **lengths}
    packed = {"zero_padding": True, "greedy_zero_padding": True, "per_device_train_batch_size": 2}
    padded = {"per_device_train_batch_size": 6}
    work = {"model": model, "data": data, "batch": 6, **lengths}
    return [
        regatta(place, "Regatta", "finetune", config | packed),
        regatta(place, "Regatta, one example a row", "finetune", config | padded),
        peer(place, "transformers, flattened batches", "transformers_sft.py", work),
        peer(place, "transformers, padded batches", "transformers_sft.py", {**work, "padded": True}),
    ]


def lora(place: Place) -> list[Side]:
    ours, _, theirs, _ = sft(place)
    config = {**ours.work["config"], "lora": True, "lora_rank": 8}  # pyright: ignore[reportGeneralTypeIssues]
    return [
        Side("Regatta, LoRA", ours.python, ours.script, {**ours.work, "config": config}),
        Side("PEFT, flattened batches", theirs.python, theirs.script, {**theirs.work, "lora_rank": 8}),
    ]


def full_step(place: Place) -> list[Side]:
    """Two whole rows of the reference shape; as one record each they have no padding anywhere."""
    model = str(build(place, "reference", REFERENCE))
    data = place.folder / "rows"
    data.mkdir(exist_ok=True)
    text = tokens_of_text(place).read_text(encoding="utf-8").replace("\n", " ")
    rows = [{"src": "Go on.", "tgt": text[at : at + 8_000]} for at in range(0, 320_000, 8_000)]
    (data / "train.json").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lengths = {"src_length": 16, "max_length": 513}
    config = {"model_name_or_path": model, "dataset_name_or_path": str(data), **lengths}
    work = {"model": model, "data": str(data), "batch": 2, **lengths}
    return [
        regatta(place, "Regatta", "finetune", config | {"per_device_train_batch_size": 2}),
        peer(place, "transformers", "transformers_sft.py", work),
    ]


def preference(task: str) -> Callable[[Place], list[Side]]:
    def sides(place: Place) -> list[Side]:
        model = str(build(place, "small", SMALL))
        path = place.folder / f"{task}.jsonl"
        lines = (place.data / task / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        chosen = [line for line in lines if len(line) < MAX_CHARACTERS and len(json.loads(line)["src"]) == 1]
        path.write_text("".join(chosen), encoding="utf-8")
        config = {
            "model_name_or_path": model,
            "train_dataset_path": str(path),
            "max_seq_len": 1024,
            "max_prompt_len": 512,
            "per_device_train_batch_size": 2,
            "beta": 0.1,
        }
        work = {"task": task, "model": model, "data": str(path), "batch": 2, "max_length": 1024}
        return [
            regatta(place, f"Regatta, {task.upper()}", task, config),
            peer(place, f"TRL, {task.upper()}", "trl_preference.py", work),
        ]

    return sides


COMPARISONS: dict[str, tuple[str, Callable[[Place], list[Side]]]] = {
    "sft": ("SFT, real lengths", sft),
    "lora": ("LoRA SFT, real lengths", lora),
    "step": ("full SFT step, 2 rows of 512, reference shape", full_step),
    "dpo": ("DPO, real lengths", preference("dpo")),
    "kto": ("KTO, real lengths", preference("kto")),
}


def rows_of(found: dict[str, Measured]) -> list[list[object]]:
    """A row for each side; the first one is Regatta's and is compared with the others."""
    ours = next(iter(found.values()))
    return [
        [
            side,
            f"{measured.rate:.0f}",
            f"{ours.rate / measured.rate:.2f}",
            f"{measured.work_rate:.0f}",
            f"{ours.work_rate / measured.work_rate:.2f}",
            f"{measured.peak / 1e9:.2f} GB",
            f"{ours.peak / measured.peak:.2f}",
        ]
        for side, measured in found.items()
    ]


def versions(python: str) -> str:
    """The peers' packages."""
    code = (
        "import importlib.metadata as m, sys; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
    )
    found = subprocess.run(
        [python, "-c", code, *VERSIONS], check=True, timeout=60, capture_output=True, text=True
    )
    return found.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", required=True, help="interpreter of the environment that has them")
    parser.add_argument("--data", type=Path, required=True, help="folder with sft, dpo and kto")
    parser.add_argument("--only", nargs="*", choices=COMPARISONS, default=list(COMPARISONS))
    parser.add_argument("--models", type=Path, help="where models are kept for the next time")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    heads = [
        "",
        "label tokens/s",
        "Regatta's over it",
        "label tokens per second of processor time",
        "Regatta's over it",
        "peak memory",
        "Regatta's over it",
    ]
    for key in given.only:
        name, sides = COMPARISONS[key]
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            place = Place(given.peers, given.data.resolve(), folder, given.models or folder)
            found = contest(sides(place), given.rounds, given.threads, folder)
        text = (
            f"float32, AdamW, {given.threads} threads; medians of {given.rounds} steps of each, by turns, in"
        )
        text += f" one run. {versions(given.peers)}.\n\n{table(heads, rows_of(found))}"
        write_section(f"Beside other trainers: {name}", text)


if __name__ == "__main__":
    main()
