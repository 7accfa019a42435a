"""Write tests/golden/lora/: short trainings of LoRA adapters by Hugging Face PEFT and torch.optim.AdamW.

Each folder holds an adapter that PEFT saved before the first step (`start`) and after the last (`trained`),
and golden.json: the batches, the loss of every step, the scale, and logits of the trained adapter.
"""

# pyright: reportMissingImports=false

import json
import shutil
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
STEPS, RATE, DECAY = 3, 1e-2, 0.1
BASES = {"gemma": "gemma/one_kv_head", "bloom": "bloom/three_heads"}
TARGETS = {
    "gemma": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "bloom": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
}
#: Settings of the adapter, and LoRA+'s factor for the rate of B.
CASES = {
    "gemma_plain": ("gemma", {"lora_alpha": 16}, 1.0),
    "bloom_plain": ("bloom", {"lora_alpha": 16}, 1.0),
    "gemma_rslora": ("gemma", {"lora_alpha": 4, "use_rslora": True}, 1.0),
    "bloom_plus": ("bloom", {"lora_alpha": 16}, 4.0),
}
SHAPES = [(9, 5), (6, 6), (11, 2)]


def draw_step(generator: torch.Generator) -> list[dict[str, list[int]]]:
    """Examples of input_ids and of shifted labels, -100 = not learned."""
    step = []
    for length, learned in SHAPES:
        ids = torch.randint(3, 60, (length + 1,), generator=generator).tolist()
        labels = [-100] * (length - learned) + ids[length + 1 - learned :]
        step.append({"input_ids": ids[:-1], "labels": labels})
    return step


def loss_sum(model: torch.nn.Module, example: dict[str, list[int]]) -> torch.Tensor:
    """Summed loss of one example by itself, so that there is no padding at all."""
    logits = model(input_ids=torch.tensor([example["input_ids"]])).logits[0]
    labels = torch.tensor(example["labels"])
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")


def make_optimizer(model: torch.nn.Module, factor: float) -> torch.optim.Optimizer:
    if factor != 1.0:
        return create_loraplus_optimizer(
            model,
            torch.optim.AdamW,
            lr=RATE,
            loraplus_lr_ratio=factor,
            weight_decay=DECAY,
            loraplus_weight_decay=DECAY,
        )
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trainable, lr=RATE, weight_decay=DECAY)


def make_case(name: str, family: str, settings: dict, factor: float) -> None:
    directory = HERE / "lora" / name
    shutil.rmtree(directory, ignore_errors=True)
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(
        HERE / BASES[family], dtype=torch.float32, attn_implementation="eager"
    )
    config = LoraConfig(r=8, target_modules=TARGETS[family], task_type="CAUSAL_LM", **settings)
    model = get_peft_model(base, config)
    model.peft_config["default"].base_model_name_or_path = BASES[family]
    model.save_pretrained(directory / "start")
    generator = torch.Generator().manual_seed(1)
    optimizer = make_optimizer(model, factor)
    steps = []
    for _ in range(STEPS):
        examples = draw_step(generator)
        tokens = sum(label != -100 for example in examples for label in example["labels"])
        loss = torch.stack([loss_sum(model, example) for example in examples]).sum() / tokens
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        steps.append({"examples": examples, "loss": loss.item()})
    model.save_pretrained(directory / "trained")
    model.eval()
    ids = steps[0]["examples"][0]["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    scale = next(m.scaling["default"] for m in model.modules() if hasattr(m, "lora_A"))
    golden = {
        "base": BASES[family],
        "learning_rate": RATE,
        "weight_decay": DECAY,
        "lora_plus_scale": factor,
        "scale": scale,
        "steps": steps,
        "prompt": ids,
        "logits": logits.tolist(),
    }
    (directory / "golden.json").write_text(json.dumps(golden) + "\n", encoding="utf-8")
    for readme in directory.glob("*/README.md"):
        readme.unlink()


def main() -> None:
    for name, (family, settings, factor) in CASES.items():
        make_case(name, family, settings, factor)


if __name__ == "__main__":
    main()
