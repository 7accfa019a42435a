"""Write tests/golden/generation: small random models, and what transformers generates with them.

Each folder holds a model as `save_pretrained` writes it and `cases.json`: prompts of unequal lengths, which
transformers got as one left-padded batch, options, and the new tokens of each prompt up to its end token,
included. `filters.json` holds logits and the probabilities that transformers' samplers leave of them.
"""

# pyright: reportMissingImports=false

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    LogitsProcessorList,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

HERE = Path(__file__).parent / "generation"
NEW_TOKENS = 14
LENGTHS = (3, 9, 6, 1)
PENALTY = {"repetition_penalty": 1.7}
BEAMS: list[dict[str, Any]] = [
    {"num_beams": beams, "length_penalty": penalty, "early_stopping": early}
    for beams, penalty, early in (
        (2, 1.0, False),
        (3, 1.0, True),
        (4, 1.0, "never"),
        (4, 0.0, "never"),
        (3, 2.0, False),
        (3, -1.0, True),
        (5, 0.6, "never"),
    )
]
FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7},
    {"temperature": 1.9, "top_k": 5},
    {"top_k": 1},
    {"top_p": 0.8},
    {"top_p": 0.05},
    {"temperature": 1.3, "top_k": 12, "top_p": 0.9},
]


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    for number, (name, model) in enumerate(models().items()):
        torch.manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                # Wide matrices, or the residual stream is the last token and the model repeats it.
                parameter.normal_(0.0, 0.3 if parameter.dim() == 1 else 4.0 / parameter.shape[-1] ** 0.5)
        model.eval().save_pretrained(HERE / name)
        write(HERE / name / "cases.json", cases(model))
    write(HERE / "filters.json", filters())


def models() -> dict[str, PreTrainedModel]:
    gemma = {"vocab_size": 61, "intermediate_size": 48, "num_hidden_layers": 2}
    bloom = {"vocab_size": 67, "n_layer": 2, "unk_token_id": 0, "pad_token_id": 3, "eos_token_id": 2}
    return {
        "gemma_one_kv_head": GemmaForCausalLM(
            GemmaConfig(**gemma, hidden_size=32, num_attention_heads=4, num_key_value_heads=1, head_dim=12)
        ),
        "gemma_untied": GemmaForCausalLM(
            GemmaConfig(
                **gemma,
                hidden_size=24,
                num_attention_heads=2,
                num_key_value_heads=2,
                head_dim=16,
                tie_word_embeddings=False,
            )
        ),
        "bloom_four_heads": BloomForCausalLM(BloomConfig(**bloom, hidden_size=32, n_head=4)),
        "bloom_three_heads": BloomForCausalLM(BloomConfig(**bloom, hidden_size=36, n_head=3)),
    }


def cases(model: PreTrainedModel) -> dict[str, Any]:
    prompts = [torch.randint(4, model.config.vocab_size, (length,)).tolist() for length in LENGTHS]
    free = generate(model, prompts, [])
    stops = said_tokens(free)
    found = [case(model, prompts, options, []) for options in ({}, *BEAMS)]
    found += [case(model, prompts, options, stops) for options in ({}, *BEAMS)]
    # Alone, because transformers penalizes the padding token too.
    for options, ends in ((PENALTY, []), (PENALTY, stops), (PENALTY | BEAMS[2], stops)):
        alone = [generate(model, [prompt], ends, **options)[0] for prompt in prompts]
        found.append({"options": options, "stops": ends, "new": alone})
    return {"prompts": prompts, "new_tokens": NEW_TOKENS, "cases": found}


def said_tokens(rows: list[list[int]]) -> list[int]:
    """Two tokens that the model does say, one late and one half-way: the end tokens of the cases."""
    first = {token: min(row.index(token) for row in rows if token in row) for row in rows for token in row}
    order = sorted(first, key=lambda token: (first[token], token))
    return [order[-1], order[len(order) // 2]]


def case(
    model: PreTrainedModel, prompts: list[list[int]], options: dict[str, Any], stops: list[int]
) -> dict[str, Any]:
    return {"options": options, "stops": stops, "new": generate(model, prompts, stops, **options)}


def generate(
    model: PreTrainedModel, prompts: list[list[int]], stops: list[int], **options: Any
) -> list[list[int]]:
    columns = max(map(len, prompts))
    pad = model.config.pad_token_id
    ids = torch.tensor([[pad] * (columns - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (columns - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    config = model.generation_config
    config.eos_token_id, config.pad_token_id = stops or None, pad
    tokens = model.generate(ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, **options)
    return [until_stop(row, stops) for row in tokens[:, columns:].tolist()]


def until_stop(row: list[int], stops: list[int]) -> list[int]:
    end = next((place for place, token in enumerate(row) if token in stops), len(row) - 1)
    return row[: end + 1]


def filters() -> list[dict[str, Any]]:
    torch.manual_seed(0)
    found = []
    for options in FILTERS:
        logits = torch.randn(1, 40) * 3
        steps = LogitsProcessorList()
        if "temperature" in options:
            steps.append(TemperatureLogitsWarper(options["temperature"]))
        if "top_k" in options:
            steps.append(TopKLogitsWarper(options["top_k"]))
        if "top_p" in options:
            steps.append(TopPLogitsWarper(options["top_p"]))
        left = torch.softmax(steps(torch.zeros(1, 1, dtype=torch.int64), logits).double(), -1)
        found.append({"options": options, "logits": logits[0].tolist(), "probabilities": left[0].tolist()})
    return found


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
