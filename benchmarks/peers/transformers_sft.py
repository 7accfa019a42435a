"""Full or LoRA fine-tuning by transformers (and PEFT): a batch is flattened into one row, or padded."""

import json
import sys

from hf import IGNORE, TakeTurns, arguments, counting, load, sft_examples
from torch.utils.data import Dataset
from transformers import DataCollatorForSeq2Seq, DataCollatorWithFlattening, Trainer, TrainingArguments
from turns import Turns


class Examples(Dataset):
    def __init__(self, examples: list[dict]) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> dict:
        return self._examples[index]


def main() -> None:
    work = json.loads(sys.argv[1])
    turns = Turns()
    model, tokenizer = load(work["model"])
    if work.get("lora_rank"):
        from peft import LoraConfig, get_peft_model

        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        rank = work["lora_rank"]
        model = get_peft_model(
            model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, task_type="CAUSAL_LM")
        )
    trainer = counting(Trainer, turns, lambda inputs: (inputs["labels"] != IGNORE).sum())(
        model=model,
        args=TrainingArguments(**arguments(work)),
        train_dataset=Examples(sft_examples(work, tokenizer)),
        data_collator=DataCollatorForSeq2Seq(tokenizer)
        if work.get("padded")
        else DataCollatorWithFlattening(),
        callbacks=[TakeTurns(turns)],
    )
    trainer.train()


main()
