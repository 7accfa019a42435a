"""What the scripts of Hugging Face's trainers share. They run in an environment of their own."""

from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from turns import Turns, read_jsonl

IGNORE = -100


class TakeTurns(TrainerCallback):
    """Lets a Trainer take turns."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._turns.begin()


def counting(trainer_class: type, turns: Turns, labels: Any) -> type:
    """A Trainer that tells how many label tokens a batch has; `labels` counts them."""

    class Counting(trainer_class):
        def training_step(self, model: Any, inputs: Any, *others: Any, **named: Any) -> Any:
            turns.count(int(labels(inputs)))
            return super().training_step(model, inputs, *others, **named)

    return Counting


def load(folder: str) -> tuple[Any, Any]:
    """Model in float32 and tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", attn_implementation="sdpa")
    return model, AutoTokenizer.from_pretrained(folder)


def arguments(work: dict) -> dict:
    """What all trainers are told alike."""
    return {
        "output_dir": work["output_dir"],
        "per_device_train_batch_size": work["batch"],
        "max_steps": 1000,
        "learning_rate": work["learning_rate"],
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch_fused",
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "seed": 1,
        "disable_tqdm": True,
        "bf16": False,
        "gradient_checkpointing": False,
    }


def sft_examples(work: dict, tokenizer: Any) -> list[dict]:
    """The examples that Regatta makes of the same records."""
    examples = []
    for record in read_jsonl(f"{work['data']}/train.json"):
        source = tokenizer(record["src"], add_special_tokens=True)["input_ids"][-work["src_length"] :]
        target = tokenizer(record["tgt"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        target = target[: work["max_length"] - len(source)]
        if target:
            examples.append({"input_ids": source + target, "labels": [IGNORE] * len(source) + target})
    return examples
