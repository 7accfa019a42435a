"""A short training gives the numbers of transformers and torch (tests/golden/make_training.py)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer import load_model
from trainer.config import FinetuneConfig
from trainer.data.batches import Batch, Collator
from trainer.data.sft import Example
from trainer.loop.engine import SingleEngine
from trainer.loop.objective import Supervised
from trainer.loop.schedule import Schedule
from trainer.loop.step import train_step
from trainer.parallel.update_choice import make_updater

GOLDEN = Path(__file__).parents[2] / "golden"


def to_batch(examples: list[dict[str, list[int]]], side: str) -> Batch:
    arrays = [
        Example(
            np.array(example["input_ids"], dtype=np.int32),
            np.array(example["labels"], dtype=np.int32),
            cut=False,
            lost_turns=0,
        )
        for example in examples
    ]
    return Collator(pad_id=0, side=side)(arrays)


@pytest.mark.parametrize("side", ["left", "right"])
def test_losses_rates_norms_and_final_weights_agree(
    make_config: Callable[..., FinetuneConfig], side: str
) -> None:
    golden: dict[str, Any] = json.loads((GOLDEN / "training.json").read_text(encoding="utf-8"))
    config = make_config(**golden["arguments"])
    model = load_model(GOLDEN / "gemma" / "one_kv_head")
    update = make_updater(model, config)
    schedule = Schedule(
        config.lr_scheduler_type, config.learning_rate, config.warmup_steps, len(golden["steps"])
    )
    for number, step in enumerate(golden["steps"]):
        rate = schedule.rate(number)
        result = train_step(
            SingleEngine(model),
            update,
            Supervised(),
            [to_batch(examples, side) for examples in step["batches"]],
            step=number + 1,
            rate=rate,
        )
        assert rate == pytest.approx(step["learning_rate"])
        assert result.loss == pytest.approx(step["loss"], rel=1e-5)
        assert result.grad_norm == pytest.approx(step["grad_norm"], rel=1e-4)
    found = {
        name: float(np.linalg.norm(weight.parameter.numpy()))
        for name, weight in model.parameter_names().items()
    }
    assert found == pytest.approx(golden["norms_of_final_weights"], rel=1e-4)
