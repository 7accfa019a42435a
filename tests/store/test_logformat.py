"""Lines of the service's own logs."""

import json
import logging
import threading

import pytest

from store import logformat
from store.logformat import JsonFormatter, bind, log_context


@pytest.fixture
def formatted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logformat, "_of_process", {})
    caplog.handler.setFormatter(JsonFormatter())
    caplog.set_level(logging.INFO)
    return caplog


def lines(caplog: pytest.LogCaptureFixture) -> list[dict]:
    return [json.loads(line) for line in caplog.text.splitlines()]


def test_a_line_is_one_json_object_with_what_is_known(formatted: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("worker.test")
    bind(job_id="a-job", attempt=2)
    log.warning("disk is %d %%\nfull", 97, extra={"host": "pier"})
    (line,) = lines(formatted)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "worker.test",
        "message": "disk is 97 %\nfull",
        "job_id": "a-job",
        "attempt": 2,
        "host": "pier",
    }


def test_fields_of_a_block_are_gone_after_it_and_unknown_to_other_threads(
    formatted: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("api.test")
    with log_context(request_id="r-1"), log_context(job_id="a-job"):
        log.info("inside")
        thread = threading.Thread(target=log.info, args=("elsewhere",))
        thread.start()
        thread.join(10)
    log.info("after")
    inside, elsewhere, after = lines(formatted)
    assert (inside["request_id"], inside["job_id"]) == ("r-1", "a-job")
    assert not {"request_id", "job_id"} & (elsewhere.keys() | after.keys())


def test_a_traceback_stays_on_the_line(formatted: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no such berth")
    except ValueError:
        logging.getLogger("api").exception("failed")
    (line,) = lines(formatted)
    assert line["exception"].endswith("ValueError: no such berth")
