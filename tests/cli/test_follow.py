import io
import json

import pytest
from rich.console import Console

from cli import follow
from cli.client import Client
from tests.cli.scripted_server import answer, serving


def state(status: str, step: int | None = None, **more: object) -> dict:
    progress = {"step": step, "total_steps": 10, "loss": 2.5, "tokens_per_second": 1234.5, "eta_s": 65.0}
    return {
        "id": "j",
        "status": status,
        "attempt": 1,
        "progress": progress if step is not None else {},
        **more,
    }


def followed(states: list[dict], screen: Console) -> dict:
    answers = [answer(200, json.dumps(job).encode()) for job in states]
    with serving(*answers) as server, Client(server.url) as client:
        return follow.follow_job(client, "j", screen)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "POLL_S", 0.01)
    monkeypatch.setattr(follow, "LINE_EVERY_S", 0.0)


def test_without_a_terminal_every_change_is_a_plain_line() -> None:
    output = io.StringIO()
    end = followed(
        [state("queued"), state("running", 3), state("running", 3), state("succeeded", 10)],
        Console(file=output),
    )
    assert end["status"] == "succeeded"
    assert output.getvalue().splitlines() == [
        "queued",
        "running  step 3/10  loss 2.5  1,234 tokens/s  1m 05s left",
        "succeeded  step 10/10  loss 2.5  1,234 tokens/s  1m 05s left",
    ]


def test_a_later_attempt_is_told_apart() -> None:
    output = io.StringIO()
    followed([state("queued", attempt=2), state("failed")], Console(file=output))
    assert output.getvalue().splitlines()[0] == "queued (attempt 2)"


def test_on_a_terminal_there_is_a_bar_with_loss_speed_and_time_left() -> None:
    output = io.StringIO()
    followed(
        [state("running", 3), state("cancelled", 4)], Console(file=output, force_terminal=True, width=100)
    )
    text = output.getvalue()
    for part in ("cancelled", "4/10", "loss 2.5", "1,234 tokens/s", "1m 05s left"):
        assert part in text


def test_how_a_job_ended_is_one_sentence() -> None:
    assert (
        follow.outcome({"id": "j", "status": "succeeded", "reason": "completed"}).plain == "Job j succeeded."
    )
    failed = {"id": "j", "status": "failed", "reason": "bad_data", "message": "train.json is empty."}
    assert follow.outcome(failed).plain == "Job j failed: train.json is empty."
