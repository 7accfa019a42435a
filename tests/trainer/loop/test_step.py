from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest

from trainer import load_model
from trainer.config import FinetuneConfig
from trainer.data.batches import Batch, Collator
from trainer.data.sft import IGNORE, Example
from trainer.loop.engine import SingleEngine
from trainer.loop.objective import Supervised, loss_pass
from trainer.loop.step import NonFiniteLossError, StepResult, train_step
from trainer.models.base import CausalLM
from trainer.parallel.layout import Layout
from trainer.parallel.update_choice import make_updater

MakeConfig = Callable[..., FinetuneConfig]


@pytest.fixture
def examples() -> list[Example]:
    """Four examples of very different lengths and numbers of label tokens."""
    random = np.random.default_rng(1)
    found = []
    for length, learned in ((20, 15), (5, 1), (9, 4), (3, 2)):
        ids = random.integers(4, 300, length + 1).astype(np.int32)
        labels = ids[1:].copy()
        labels[: length - learned] = IGNORE
        found.append(Example(ids[:-1], labels, cut=False, lost_turns=0))
    return found


def take_step(
    directory: Path, config: FinetuneConfig, batches: list[Batch]
) -> tuple[StepResult, dict[str, np.ndarray]]:
    model = load_model(directory)
    result = train_step(
        SingleEngine(model),
        make_updater(model, config),
        Supervised(),
        batches,
        step=1,
        rate=1e-3,
    )
    return result, {name: weight.parameter.numpy() for name, weight in model.parameter_names().items()}


@pytest.mark.parametrize("side", ["left", "right"])
def test_two_micro_batches_of_two_are_one_batch_of_four(
    tiny_gemma: Path, make_config: MakeConfig, examples: list[Example], side: str
) -> None:
    collate, config = Collator(0, side), make_config(adam_epsilon=1e-3, max_grad_norm=0.0)
    whole, expected = take_step(tiny_gemma, config, [collate(examples)])
    split, found = take_step(tiny_gemma, config, [collate(examples[:2]), collate(examples[2:])])
    assert split.loss == pytest.approx(whole.loss, rel=1e-6)
    assert split.grad_norm == pytest.approx(whole.grad_norm, rel=1e-5)
    for name, weight in expected.items():
        np.testing.assert_allclose(found[name], weight, atol=1e-6)


def test_padding_does_not_change_the_step(
    tiny_gemma: Path, make_config: MakeConfig, examples: list[Example]
) -> None:
    config = make_config()
    tight, expected = take_step(tiny_gemma, config, [Collator(0, "left")(examples)])
    wide, found = take_step(tiny_gemma, config, [Collator(0, "left", length=64)(examples)])
    assert wide.loss == pytest.approx(tight.loss, rel=1e-6)
    for name, weight in expected.items():
        np.testing.assert_allclose(found[name], weight, atol=1e-6)


def test_the_loss_is_the_mean_over_label_tokens_and_not_a_mean_of_means(
    tiny_gemma: Path, make_config: MakeConfig, examples: list[Example]
) -> None:
    collate, model = Collator(0, "left"), load_model(tiny_gemma)
    sums = [float(model.run(loss_pass(collate([example])))[0]) for example in examples]
    tokens = [example.label_tokens for example in examples]
    result, _ = take_step(tiny_gemma, make_config(), [collate([example]) for example in examples])
    assert result.loss == pytest.approx(sum(sums) / sum(tokens), rel=1e-6)


def broken(directory: Path) -> CausalLM:
    model = load_model(directory)
    weight = next(iter(model.parameter_names().values())).parameter
    with paddle.no_grad():
        weight.set_value(np.full(weight.shape, np.nan, dtype="float32"))
    return model


def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_step(
    tiny_gemma: Path, make_config: MakeConfig, examples: list[Example]
) -> None:
    model = broken(tiny_gemma)
    with pytest.raises(NonFiniteLossError, match=r"is nan at step 12 .*learning rate 0\.5") as raised:
        train_step(
            SingleEngine(model),
            make_updater(model, make_config()),
            Supervised(),
            [Collator(0, "left")(examples)],
            step=12,
            rate=0.5,
        )
    assert raised.value.kind == "nan_loss"
    assert raised.value.exit_code == 1


def test_randomness_inside_a_step_depends_on_seed_and_step_alone() -> None:
    def drawn(seed: int, step: int) -> tuple[float, ...]:
        Layout.single().seed_step(seed, step)
        return tuple(paddle.rand([4]).numpy())

    first = drawn(1, 5)
    paddle.rand([100])
    assert drawn(1, 5) == first
    assert drawn(1, 6) != first
    assert drawn(2, 5) != first
