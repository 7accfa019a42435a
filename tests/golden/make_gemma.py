"""Write tests/golden/gemma: small random Gemma models by transformers, and what they compute.

Each folder holds a model as `save_pretrained` writes it and `case.safetensors`: inputs, logits, the summed
loss of the labelled tokens, the number of correct ones, the gradient of that loss for every parameter, all in
float32 (transformers gives NaN for padded rows in float64), and tokens generated greedily from the batch.
"""

# pyright: reportMissingImports=false

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GemmaConfig, GemmaForCausalLM

HERE = Path(__file__).parent / "gemma"
SHAPE = {"num_hidden_layers": 2, "intermediate_size": 56, "max_position_embeddings": 512}


@dataclass
class Case:
    """A configuration and the number of real tokens of each row; padding goes to `side`."""

    name: str
    sizes: dict
    lengths: tuple[int, ...]
    side: str = "right"
    positions: bool = False
    dtype: torch.dtype = torch.float32
    save: dict = field(default_factory=dict)


CASES = [
    Case(
        "one_kv_head",
        {
            "vocab_size": 101,
            "hidden_size": 48,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 16,
        },
        (12, 12, 12),
    ),
    Case(
        "untied_right_padded",
        {
            "vocab_size": 67,
            "hidden_size": 40,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "tie_word_embeddings": False,
        },
        (9, 14, 14, 3),
    ),
    Case(
        "all_kv_heads_left_padded",
        {
            "vocab_size": 83,
            "hidden_size": 32,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "head_dim": 24,
        },
        (5, 11, 8),
        side="left",
        positions=True,
    ),
    Case(
        "long_with_biases",
        {
            "vocab_size": 59,
            "hidden_size": 32,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 10,
            "attention_bias": True,
            "rope_theta": 500.0,
        },
        (300, 129),
    ),
    Case(
        "sharded_bfloat16",
        {
            "vocab_size": 61,
            "hidden_size": 24,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 20,
        },
        (10, 10),
        dtype=torch.bfloat16,
        save={"max_shard_size": "12KB"},
    ),
]


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    for number, case in enumerate(CASES):
        torch.manual_seed(number)
        folder = HERE / case.name
        build(case).to(case.dtype).save_pretrained(folder, **case.save)
        model = GemmaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        save_file(compute(case, model), folder / "case.safetensors")


def build(case: Case) -> GemmaForCausalLM:
    model = GemmaForCausalLM(GemmaConfig(**SHAPE, **case.sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.3 if parameter.dim() == 1 else 1.5 / parameter.shape[-1] ** 0.5
            parameter.normal_(0.0, spread)
        model.model.embed_tokens.weight.mul_(0.5)
    return model


def compute(case: Case, model: GemmaForCausalLM) -> dict[str, torch.Tensor]:
    inputs = batch(case)
    arguments = {key: inputs[key] for key in ("input_ids", "attention_mask", "position_ids") if key in inputs}
    logits = model(**arguments).logits
    labels = inputs["labels"]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    loss.backward()
    gradients = {f"gradient.{name}": weight.grad for name, weight in model.named_parameters()}
    results = {
        "logits": logits.detach(),
        "loss": loss.detach(),
        "correct": ((logits.argmax(-1) == labels) & (labels >= 0)).sum(),
    }
    if case.side == "left" or len(set(case.lengths)) == 1:
        results["generated"] = generated(model, inputs)
    tensors = {**inputs, **results, **gradients}
    return {
        name: (tensor.float() if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in tensors.items()
    }


def batch(case: Case) -> dict[str, torch.Tensor]:
    rows, columns = len(case.lengths), max(case.lengths)
    mask = torch.zeros(rows, columns, dtype=torch.int64)
    for row, length in enumerate(case.lengths):
        mask[row, slice(columns - length, None) if case.side == "left" else slice(0, length)] = 1
    ids = torch.randint(4, case.sizes["vocab_size"], (rows, columns)) * mask
    labels = torch.full_like(ids, -100)
    labels[:, :-1] = ids[:, 1:]
    labels[(mask == 0) | (torch.rand(rows, columns) < 0.25)] = -100
    labels[:, :-1][mask[:, 1:] == 0] = -100
    inputs = {"input_ids": ids, "labels": labels}
    if not bool(mask.all()):
        inputs["attention_mask"] = mask
    if case.positions:
        inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return inputs


def generated(model: GemmaForCausalLM, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask", torch.ones_like(ids))
    model.generation_config.eos_token_id = None
    tokens = model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False)
    return tokens[:, ids.shape[1] :]


if __name__ == "__main__":
    main()
