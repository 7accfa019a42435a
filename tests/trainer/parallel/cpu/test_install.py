"""When the gaps of Fleet are filled, and when nothing is touched."""

import paddle
import pytest
from paddle.base import core

from tests.ranks import run_ranks
from trainer.parallel import cpu


def _install_twice() -> tuple[bool, bool, bool]:
    before = core.ProcessGroupGloo.send
    first = cpu.install()
    replaced = core.ProcessGroupGloo.send
    return first, cpu.install(), before is not replaced and replaced is core.ProcessGroupGloo.send


def test_it_is_installed_once_on_cpu() -> None:
    assert run_ranks(1, _install_twice) == [(True, True, True)]


def test_nothing_is_touched_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle.device, "get_device", lambda: "gpu:0")
    before = {name: getattr(core.ProcessGroupGloo, name) for name in ("create", "send", "recv")}
    assert not cpu.install()
    assert before == {name: getattr(core.ProcessGroupGloo, name) for name in before}
