"""Write tests/golden/gemma and tests/golden/bloom: small random models, and what transformers computes.

Each folder holds a model as `save_pretrained` writes it and `case.safetensors`: inputs, logits, the summed
loss of the labelled tokens, the number of correct ones, the gradient of that loss for every parameter, all in
float32 (transformers gives NaN for padded rows in float64), and tokens generated greedily from the batch.
"""

# pyright: reportMissingImports=false

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch
from model_cases import BLOOM, GEMMA, Case
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BloomConfig, BloomForCausalLM, GemmaConfig, GemmaForCausalLM
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

HERE = Path(__file__).parent


@dataclass
class Family:
    """How a family's models are made; `shape` is what all its cases share."""

    name: str
    config: type
    model: type
    shape: dict
    cases: list[Case] = field(default_factory=list)


FAMILIES = [
    Family(
        "gemma",
        GemmaConfig,
        GemmaForCausalLM,
        {"num_hidden_layers": 2, "intermediate_size": 56, "max_position_embeddings": 512},
        GEMMA,
    ),
    Family("bloom", BloomConfig, BloomForCausalLM, {"n_layer": 2, "pad_token_id": 3}, BLOOM),
]


def main() -> None:
    for family in FAMILIES:
        shutil.rmtree(HERE / family.name, ignore_errors=True)
        for number, case in enumerate(family.cases):
            torch.manual_seed(number)
            folder = HERE / family.name / case.name
            build(family, case).to(getattr(torch, case.dtype)).save_pretrained(folder, **case.save)
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            )
            save_file(compute(case, model), folder / "case.safetensors")
            if case.alibi:
                set_field(folder, "alibi", True)
            if case.bare_names:
                strip_prefix(folder)


def build(family: Family, case: Case) -> torch.nn.Module:
    model = family.model(family.config(**family.shape, **case.sizes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() == 1 else 1.5 / parameter.shape[-1] ** 0.5
            parameter.normal_(0.0, spread)
            if family.name == "bloom" and name.endswith(("layernorm.weight", "ln_f.weight")):
                parameter.add_(1.0)
        model.get_input_embeddings().weight.mul_(0.5)
    return model


def compute(case: Case, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    inputs = batch(case)
    logits = model(**arguments(case, model, inputs)).logits
    labels = inputs["labels"]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    loss.backward()
    gradients = {f"gradient.{name}": weight.grad for name, weight in model.named_parameters()}
    results = {
        "logits": logits.detach(),
        "loss": loss.detach(),
        "correct": ((logits.argmax(-1) == labels) & (labels >= 0)).sum(),
    }
    if not case.alibi and (case.side == "left" or len(set(case.lengths)) == 1):
        results["generated"] = generated(model, inputs)
    tensors = {**inputs, **results, **gradients}
    return {
        name: (tensor.float() if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in tensors.items()
    }


def arguments(case: Case, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    names = ["input_ids", "attention_mask"]
    if model.config.model_type == "gemma":  # BLOOM counts by the mask alone
        names.append("position_ids")
    given = {name: inputs[name] for name in names if name in inputs}
    return with_alibi(model, given) if case.alibi else given


def with_alibi(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Biases and causal mask in place of the padding mask; at position 0 the rotation does nothing."""
    ids = inputs["input_ids"]
    mask = inputs["attention_mask"]
    rows, columns = ids.shape
    heads = model.config.num_attention_heads
    bias = build_alibi_tensor(mask, heads, torch.float32).view(rows, heads, 1, columns)
    seen = torch.tril(torch.ones(columns, columns, dtype=torch.bool)) & (mask[:, None, None] != 0)
    bias = bias.expand(-1, -1, columns, -1).masked_fill(~seen, -1e9)
    return {"input_ids": ids, "attention_mask": bias, "position_ids": torch.zeros_like(ids)}


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


def generated(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask", torch.ones_like(ids))
    model.generation_config.eos_token_id = None
    tokens = model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False)
    return tokens[:, ids.shape[1] :]


def set_field(folder: Path, name: str, value: object) -> None:
    path = folder / "config.json"
    content = {**json.loads(path.read_text(encoding="utf-8")), name: value}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def strip_prefix(folder: Path) -> None:
    """Names as some published files have them: no prefix, and a copy of the tied head."""
    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    tensors["lm_head.weight"] = tensors["word_embeddings.weight"].clone()
    save_file(tensors, path, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
