import pytest

from trainer.failures import describe

GLOO = (
    "[/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:576] Read error [127.0.0.1]:18849: Connection reset"
)
PADDLE = "(External) { " + "=" * 400 + f" RuntimeError: {GLOO}"
NCCL = "ncclRemoteError: remote process exited"


@pytest.mark.parametrize("text", [GLOO, PADDLE, NCCL, "Connection closed by peer"])
def test_a_broken_connection_between_ranks_is_an_error_of_its_own_kind(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    assert describe(RuntimeError(text)).kind == "lost_peer"
    monkeypatch.delenv("PADDLE_TRAINERS_NUM")
    assert describe(RuntimeError(text)).kind == "internal"


def test_a_broken_device_is_an_error_of_its_own_kind() -> None:
    error = OSError("(External) CUDA error(214), uncorrectable ECC error encountered.")
    assert describe(error).kind == "device"
