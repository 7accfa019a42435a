"""Greedy and beam search give transformers' tokens (tests/golden/make_generation.py)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.models import load_model
from trainer.tools.generate import generate_ids
from trainer.tools.generate_logits import probabilities
from trainer.tools.generate_options import GenerateOptions

GOLDEN = Path(__file__).parents[2] / "golden" / "generation"
FILTERS = json.loads((GOLDEN / "filters.json").read_text())
MODELS = ("gemma_one_kv_head", "gemma_untied", "bloom_four_heads", "bloom_three_heads")


def read(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name / "cases.json").read_text())


def numbered_cases() -> list[tuple[str, int]]:
    return [(name, number) for name in MODELS for number in range(len(read(name)["cases"]))]


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(("name", "number"), numbered_cases())
def test_a_padded_batch_gives_the_same_tokens(name: str, number: int, use_cache: bool):
    golden = read(name)
    case = golden["cases"][number]
    model = load_model(GOLDEN / name)
    stops = set(case["stops"])
    new = generate_ids(
        model, golden["prompts"], golden["new_tokens"], stops, use_cache=use_cache, **case["options"]
    )
    assert new == [[token for token in row if token not in stops] for row in case["new"]]


def test_the_golden_beams_differ_from_the_greedy_tokens_and_end_at_different_lengths():
    for name in MODELS:
        cases = read(name)["cases"]
        greedy = {json.dumps(case["stops"]): case["new"] for case in cases if not case["options"]}
        beams = [case for case in cases if case["options"].get("num_beams")]
        assert any(case["new"] != greedy[json.dumps(case["stops"])] for case in beams)
        assert len({len(row) for case in beams for row in case["new"]}) > 3


@pytest.mark.parametrize("golden", FILTERS, ids=lambda golden: json.dumps(golden["options"]))
def test_what_is_drawn_from_is_what_transformers_leaves(golden: dict[str, Any]):
    options = GenerateOptions(do_sample=True, **golden["options"])
    found = probabilities(np.array(golden["logits"], np.float32), options)
    assert np.abs(found - golden["probabilities"]).max() < 1e-6
    assert ((found == 0) == (np.array(golden["probabilities"]) == 0)).all()
