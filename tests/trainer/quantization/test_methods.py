"""Each way to quantize a model does better than rounding, and says what it did."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import paddle
import pytest

from tests.trainer.quantization.calibrated import FAMILIES, batches, small, states_of
from trainer import load_model
from trainer.config.problems import ConfigError, TrainingError
from trainer.models import CausalLM, linear_layers, save_model
from trainer.models.passes import LossPass, Pass
from trainer.ops.packing import Packing
from trainer.quantization import methods
from trainer.quantization.calibration import Walk
from trainer.quantization.groups import input_groups
from trainer.quantization.inputs import is_named
from trainer.quantization.layers import QuantizedLinear
from trainer.quantization.methods import Progress, quantize_awq, quantize_gptq, quantize_ptq
from trainer.quantization.piecewise import PiecewiseSearch
from trainer.quantization.report import QuantizationReport
from trainer.quantization.settings import (
    AwqSettings,
    GptqSettings,
    PtqSettings,
    QuantType,
    ShiftSettings,
    SmoothSettings,
    WeightMethod,
)
from trainer.quantization.shift import ShiftSampler

Quantize = Callable[[CausalLM, Sequence[Pass], QuantizationReport], Iterator[Progress]]

METHODS: dict[str, Quantize] = {
    "a8w8": lambda model, given, report: quantize_ptq(
        model, given, PtqSettings(smooth=SmoothSettings(all_linears=True)), report
    ),
    "int8": lambda model, given, report: quantize_ptq(
        model, given, PtqSettings(QuantType.WEIGHT_ONLY_INT8), report
    ),
    "int4": lambda model, given, report: quantize_ptq(
        model, given, PtqSettings(QuantType.WEIGHT_ONLY_INT4, WeightMethod.GROUPWISE, 32), report
    ),
    "gptq": lambda model, given, report: quantize_gptq(model, given, GptqSettings(group_size=16), report),
    "awq": lambda model, given, report: quantize_awq(
        model, given, AwqSettings(group_size=32, auto_clip=True), report
    ),
}


def run(work: Iterator[Progress]) -> None:
    for _ in work:
        pass


def relative(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.square(found - wanted).sum() / np.square(wanted).sum())


def with_outliers(model: CausalLM, times: float, channel: int = 5) -> CausalLM:
    """The same function, but one channel behind every norm is larger."""
    for block in Walk(model, batches(1)):
        for group in input_groups(model, block):
            if group.source is not None and group.source.is_norm:
                factors = np.ones(group.source.channels)
                factors[channel] = 1 / times
                group.divide(factors)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("search", [None, PiecewiseSearch(pieces=2, alpha_min=0.4, alpha_max=0.45)])
@pytest.mark.parametrize("sampler", ShiftSampler)
def test_shifting_and_smoothing_alone_leave_logits_unchanged(
    family: str,
    search: PiecewiseSearch | None,
    sampler: ShiftSampler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, given = with_outliers(small(family), 20), batches()
    before = states_of(model, given[0])
    weights = {layer.path: layer.layer.weight.numpy() for layer in linear_layers(model)}
    settings = PtqSettings(
        shift=ShiftSettings(all_linears=True, sampler=sampler),
        smooth=SmoothSettings(all_linears=True, search=search),
    )
    monkeypatch.setattr(methods, "quantize_model", lambda *_: None)
    run(quantize_ptq(model, given, settings, QuantizationReport()))
    after = states_of(model, given[0])
    assert np.abs(after - before).max() < 1e-5 * np.abs(before).max()
    changed = [
        layer.path
        for layer in linear_layers(model)
        if (layer.layer.weight.numpy() != weights[layer.path]).any()
    ]
    assert len(changed) == {"gemma": 14, "bloom": 6}[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_piecewise_search_beats_plain_smoothing_which_beats_none_where_a_channel_is_large(
    family: str,
) -> None:
    given, plain = batches(), SmoothSettings()
    searched = SmoothSettings(search=PiecewiseSearch())
    errors, of_logits = [], []
    for smooth in (None, plain, searched):
        model = with_outliers(small(family, layers=1), 60)
        before, report = states_of(model, given[0]), QuantizationReport()
        run(quantize_ptq(model, given, PtqSettings(smooth=smooth), report))
        others = ("o_proj", "down_proj", "attention.dense", "dense_4h_to_h")
        errors.append([layer.error for layer in report.layers if not layer.path.endswith(others)])
        of_logits.append(relative(states_of(model, given[0]), before))
    for none, some, least in zip(*errors, strict=True):
        assert none > 100 * some
        assert some > least
    assert of_logits[0] > 50 * max(of_logits[1:])


def test_shifting_helps_where_channels_lie_far_from_zero() -> None:
    given = batches()
    errors = []
    for shift in (None, ShiftSettings(sampler=ShiftSampler.NONE)):
        model = small("bloom", layers=1)
        for name, parameter in model.named_parameters():
            if name.endswith("h.0.input_layernorm.bias"):
                parameter.set_value(parameter + 3.0 * paddle.sign(parameter))
        report = QuantizationReport()
        run(quantize_ptq(model, given, PtqSettings(shift=shift), report))
        errors.append(report.layers[0].error)
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_awq_beats_rounding_at_4_bits(family: str) -> None:
    given = batches()
    rounded, scaled = (with_outliers(small(family), 8) for _ in range(2))
    before, report = states_of(rounded, given[0]), QuantizationReport()
    plain = PtqSettings(QuantType.WEIGHT_ONLY_INT4, WeightMethod.GROUPWISE, 32)
    run(quantize_ptq(rounded, given, plain, QuantizationReport()))
    run(quantize_awq(scaled, given, AwqSettings(group_size=32), report))
    assert sum(layer.error for layer in report.layers) < 0.9 * sum(layer.rtn_error for layer in report.layers)
    assert relative(states_of(scaled, given[0]), before) < relative(states_of(rounded, given[0]), before)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("act_order", [False, True])
def test_gptq_beats_rounding_in_every_layer(family: str, act_order: bool) -> None:
    given, report = batches(), QuantizationReport()
    rounded, treated = small(family), small(family)
    before = states_of(rounded, given[0])
    plain = PtqSettings(QuantType.WEIGHT_ONLY_INT4, WeightMethod.GROUPWISE, 32)
    run(quantize_ptq(rounded, given, plain, QuantizationReport()))
    run(quantize_gptq(treated, given, GptqSettings(group_size=32, act_order=act_order), report))
    assert all(layer.error < layer.rtn_error for layer in report.layers)
    assert relative(states_of(treated, given[0]), before) < relative(states_of(rounded, given[0]), before)


def test_narrowing_ranges_helps_at_4_bits() -> None:
    given, report = batches(), QuantizationReport()
    settings = PtqSettings(QuantType.WEIGHT_ONLY_INT4, auto_clip=True)
    run(quantize_ptq(small("bloom"), given, settings, report))
    for layer in report.layers:
        if layer.path.endswith("query_key_value"):
            assert layer.error == pytest.approx(layer.rtn_error)
        else:
            assert layer.error < layer.rtn_error


@pytest.mark.parametrize("family", FAMILIES)
def test_one_row_repeated_is_quantized_with_a_damping_that_the_report_tells(family: str) -> None:
    ids = paddle.full([4, 1], 7, "int64")
    packing = Packing.of(ids, None, None)
    packed, report = packing.pack(ids), QuantizationReport()
    run(quantize_gptq(small(family), [LossPass(packed, packing, packed)], GptqSettings(damping=0.0), report))
    assert {layer.damping for layer in report.layers} == {0.01}
    assert all(layer.error < layer.rtn_error for layer in report.layers)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_channel_that_is_always_zero_is_counted(family: str) -> None:
    model, report = small(family), QuantizationReport()
    for name, parameter in model.named_parameters():
        if "0.input_layernorm" in name:
            values = parameter.numpy()
            values[5] = -1.0 if family == "gemma" else 0.0
            parameter.set_value(values)
    run(quantize_gptq(model, batches(), GptqSettings(), report))
    assert report.layers[0].dead_inputs == 1
    assert np.isfinite(states_of(model, batches()[0])).all()


def test_gptq_names_the_layer_whose_inputs_are_not_finite() -> None:
    model = small("gemma")
    norm = dict(model.named_parameters())["model.layers.1.input_layernorm.weight"]
    norm.set_value(norm * np.nan)
    with pytest.raises(TrainingError, match=r"model\.layers\.1\.self_attn\.q_proj"):
        run(quantize_gptq(model, batches(), GptqSettings(), QuantizationReport()))


@pytest.mark.parametrize("method", METHODS)
def test_a_quantized_model_is_the_same_after_saving_and_loading(method: str, tmp_path: Path) -> None:
    model, given, report = small("gemma"), batches(), QuantizationReport()
    layers = [layer.path for layer in linear_layers(model)]
    progress = list(METHODS[method](model, given, report))
    assert progress == [Progress(1, 2), Progress(2, 2)]
    assert [layer.path for layer in report.layers] == layers
    assert not list(linear_layers(model))
    save_model(model, tmp_path / "saved")
    loaded = load_model(tmp_path / "saved")
    np.testing.assert_allclose(states_of(loaded, given[0]), states_of(model, given[0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_data_give_the_same_model(method: str) -> None:
    outcomes = []
    for _ in range(2):
        model, report = small("bloom"), QuantizationReport()
        run(METHODS[method](model, batches(), report))
        outcomes.append((states_of(model, batches()[0]), report.as_dict()))
    np.testing.assert_array_equal(outcomes[0][0], outcomes[1][0])
    assert outcomes[0][1] == outcomes[1][1]


def test_named_layers_stay_as_they_are() -> None:
    model, report = small("gemma"), QuantizationReport()
    run(quantize_gptq(model, batches(), GptqSettings(skip=("down_proj", "*.0.self_attn.*")), report))
    left = [layer.path for layer in linear_layers(model)]
    assert sorted(report.skipped) == sorted(left)
    assert len(left) == 2 + 4
    assert len([layer for layer in model.sublayers() if isinstance(layer, QuantizedLinear)]) == 14 - 6


def test_names_are_last_parts_or_patterns_of_paths() -> None:
    assert is_named("model.layers.0.mlp.up_proj", ["up_proj"])
    assert is_named("model.layers.0.mlp.up_proj", ["*.0.mlp.*"])
    assert not is_named("model.layers.0.mlp.up_proj", ["proj", "mlp"])


def test_a_group_size_that_does_not_fit_is_found_before_anything_is_done() -> None:
    model = small("gemma")
    with pytest.raises(ConfigError, match="divides the inputs") as caught:
        run(quantize_awq(model, batches(), AwqSettings(group_size=48), QuantizationReport()))
    assert caught.value.problems[0].loc == ("quantization", "model.layers.0.self_attn.q_proj")
    assert len(list(linear_layers(model))) == 14


def test_what_was_asked_for_and_not_done_is_in_the_report() -> None:
    reports = {}
    settings = PtqSettings(shift=ShiftSettings(), smooth=SmoothSettings(all_linears=True))
    for family in FAMILIES:
        reports[family] = QuantizationReport()
        run(quantize_ptq(small(family, layers=1), batches(1), settings, reports[family]))
    assert reports["gemma"].not_shifted == dict.fromkeys(
        ("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.gate_proj"),
        "what is in front has no bias",
    )
    assert reports["gemma"].not_smoothed == reports["bloom"].not_shifted == {}
    assert list(reports["bloom"].not_smoothed) == ["transformer.h.0.mlp.dense_4h_to_h"]
