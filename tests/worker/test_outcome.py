import signal
from typing import Any

import pytest

from store.reasons import Reason
from store.reports import Certainty
from store.states import Status
from worker.outcome import Ending, Stop, decide

DONE = {"path": "/w/output", "stopped": False}
STOPPED = {"path": "/w/output/checkpoint-4", "stopped": True}


def decided(exit_code: int | None, **known) -> tuple[Status, Reason]:
    outcome = decide(Ending(exit_code, **known))
    assert outcome is not None
    assert outcome.exit_code == exit_code
    assert outcome.message or outcome.status is Status.succeeded
    return outcome.status, outcome.reason


def message(exit_code: int | None, **known) -> str:
    outcome = decide(Ending(exit_code, **known))
    assert outcome is not None
    return outcome.message


def test_exit_0_with_a_result_is_success():
    assert decided(0, result=DONE) == (Status.succeeded, Reason.completed)


def test_a_result_that_came_just_before_the_time_was_over_counts():
    assert decided(0, result=DONE, stop=Stop.timeout)[0] is Status.succeeded
    assert decided(0, result=DONE, stop=Stop.host_stopping)[0] is Status.succeeded


def test_exit_0_without_a_result_is_an_error_of_the_trainer():
    assert decided(0) == (Status.failed, Reason.trainer_crashed)


def test_a_stop_that_nobody_here_asked_for_came_from_outside():
    assert decided(0, result=STOPPED) == (Status.failed, Reason.trainer_killed)


@pytest.mark.parametrize(
    ("exit_code", "reason"),
    [
        (2, Reason.bad_config),
        (3, Reason.bad_data),
        (1, Reason.trainer_crashed),
        (9, Reason.trainer_crashed),
        (-signal.SIGSEGV, Reason.trainer_crashed),
        (128 + signal.SIGABRT, Reason.trainer_crashed),
        (128 + signal.SIGKILL, Reason.trainer_killed),
    ],
)
def test_the_exit_code_gives_the_reason(exit_code: int, reason: Reason):
    assert decided(exit_code) == (Status.failed, reason)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("nan_loss", Reason.nan_loss),
        ("oom", Reason.out_of_memory),
        ("device", Reason.device_error),
    ],
)
def test_the_kind_of_the_error_gives_the_reason(kind: str, reason: Reason):
    error = {"msg": "The loss was not finite in 10 steps in a row.", "kind": kind}
    assert decided(1, error=error) == (Status.failed, reason)


def test_the_sentence_of_the_error_event_is_what_the_user_reads():
    assert message(2, error={"msg": "max_steps: got 0, expected at least 1."}) == (
        "max_steps: got 0, expected at least 1."
    )
    assert message(1) == "The trainer exited with code 1."


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_kill_with_evidence_of_the_kernel_is_out_of_memory(exit_code: int):
    assert decided(exit_code, out_of_memory=True) == (Status.failed, Reason.out_of_memory)
    assert decided(exit_code) == (Status.failed, Reason.trainer_killed)
    assert decided(-15, out_of_memory=True)[1] is Reason.trainer_killed


def test_a_rank_that_was_killed_is_what_the_user_reads_of():
    error = {"msg": "Rank 3 was killed by signal 9 (SIGKILL).", "kind": "rank_killed"}
    assert decided(137, error=error) == (Status.failed, Reason.trainer_killed)
    assert message(137, error=error) == error["msg"]


def test_a_signal_is_named():
    assert message(-11) == "The trainer was killed by SIGSEGV."
    assert message(-9, error={"msg": "x"}).endswith("SIGKILL. Before that it said: x")
    assert "signal 33" in message(-33)


@pytest.mark.parametrize("exit_code", [0, 1, 75, -9, -15])
def test_whatever_the_end_a_cancelled_job_is_cancelled(exit_code: int):
    assert decided(exit_code, stop=Stop.cancel) == (Status.cancelled, Reason.user_cancelled)


def test_a_stop_says_whether_a_checkpoint_was_saved():
    assert message(0, stop=Stop.cancel, result=STOPPED) == "The trainer has stopped with a checkpoint."
    nothing = message(0, stop=Stop.cancel, result=STOPPED | {"kept": False})
    assert nothing.endswith("keeps nothing of what is not finished.")
    assert "within 5 seconds of SIGTERM and was killed" in message(
        -9, stop=Stop.cancel, killed=True, grace_s=5
    )
    assert "nothing new" in message(-15, stop=Stop.cancel)


def test_a_job_that_runs_too_long_fails_for_good():
    assert decided(0, stop=Stop.timeout, timeout_s=60, result=STOPPED) == (
        Status.failed,
        Reason.timed_out,
    )
    assert "timeout_s of 60 seconds" in message(-9, stop=Stop.timeout, timeout_s=60.0)


@pytest.mark.parametrize("exit_code", [0, -9, -15, 1])
def test_a_job_that_stopped_with_its_host_goes_back_to_the_queue(exit_code: int):
    assert decided(exit_code, stop=Stop.host_stopping) == (Status.failed, Reason.host_stopping)


def test_a_trainer_that_could_not_be_started_is_a_fault_of_its_host():
    failure = {"start_failure": "no such file"}
    assert decided(None, **failure) == (Status.failed, Reason.host_failed)
    assert message(None, **failure) == "The trainer could not be started: no such file."
    assert "not been started" in message(None, stop=Stop.cancel)


@pytest.mark.parametrize(("exit_code", "name"), [(-9, "SIGKILL"), (128 + 11, "SIGSEGV"), (1, None)])
def test_the_signal_is_told_beside_the_exit_code(exit_code: int, name: str | None):
    outcome = decide(Ending(exit_code))
    assert outcome is not None
    assert (outcome.exit_code, outcome.signal) == (exit_code, name)


def test_a_trainer_that_left_because_its_lease_was_over_has_no_outcome():
    assert decide(Ending(75)) is None
    assert decide(Ending(75, stop=Stop.host_stopping)) is None


@pytest.mark.parametrize(
    ("exit_code", "known", "reason", "certainty"),
    [
        (1, {"error": {"kind": "lost_peer", "msg": "m"}}, Reason.host_lost, Certainty.doubtful),
        (-9, {"stop": Stop.deserted, "killed": True}, Reason.host_lost, Certainty.doubtful),
        (1, {"stop": Stop.deserted, "error": {"kind": "oom", "msg": "m"}}, Reason.out_of_memory, None),
        (0, {"result": STOPPED}, Reason.trainer_killed, Certainty.doubtful),
        (0, {"stop": Stop.draining, "result": STOPPED}, Reason.host_stopping, Certainty.patient),
        (128 + 6, {"error": {"kind": "rank_killed", "msg": "m"}}, Reason.trainer_crashed, Certainty.patient),
        (128 + 9, {"error": {"kind": "rank_killed", "msg": "m"}}, Reason.trainer_killed, None),
        (1, {"error": {"kind": "internal", "msg": "m"}}, Reason.trainer_crashed, None),
    ],
)
def test_of_several_hosts_one_tells_how_sure_it_is_of_the_cause(
    exit_code: int, known: dict[str, Any], reason: Reason, certainty: Certainty | None
):
    outcome = decide(Ending(exit_code, hosts=2, **known))
    assert outcome is not None
    assert (outcome.reason, outcome.certainty) == (reason, certainty or Certainty.certain)


def test_a_host_that_is_alone_has_lost_no_other():
    assert decided(1, error={"kind": "lost_peer", "msg": "m"}) == (Status.failed, Reason.trainer_crashed)
