"""Preference losses of small models on packed batches (numbers of TRL: tests/golden/make_preference.py)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from tests.trainer.ops.checks import gradient
from trainer.config.fields.preference import DpoFields, KtoFields
from trainer.data.packing import pack
from trainer.data.preference import PreferenceExample, Response
from trainer.data.preference_batches import PreferenceBatch, PreferenceCollator
from trainer.loop.preference import pair_logps
from trainer.loop.reference import log_probability_pass
from trainer.models import CausalLM, load_model
from trainer.preference.dpo import dpo_losses, dpo_metrics
from trainer.preference.kto import kl_estimate, kto_losses, kto_metrics

GOLDEN = Path(__file__).parents[2] / "golden"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "preference_models.json").read_text(encoding="utf-8"))

#: Sequences long enough for one example, for two, and for all: the numbers are the same.
LENGTHS = (20, 30, 64)

DPO_CASES = [(case, dpo) for case in CASES for dpo in case["dpo"]]


def name_of(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    return value["model"] if "model" in value else value["settings"]["loss_type"]


def example(prompt: list[int], *responses: list[int], **more: Any) -> PreferenceExample:
    parts = tuple(Response.of(prompt[-1], response, room=len(response)) for response in responses)
    return PreferenceExample(np.array(prompt[:-1], dtype=np.int32), parts, **more)


def pairs_of(case: dict[str, Any]) -> list[PreferenceExample]:
    return [example(one["prompt_ids"], one["chosen_ids"], one["rejected_ids"]) for one in case["examples"]]


def judged_of(case: dict[str, Any]) -> list[PreferenceExample]:
    kto = case["kto"]
    columns = zip(case["examples"], kto["responses"], kto["mismatched"], kto["desirable"], strict=True)
    return [
        example(
            one["prompt_ids"],
            response,
            desirable=desirable,
            mismatched=example(one["prompt_ids"], other),
        )
        for one, response, other, desirable in columns
    ]


def batch_of(examples: list[PreferenceExample], length: int, side: str = "right") -> PreferenceBatch:
    return PreferenceCollator(pad_id=0, side=side)(list(pack(examples, length, greedy=False)))


def reference_of(case: dict[str, Any]) -> CausalLM:
    model = load_model(GOLDEN / case["model"])
    names = {"gemma": "model.embed_tokens.weight", "bloom": "transformer.word_embeddings.weight"}
    embeddings = model.parameter_names()[names[case["model"].split("/")[0]]].parameter
    embeddings.set_value(embeddings * case["reference_scale"])
    return model


def assert_gradients_agree(model: CausalLM, expected: dict[str, list[float]]) -> None:
    weights = model.parameter_names()
    for name, values in expected.items():
        found = weights[name].turned(paddle.to_tensor(gradient(weights[name].parameter))).numpy()
        error = np.linalg.norm(found.flatten() - values)
        assert error <= 1e-4 * np.linalg.norm(values), name


def means(metrics: dict[str, tuple[float, float]]) -> dict[str, float]:
    return {name: total / count for name, (total, count) in metrics.items()}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_log_probabilities_of_packed_pairs_are_those_of_apart_sequences(
    case: dict[str, Any], length: int, side: str
) -> None:
    batch = batch_of(pairs_of(case), length, side)
    for model, key in (
        (load_model(GOLDEN / case["model"]), "logps"),
        (reference_of(case), "reference_logps"),
    ):
        with paddle.no_grad():
            found = model.run(log_probability_pass(batch)).numpy()
        np.testing.assert_allclose([found[0::2], found[1::2]], case["dpo"][0][key], rtol=1e-5)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("case", "dpo"), DPO_CASES, ids=name_of)
def test_dpo_losses_rewards_and_gradients_are_those_of_trl(
    case: dict[str, Any], dpo: dict[str, Any], length: int
) -> None:
    settings = DpoFields(**dpo["settings"])
    batch = batch_of(pairs_of(case), length)
    model = load_model(GOLDEN / case["model"])
    with paddle.no_grad():
        reference = pair_logps(reference_of(case).run(log_probability_pass(batch)), batch)
    policy = pair_logps(model.run(log_probability_pass(batch)), batch)
    losses = dpo_losses(settings, policy, reference)
    losses.mean().backward()
    assert losses.mean().item() == pytest.approx(dpo["loss"], rel=1e-5)
    assert_gradients_agree(model, dpo["gradients"])
    if settings.loss_type != "ipo":  # whose rewards are per token here, and sums in TRL
        found = means(dpo_metrics(settings, policy, reference, losses))
        assert {name: found[name] for name in dpo["metrics"]} == pytest.approx(
            dpo["metrics"], rel=1e-5, abs=1e-5
        )


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_kto_loss_kl_term_rewards_and_gradients_are_those_of_trl(case: dict[str, Any], length: int) -> None:
    kto = case["kto"]
    settings = KtoFields(**kto["settings"])
    batch = batch_of(judged_of(case), length)
    assert batch.mismatched is not None
    assert batch.desirable is not None
    desirable = paddle.to_tensor(batch.desirable)
    model, reference_model = load_model(GOLDEN / case["model"]), reference_of(case)
    with paddle.no_grad():
        kl = kl_estimate(
            model.run(log_probability_pass(batch.mismatched)),
            reference_model.run(log_probability_pass(batch.mismatched)),
        )
        reference = reference_model.run(log_probability_pass(batch))
    policy = model.run(log_probability_pass(batch))
    loss = kto_losses(settings, policy, reference, desirable, kl).mean()
    loss.backward()
    assert loss.item() == pytest.approx(kto["loss"], rel=1e-5)
    assert_gradients_agree(model, kto["gradients"])
    found = means(kto_metrics(settings, policy, reference, desirable, kl))
    expected = {name: value for name, value in kto["metrics"].items() if name != "rewards/margins"}
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
