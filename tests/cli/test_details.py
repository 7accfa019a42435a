from collections.abc import Mapping

import pytest
from rich.console import Console

from cli.details import devices, job_details, places

JOB = {
    "id": "019338a0-0000-7000-8000-000000000001",
    "task": "finetune",
    "status": "running",
    "progress": {"step": 30, "total_steps": 300, "loss": 1.23456},
    "resources": {"nodes": 1, "devices_per_node": 1, "device": "cpu"},
    "placement": [{"host": "pier", "devices": [0]}],
}


def rendered(job: Mapping[str, object], result: Mapping[str, object] | None = None) -> dict[str, str]:
    screen = Console(width=160, color_system=None)
    with screen.capture() as capture:
        screen.print(job_details(job, [], result))
    return {
        name: value.strip()
        for name, _, value in (line.partition("  ") for line in capture.get().splitlines())
    }


def test_a_job_is_shown_with_its_devices_in_words() -> None:
    fields = rendered(JOB)
    assert (fields["Step"], fields["Devices"], fields["Runs on"]) == ("30/300", "1 cpu", "pier 0")


def test_a_job_that_has_ended_ran_somewhere() -> None:
    assert rendered(JOB | {"status": "failed"})["Ran on"] == "pier 0"


def test_a_job_that_waits_is_nowhere() -> None:
    assert {"Runs on", "Ran on"}.isdisjoint(rendered(JOB | {"status": "queued", "placement": None}))


def test_what_the_result_is_measured_by_is_shown_without_how_long_that_took() -> None:
    metrics = {"eval_ppl_before": 9.87654, "bytes_after": 385744, "eval_runtime": 2.5}
    fields = rendered(JOB | {"status": "succeeded"}, {"bytes": 402_023, "metrics": metrics})
    assert "Result, 0.4 MB" in fields
    assert (fields["eval_ppl_before"], fields["bytes_after"]) == ("9.877", "385,744")
    assert "eval_runtime" not in fields


@pytest.mark.parametrize(
    ("nodes", "each", "kind", "words"),
    [(1, 1, "cpu", "1 cpu"), (1, 8, "gpu", "8 gpu"), (2, 8, "gpu", "2 hosts x 8 gpu")],
)
def test_devices_are_counted_by_host(nodes: int, each: int, kind: str, words: str) -> None:
    assert devices({"nodes": nodes, "devices_per_node": each, "device": kind}) == words


def test_every_host_is_named_with_its_devices() -> None:
    nodes = [{"host": "pier", "devices": [0, 1]}, {"host": "quay", "devices": [2, 3]}]
    assert places(nodes) == "pier 0,1; quay 2,3"


def test_a_failure_is_shown_with_whose_fault_it_is_and_its_last_lines() -> None:
    evidence = {
        "attempt": 2,
        "host": "pier",
        "exit_code": 137,
        "signal": "SIGKILL",
        "log": ["step 3", "[end]"],
    }
    fields = rendered(JOB | {"status": "failed", "fault": "infrastructure", "evidence": evidence})
    assert fields["Fault"] == "infrastructure"
    assert fields["Ended"] == "exit code 137 (SIGKILL) on pier, attempt 2"
    assert {"step 3", "[end]"} <= set(fields)
