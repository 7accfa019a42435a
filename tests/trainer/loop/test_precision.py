from collections.abc import Callable
from typing import Any

import pytest

from trainer.config import FinetuneConfig
from trainer.loop.precision import FullPrecision, Precision, choose_precision, make_precision

MakeConfig = Callable[..., FinetuneConfig]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_without_fp16_and_bf16_a_run_is_fp32(make_config: MakeConfig, device: str) -> None:
    assert choose_precision(make_config(), device) == (Precision(), None)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_half_precision_on_cpu_runs_as_fp32_with_a_warning(make_config: MakeConfig, name: str) -> None:
    precision, warning = choose_precision(make_config(**{name: True, "fp16_opt_level": "O2"}), "cpu")
    assert precision == Precision()
    assert warning is not None
    assert warning.loc == (name,)
    assert "runs as fp32" in warning.msg


@pytest.mark.parametrize(
    ("changes", "expected", "scaled", "masters"),
    [
        ({"fp16": True}, Precision("float16", "O1"), True, False),
        ({"fp16": True, "fp16_opt_level": "O2"}, Precision("float16", "O2"), True, True),
        ({"bf16": True}, Precision("bfloat16", "O1"), False, False),
        ({"bf16": True, "fp16_opt_level": "O2"}, Precision("bfloat16", "O2"), False, True),
    ],
)
def test_on_gpu_only_fp16_is_scaled_and_only_o2_keeps_master_weights(
    make_config: MakeConfig, changes: dict[str, Any], expected: Precision, scaled: bool, masters: bool
) -> None:
    precision, warning = choose_precision(make_config(**changes), "gpu")
    assert (precision, warning) == (expected, None)
    assert (precision.loss_scaling, precision.master_weights) == (scaled, masters)


def test_level_o0_on_gpu_is_fp32(make_config: MakeConfig) -> None:
    config = make_config(bf16=True, fp16_opt_level="O0")
    precision, warning = choose_precision(config, "gpu")
    assert (precision, warning) == (Precision(), None)
    assert type(make_precision(precision, config)) is FullPrecision
