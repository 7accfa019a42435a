"""Gemma computes what transformers computes (tests/golden/make_gemma.py)."""

from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file

from tests.trainer.ops.checks import gradient
from trainer.models import CausalLM, load_model
from trainer.tools.generate import generate_ids

GOLDEN = Path(__file__).parents[2] / "golden" / "gemma"
CASES = sorted(path.name for path in GOLDEN.iterdir())


class Case:
    """One golden folder, loaded."""

    def __init__(self, name: str) -> None:
        self.expected = load_file(GOLDEN / name / "case.safetensors")
        self.model: CausalLM = load_model(GOLDEN / name)
        self.ids = paddle.to_tensor(self.expected["input_ids"])
        self.labels = paddle.to_tensor(self.expected["labels"])
        self.masks = {
            key: paddle.to_tensor(self.expected[key])
            for key in ("attention_mask", "position_ids")
            if key in self.expected
        }
        self.real = self.expected.get("attention_mask", np.ones(self.ids.shape)) != 0


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_there_are_golden_cases():
    assert len(CASES) >= 4


def test_logits_agree_within_1e_4_of_the_largest(case: Case):
    logits = case.model(case.ids, **case.masks).numpy()
    expected = case.expected["logits"]
    error = np.abs(logits - expected)[case.real].max()
    assert error <= 1e-4 * np.abs(expected[case.real]).max()


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
    case.model.loss(case.ids, case.labels, **case.masks).sum.backward()
    weights = case.model.parameter_names()
    expected = {
        key.removeprefix("gradient."): value for key, value in case.expected.items() if "gradient." in key
    }
    assert expected.keys() == weights.keys()
    for name, weight in weights.items():
        found = gradient(weight.parameter)
        found = found.T if weight.transposed else found
        error = np.linalg.norm(found - expected[name]) / np.linalg.norm(expected[name])
        assert error <= 1e-3, name


def test_the_same_step_gives_the_same_bits(case: Case):
    def gradients() -> list[bytes]:
        case.model.clear_gradients()
        case.model.loss(case.ids, case.labels, **case.masks).sum.backward()
        return [gradient(parameter).tobytes() for parameter in case.model.parameters()]

    assert gradients() == gradients()


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("name", ["one_kv_head", "all_kv_heads_left_padded", "sharded_bfloat16"])
def test_greedy_generation_gives_the_same_tokens(name: str, use_cache: bool):
    case = Case(name)
    prompts = [list(row[real]) for row, real in zip(case.expected["input_ids"], case.real, strict=True)]
    tokens = generate_ids(case.model, prompts, 12, stops=(), use_cache=use_cache)
    assert tokens == case.expected["generated"].tolist()
