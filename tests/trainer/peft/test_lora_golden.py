"""Adapters train as those of Hugging Face PEFT do (tests/golden/make_lora.py)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from trainer import load_model
from trainer.config import FinetuneConfig
from trainer.config.adapters import ADAPTER_WEIGHTS, LoraSettings, read_adapter_settings
from trainer.loop.optimizer import build_optimizer
from trainer.models.base import CausalLM
from trainer.models.safetensors_file import SafetensorsFile
from trainer.peft.files import disk_tensors
from trainer.peft.lora.adapter import LoraAdapter, load_lora

LORA = Path(__file__).parents[2] / "golden" / "lora"
CASES = ["gemma_plain", "bloom_plain", "gemma_rslora", "bloom_plus"]


def golden(case: str) -> dict[str, Any]:
    return json.loads((LORA / case / "golden.json").read_text(encoding="utf-8"))


def adapted(case: str, which: str) -> tuple[CausalLM, LoraAdapter]:
    model = load_model(LORA.parent / golden(case)["base"])
    settings = read_adapter_settings(LORA / case / which)
    assert isinstance(settings, LoraSettings)
    return model, load_lora(model, settings, LORA / case / which)


def stored(case: str, which: str) -> dict[str, np.ndarray]:
    file = SafetensorsFile(LORA / case / which / ADAPTER_WEIGHTS)
    return {name: file.read(name) for name in file.headers}


def loss_of(model: CausalLM, example: dict[str, list[int]]) -> paddle.Tensor:
    return model.loss(*(paddle.to_tensor([example[name]]) for name in ("input_ids", "labels"))).sum


@pytest.mark.parametrize("case", CASES)
def test_three_steps_give_pefts_losses_and_adapter(
    case: str, make_config: Callable[..., FinetuneConfig]
) -> None:
    expected = golden(case)
    model, adapter = adapted(case, "start")
    adapter.scale_rate_of_b(expected["lora_plus_scale"])
    model.train()
    config = make_config(weight_decay=expected["weight_decay"])
    optimizer = build_optimizer(model.parameters(), config)
    for step in expected["steps"]:
        tokens = sum(label >= 0 for example in step["examples"] for label in example["labels"])
        losses = [loss_of(model, example) / tokens for example in step["examples"]]
        for loss in losses:
            loss.backward()
        assert sum(map(float, losses)) == pytest.approx(step["loss"], abs=1e-5)
        optimizer.set_lr(expected["learning_rate"])
        optimizer.step()
        optimizer.clear_grad()
    ours, theirs = disk_tensors(adapter.weights()), stored(case, "trained")
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_an_adapter_of_peft_loads_and_gives_pefts_logits(case: str) -> None:
    expected = golden(case)
    model, adapter = adapted(case, "trained")
    logits = model(paddle.to_tensor([expected["prompt"]]))[0].numpy()
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-4)
    assert adapter.settings.scale == pytest.approx(expected["scale"])


def test_rank_stabilised_scales_are_pefts() -> None:
    assert golden("gemma_rslora")["scale"] == pytest.approx(LoraSettings(8, 4, rslora=True).scale)
    assert LoraSettings(64, 4, rslora=True).scale == 0.5


def test_lora_plus_moves_b_further_than_a() -> None:
    start, plain, plus = (
        stored("bloom_plain", "start"),
        *(stored(f"bloom_{n}", "trained") for n in ("plain", "plus")),
    )
    b = [name for name in start if "lora_B" in name]
    moved = [sum(np.abs(trained[name]).mean() for name in b) for trained in (plain, plus)]
    assert moved[1] > 2 * moved[0]
