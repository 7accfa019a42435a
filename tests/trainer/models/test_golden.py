"""Every family computes what transformers computes (tests/golden/make_models.py)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file

from tests.trainer.ops.checks import gradient
from trainer.models import CausalLM, load_model
from trainer.tools.generate import generate_ids

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = sorted(
    f"{family}/{path.name}" for family in ("bloom", "gemma") for path in (GOLDEN / family).iterdir()
)
GEMMA_CASES = [name for name in CASES if name.startswith("gemma/")]
SWITCHES = [
    {"fuse_attention_qkv": True},
    {"fuse_attention_ffn": True},
    {"fuse_attention_qkv": True, "fuse_attention_ffn": True},
]


class Case:
    """One golden folder, loaded."""

    def __init__(self, name: str, options: Mapping[str, bool] | None = None) -> None:
        self.expected = load_file(GOLDEN / name / "case.safetensors")
        self.model: CausalLM = load_model(GOLDEN / name, options=options)
        self.ids = paddle.to_tensor(self.expected["input_ids"])
        self.labels = paddle.to_tensor(self.expected["labels"])
        self.masks = {
            key: paddle.to_tensor(self.expected[key])
            for key in ("attention_mask", "position_ids")
            if key in self.expected
        }
        self.real = self.expected.get("attention_mask", np.ones(self.ids.shape)) != 0

    def gradients(self) -> dict[str, np.ndarray]:
        """The gradient of the loss for every tensor of the files."""
        self.model.clear_gradients()
        self.model.loss(self.ids, self.labels, **self.masks).sum.backward()
        return {
            name: weight.turned(paddle.to_tensor(gradient(weight.parameter))).numpy()
            for name, weight in self.model.parameter_names().items()
        }


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def assert_logits_agree(case: Case) -> None:
    logits = case.model(case.ids, **case.masks).numpy()
    expected = case.expected["logits"]
    error = np.abs(logits - expected)[case.real].max()
    assert error <= 1e-4 * np.abs(expected[case.real]).max()


def assert_gradients_agree(case: Case) -> None:
    prefix = "gradient."
    expected = {
        name.removeprefix(prefix): value for name, value in case.expected.items() if name.startswith(prefix)
    }
    found = case.gradients()
    assert expected.keys() == found.keys()
    # The bias of a key projection shifts all scores of a row alike, so its true gradient is zero.
    floor = 1e-6 * max(np.linalg.norm(value) for value in expected.values())
    for name, value in expected.items():
        error = np.linalg.norm(found[name] - value)
        assert error <= max(1e-3 * np.linalg.norm(value), floor), name


@pytest.mark.parametrize("family", ["bloom", "gemma"])
def test_there_are_at_least_six_golden_models_of_each_family(family: str):
    assert sum(name.startswith(f"{family}/") for name in CASES) >= 6


def test_logits_agree_within_1e_4_of_the_largest(case: Case):
    assert_logits_agree(case)


def test_logits_at_padding_are_zero(case: Case):
    logits = case.model(case.ids, **case.masks).numpy()
    assert (logits[~case.real] == 0).all()


def test_the_loss_agrees_within_1e_5(case: Case):
    loss = case.model.loss(case.ids, case.labels, **case.masks)
    assert loss.tokens == (case.expected["labels"] >= 0).sum()
    assert float(loss.sum) == pytest.approx(float(case.expected["loss"]), rel=1e-5)


def test_correct_tokens_are_counted_when_no_gradient_is_recorded(case: Case):
    with paddle.no_grad():
        loss = case.model.loss(case.ids, case.labels, **case.masks)
    assert loss.correct == case.expected["correct"]
    assert float(loss.sum) == pytest.approx(float(case.expected["loss"]), rel=1e-5)


def test_every_gradient_agrees_within_1e_3(case: Case):
    assert_gradients_agree(case)


def test_the_same_step_gives_the_same_bits(case: Case):
    first, second = case.gradients(), case.gradients()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@pytest.mark.parametrize("options", SWITCHES, ids=" ".join)
@pytest.mark.parametrize("name", GEMMA_CASES)
def test_fused_matrices_compute_the_same(name: str, options: dict[str, bool]):
    case, apart = Case(name, options), Case(name)
    assert len(case.model.parameters()) < len(apart.model.parameters())
    logits, expected = (one.model(one.ids, **one.masks).numpy() for one in (case, apart))
    # With several threads a wider product adds up in another order.
    np.testing.assert_allclose(logits, expected, atol=3e-6 * np.abs(expected).max())
    assert_gradients_agree(case)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    "name", [name for name in CASES if "generated" in load_file(GOLDEN / name / "case.safetensors")]
)
def test_greedy_generation_gives_the_same_tokens(name: str, use_cache: bool):
    case = Case(name)
    prompts = [list(row[real]) for row, real in zip(case.expected["input_ids"], case.real, strict=True)]
    tokens = generate_ids(case.model, prompts, 12, stops=(), use_cache=use_cache)
    assert tokens == case.expected["generated"].tolist()
