import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import paddle
import pytest

from trainer import load_model
from trainer.data.batches import Batch, Collator
from trainer.data.packing import pack
from trainer.data.sft import Example
from trainer.loop.neftune import EmbeddingNoise
from trainer.loop.objective import loss_pass
from trainer.models.base import CausalLM
from trainer.parallel.layout import Layout

ALPHA = 7.0


@pytest.fixture
def examples() -> list[Example]:
    random = np.random.default_rng(4)
    found = []
    for length in (3, 40, 17):
        ids = random.integers(4, 300, length + 1).astype(np.int32)
        found.append(Example(ids[:-1], ids[1:], cut=False, lost_turns=0))
    return found


def embedded(model: CausalLM, batch: Batch) -> np.ndarray:
    """What the embedding gives in a forward pass, `[tokens, hidden]`."""
    found = []
    layer = dict(model.named_sublayers())[model.stages()[0].modules[0]]

    def keep(layer: Any, inputs: Any, output: Any) -> None:
        found.append(output.numpy())

    hook = layer.register_forward_post_hook(cast(Any, keep))
    model.run(loss_pass(batch))
    hook.remove()
    return found[0]


@pytest.mark.parametrize("family", ["gemma", "bloom"])
def test_noise_is_uniform_up_to_alpha_over_the_root_of_length_times_width(
    family: str, examples: list[Example], request: pytest.FixtureRequest
) -> None:
    model = load_model(request.getfixturevalue(f"tiny_{family}"))
    EmbeddingNoise(model, ALPHA)
    batch = Collator(0, "left")(examples)
    model.train()
    Layout.single().seed_step(1, 1)
    noisy = embedded(model, batch)
    model.eval()
    added = noisy - embedded(model, batch)
    start = 0
    for example in examples:
        most = ALPHA / math.sqrt(example.length * added.shape[1])
        part = np.abs(added[start : start + example.length])
        assert 0.9 * most < part.max() <= most * (1 + 1e-5)
        assert part.mean() == pytest.approx(most / 2, rel=0.15)
        start += example.length


def test_evaluation_has_no_noise(tiny_gemma: Path, examples: list[Example]) -> None:
    batch, plain = Collator(0, "left")(examples), load_model(tiny_gemma)
    noisy = load_model(tiny_gemma)
    EmbeddingNoise(noisy, ALPHA)
    plain.eval()
    noisy.eval()
    assert float(noisy.run(loss_pass(batch))[0]) == float(plain.run(loss_pass(batch))[0])


def test_the_same_step_draws_the_same_noise_whatever_the_padding_and_packing(
    tiny_gemma: Path, examples: list[Example]
) -> None:
    def loss(batch: Batch, step: int) -> float:
        model = load_model(tiny_gemma)
        EmbeddingNoise(model, ALPHA)
        model.train()
        Layout.single().seed_step(5, step)
        with paddle.no_grad():
            return float(model.run(loss_pass(batch))[0])

    batch = Collator(0, "left")(examples)
    packed = Collator(0, "right", length=64)(list(pack(examples, 64, greedy=False)))
    assert loss(batch, 1) == loss(batch, 1)
    assert loss(packed, 1) == pytest.approx(loss(batch, 1), rel=1e-6)
    assert loss(batch, 2) != loss(batch, 1)
