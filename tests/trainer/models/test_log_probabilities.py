"""Responses that share one prompt in one sequence are as likely as each alone behind its prompt."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
import pytest

from trainer import load_model
from trainer.data.packing import Pack
from trainer.data.preference import PreferenceExample, Response
from trainer.data.preference_batches import PreferenceBatch, PreferenceCollator
from trainer.loop.reference import log_probability_pass
from trainer.models.base import CausalLM

#: Lengths of the prompt and of the two responses of examples.
SIZES = ((5, 4, 7), (1, 3, 2), (9, 1, 6), (12, 8, 8))


def example(number: int, prompt: int, *responses: int) -> PreferenceExample:
    generator = np.random.default_rng(number)
    ids = generator.integers(3, 500, prompt).astype(np.int32)
    parts = [generator.integers(3, 500, length).tolist() for length in responses]
    return PreferenceExample(ids[:-1], tuple(Response.of(int(ids[-1]), part, len(part)) for part in parts))


EXAMPLES = [example(number, *sizes) for number, sizes in enumerate(SIZES)]
TOGETHER = [Pack(tuple(EXAMPLES[:2])), Pack(tuple(EXAMPLES[2:]))]


def alone(model: CausalLM) -> Iterator[paddle.Tensor]:
    """The log-probability of every response as a sequence of its own, from all its logits."""
    for one in EXAMPLES:
        for response in one.responses:
            ids = np.concatenate([one.prompt, response.input_ids]).astype(np.int64)
            logits = model(paddle.to_tensor(ids[None]))[0, len(one.prompt) :]
            found = paddle.nn.functional.log_softmax(logits, axis=-1)
            labels = paddle.to_tensor(response.labels.astype(np.int64)).unsqueeze(1)
            yield paddle.take_along_axis(found, labels, axis=1).sum()


@pytest.fixture(params=["gemma", "bloom"])
def model(request: pytest.FixtureRequest, tiny_gemma: Path, tiny_bloom: Path) -> CausalLM:
    return load_model(tiny_gemma if request.param == "gemma" else tiny_bloom)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", [None, 40])
def test_a_shared_prompt_changes_no_log_probability(model: CausalLM, side: str, length: int | None) -> None:
    batch = PreferenceCollator(0, side, length)(TOGETHER)
    found = model.run(log_probability_pass(batch))
    expected = paddle.stack(list(alone(model)))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-5, rtol=1e-6)


def test_a_shared_prompt_changes_no_gradient(model: CausalLM) -> None:
    worth = paddle.to_tensor(np.linspace(-1, 1, 2 * len(EXAMPLES)).astype(np.float32))
    gradients = []
    for found in (
        model.run(log_probability_pass(PreferenceCollator(0, "left")(TOGETHER))),
        paddle.stack(list(alone(model))),
    ):
        (found * worth).sum().backward()
        weights = model.parameter_names().items()
        gradients.append({name: np.asarray(weight.parameter.grad) for name, weight in weights})
        model.clear_gradients()
    for name, expected in gradients[1].items():
        scale = np.abs(expected).max()
        np.testing.assert_allclose(gradients[0][name], expected, atol=1e-5 * scale, err_msg=name)


def test_the_branches_of_a_document_do_not_see_each_other(model: CausalLM) -> None:
    batch = PreferenceCollator(0, "left")([EXAMPLES[0]])
    before = model.run(log_probability_pass(batch)).numpy()
    changed = batch.input_ids.copy()
    first = np.flatnonzero(batch.branches[0] == 1)
    changed[0, first] = (changed[0, first] + 1) % 500
    after = model.run(log_probability_pass(PreferenceBatch(**{**vars(batch), "input_ids": changed}))).numpy()
    assert after[1] == before[1]
    assert after[0] != before[0]
