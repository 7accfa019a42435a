"""The models and data that every combination is trained with: tiny, and unequal wherever they can be."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainer.tools.tiny_model import build_tiny_model

#: The last step of every epoch has fewer micro-batches than the others: of SFT, which has two records in a
#: micro-batch, two, the second of which has one record; of preferences, which share sequences, one.
SFT_RECORDS, PREFERENCES = 27, 14
DEV_RECORDS = 5


def build_model(folder: Path, family: str, layers: int) -> Path:
    """A model below `folder`.

    Gemma has one head of keys for four of queries. BLOOM's vocabulary divides by nothing that splits it, and
    its six heads are not a power of two, which its biases of attention depend on.
    """
    sizes: dict[str, Any] = (
        {
            "vocab_size": 400,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 8,
        }
        if family == "gemma"
        else {"vocab_size": 301, "hidden_size": 36, "num_attention_heads": 6}
    )
    return build_tiny_model(family, folder / f"{family}-{layers}", num_hidden_layers=layers, **sizes)


def write_data(folder: Path) -> None:
    """Files of SFT, dpo and kto, each with records to train on and others to evaluate."""
    _write(folder / "sft" / "train.json", map(answer, range(SFT_RECORDS)))
    _write(folder / "sft" / "dev.json", map(answer, range(100, 100 + DEV_RECORDS)))
    for task, record in (("dpo", pair), ("kto", judged)):
        _write(folder / f"{task}-train.jsonl", map(record, range(PREFERENCES)))
        _write(folder / f"{task}-dev.jsonl", map(record, range(100, 100 + DEV_RECORDS)))


def answer(number: int) -> dict[str, Any]:
    """A question whose answer has one to six numbers."""
    return {"src": f"After {number}?", "tgt": counted(number, 1 + number * 5 % 6)}


def pair(number: int) -> dict[str, Any]:
    """A question with a right and a wrong answer of different lengths."""
    right, wrong = counted(number, 1 + number % 4), counted(number + 7, 1 + number % 3)
    return {"src": f"After {number}?", "response": [wrong, right], "sort": [0, 1]}


def judged(number: int) -> dict[str, Any]:
    """The same with one of the answers."""
    record, which = pair(number), int(number % 3 > 0)
    return record | {"response": [record["response"][which]], "sort": [which]}


def counted(number: int, count: int) -> str:
    """The numbers that follow."""
    return ", ".join(str(number + further) for further in range(1, count + 1)) + "."


def _write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
