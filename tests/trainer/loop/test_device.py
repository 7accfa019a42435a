"""Where a run computes, and what makes it repeat itself there."""

from collections.abc import Callable
from typing import Any

import paddle
import pytest

from trainer.config import FinetuneConfig
from trainer.loop.device import DETERMINISTIC, choose_device, repeatable_flags

MakeConfig = Callable[..., FinetuneConfig]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A Paddle that has one GPU, as far as it is asked: what is chosen there, by name."""
    settings: dict[str, Any] = {}
    for name in DETERMINISTIC:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(paddle.device, "is_compiled_with_cuda", lambda: True)
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(paddle.device, "set_device", lambda device: settings.update(device=device))
    monkeypatch.setattr(paddle, "set_flags", settings.update)
    return settings


def test_a_run_on_a_gpu_has_kernels_that_repeat_themselves(
    make_config: MakeConfig, chosen: dict[str, Any]
) -> None:
    assert choose_device(make_config()) == "gpu"
    assert chosen == {
        "device": "gpu",
        "FLAGS_cudnn_deterministic": True,
        "FLAGS_embedding_deterministic": 1,
    }


def test_a_run_on_a_cpu_sets_no_flag(make_config: MakeConfig, chosen: dict[str, Any]) -> None:
    assert choose_device(make_config(device="cpu")) == "cpu"
    assert chosen == {"device": "cpu"}


def test_an_operator_may_choose_faster_kernels() -> None:
    assert repeatable_flags("gpu", {"FLAGS_embedding_deterministic": "0"}) == {
        "FLAGS_cudnn_deterministic": True
    }


def test_a_paddle_without_a_flag_is_a_warning_and_no_failure(
    make_config: MakeConfig,
    chosen: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(flags: dict[str, Any]) -> None:
        raise ValueError(f"Flag {flags} cannot set its value through this function.")

    monkeypatch.setattr(paddle, "set_flags", refuse)
    assert choose_device(make_config()) == "gpu"
    assert [record.args for record in caplog.records] == [(name,) for name in DETERMINISTIC]
