"""Write tests/golden/training.json: a short training by transformers and torch.optim.AdamW.

It trains the golden model `gemma/one_kv_head` on random examples of unequal lengths, several micro-batches a
step, with warmup, decay and clipping. It records what each step computes and what the weights are in the end.
"""

# pyright: reportMissingImports=false

import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.optimization import get_cosine_schedule_with_warmup

HERE = Path(__file__).parent
STEPS, WARMUP = 10, 3
ARGUMENTS = {
    "learning_rate": 3e-3,
    "lr_scheduler_type": "cosine",
    "warmup_steps": WARMUP,
    "weight_decay": 0.1,
    "adam_beta1": 0.85,
    "adam_beta2": 0.97,
    "adam_epsilon": 1e-6,
    "max_grad_norm": 0.5,
}
#: Lengths of the examples of each micro-batch of a step, and how many tokens at their ends are learned.
MICRO_BATCHES = [[(12, 7), (5, 2)], [(9, 9)], [(3, 1), (16, 4), (8, 5)]]


def draw_step(generator: torch.Generator) -> list[list[dict[str, list[int]]]]:
    """The micro-batches of one step: examples of input_ids and of shifted labels, -100 = not learned."""
    step = []
    for shapes in MICRO_BATCHES:
        examples = []
        for length, learned in shapes:
            ids = torch.randint(3, 101, (length + 1,), generator=generator).tolist()
            examples.append(
                {"input_ids": ids[:-1], "labels": [-100] * (length - learned) + ids[length + 1 - learned :]}
            )
        step.append(examples)
    return step


def loss_sum(model: torch.nn.Module, example: dict[str, list[int]]) -> torch.Tensor:
    """Summed loss of one example by itself, so that there is no padding at all."""
    logits = model(input_ids=torch.tensor([example["input_ids"]])).logits[0]
    labels = torch.tensor(example["labels"])
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(
        HERE / "gemma" / "one_kv_head", dtype=torch.float32, attn_implementation="eager"
    )
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": ARGUMENTS["weight_decay"]},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (ARGUMENTS["adam_beta1"], ARGUMENTS["adam_beta2"])
    optimizer = torch.optim.AdamW(
        groups, lr=ARGUMENTS["learning_rate"], betas=betas, eps=ARGUMENTS["adam_epsilon"]
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, WARMUP, STEPS)
    steps = []
    for _ in range(STEPS):
        batches = draw_step(generator)
        examples = [example for batch in batches for example in batch]
        tokens = sum(label != -100 for example in examples for label in example["labels"])
        loss = torch.stack([loss_sum(model, example) for example in examples]).sum() / tokens
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), ARGUMENTS["max_grad_norm"])
        steps.append(
            {
                "batches": batches,
                "learning_rate": schedule.get_last_lr()[0],
                "loss": loss.item(),
                "grad_norm": grad_norm.item(),
            }
        )
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    weights = {name: parameter.norm().item() for name, parameter in model.named_parameters()}
    golden = {"arguments": ARGUMENTS, "steps": steps, "norms_of_final_weights": weights}
    (HERE / "training.json").write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
