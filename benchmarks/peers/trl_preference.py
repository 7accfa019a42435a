"""DPO or KTO by TRL."""

import json
import sys

from datasets import Dataset
from hf import TakeTurns, arguments, counting, load
from turns import Turns, read_jsonl


def dpo(work: dict, turns: Turns) -> None:
    from trl import DPOConfig, DPOTrainer

    rows = [
        {"prompt": record["src"][0], "chosen": good, "rejected": bad}
        for record in read_jsonl(work["data"])
        for good, bad in [sorted(record["response"], key=lambda text: -_sort(record, text))]
    ]
    model, tokenizer = load(work["model"])
    trainer = counting(DPOTrainer, turns, lambda inputs: inputs["completion_mask"].sum())(
        model=model,
        args=DPOConfig(**arguments(work), max_length=work["max_length"], beta=0.1),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[TakeTurns(turns)],
    )
    trainer.train()


def kto(work: dict, turns: Turns) -> None:
    from trl import KTOConfig, KTOTrainer

    rows = [
        {"prompt": record["src"][0], "completion": record["response"][0], "label": record["sort"][0] > 0}
        for record in read_jsonl(work["data"])
    ]
    model, tokenizer = load(work["model"])
    trainer = counting(KTOTrainer, turns, lambda inputs: inputs["completion_mask"].sum())(
        model=model,
        args=KTOConfig(**arguments(work), max_length=work["max_length"], beta=0.1),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[TakeTurns(turns)],
    )
    trainer.train()


def _sort(record: dict, text: str) -> int:
    return record["sort"][record["response"].index(text)]


def main() -> None:
    work = json.loads(sys.argv[1])
    {"dpo": dpo, "kto": kto}[work["task"]](work, Turns())


main()
