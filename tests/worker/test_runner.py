"""One attempt, run by a real runner process around a program that speaks the trainer's protocol."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from store.broker import Broker
from store.checkpoints import RESULT, get_checkpoint, list_checkpoints
from store.hosts import drain_host
from store.logs import LogLine
from store.states import Status
from store.wake import job_channel, wake
from tests.worker.bench import SHORT_LEASE, Bench, is_alive
from tests.worker.waiting import wait_until
from worker.strays import kill_orphaned_trainers

LONG = {"steps": 400, "step_s": 0.05}


def texts(lines: list[LogLine]) -> list[str]:
    return [line.line for line in lines]


def is_gapless(lines: list[LogLine]) -> bool:
    """Every attempt's lines are numbered from 1 without gap or repeat."""
    numbers: dict[int, list[int]] = {}
    for line in lines:
        numbers.setdefault(line.attempt, []).append(line.seq)
    return all(seqs == list(range(1, len(seqs) + 1)) for seqs in numbers.values())


class TestSuccess:
    def test_a_job_leaves_its_metrics_checkpoints_result_and_log(self, bench: Bench):
        job = bench.run({"steps": 4, "save_steps": 2, "output_dir": "./out/model"})
        assert (job.status, job.reason) == (Status.succeeded, "completed"), bench.story(job.id)
        assert bench.history(job.id) == ["queued", "starting", "running", "succeeded"]
        assert bench.metric_steps(job.id) == [1, 2, 3, 4]
        assert job.progress["step"] == job.progress["total_steps"] == 4
        assert texts(bench.logs(job.id)) == ["starting at step 0"] + [
            f"step {n} line 0" for n in (1, 2, 3, 4)
        ]
        assert bench.archived(job.id) == bench.logs(job.id)
        with bench.database.reading() as session:
            assert [c.name for c in list_checkpoints(session, job.id)] == ["checkpoint-2", "checkpoint-4"]

    def test_the_result_is_the_model_alone_and_neither_process_nor_device_stays_taken(self, bench: Bench):
        job = bench.run({"save_steps": 1, "children": 2})
        with bench.database.reading() as session:
            result = get_checkpoint(session, job.id, RESULT)
        assert result is not None
        assert [file["path"] for file in result.files] == ["model.safetensors", "trainer_state.json"]
        assert b"".join(bench.artifacts.open(f"{result.key}/model.safetensors")) == b"final weights"
        assert result.metrics == {"train_loss": 0.5}
        assert bench.allocations() == []
        assert not any(is_alive(pid) for pid in bench.pids(job.id))

    def test_the_trainer_sees_nothing_of_the_services_own_settings(self, bench: Bench):
        job_id = bench.submit(LONG)
        bench.start(job_id)
        environment = psutil.Process(bench.pids(job_id)[0]).environ()
        ours = {name for name in environment if name.startswith("REGATTA_")}
        assert ours == {"REGATTA_EVENTS", "REGATTA_DEADLINE_FILE"}
        assert environment["CUDA_VISIBLE_DEVICES"] == ""
        bench.cancel(job_id)
        bench.wait_for_end(job_id)


class TestFailure:
    @pytest.mark.parametrize(
        ("exit_code", "kind", "reason"),
        [
            (2, "config", "bad_config"),
            (3, "data", "bad_data"),
            (1, "nan_loss", "nan_loss"),
        ],
    )
    def test_the_exit_code_and_the_error_event_make_the_reason(
        self, bench: Bench, exit_code: int, kind: str, reason: str
    ):
        error = {"msg": "One sentence that a user can act on.", "kind": kind}
        job = bench.run({"exit_code": exit_code, "error": error})
        assert (job.status, job.reason, job.message) == (Status.failed, reason, error["msg"])
        assert bench.allocations() == []

    def test_a_trainer_that_is_killed_says_by_what(self, bench: Bench):
        job = bench.run({"kill_self": signal.SIGKILL})
        assert (job.status, job.reason, job.attempt) == (Status.queued, "trainer_killed", 2)
        assert "SIGKILL" in job.message
        assert job.evidence is not None
        assert (job.evidence["host"], job.evidence["signal"]) == ("host-a", "SIGKILL")
        assert job.evidence["log"]
        assert bench.metric_steps(job.id) == [1, 2, 3]

    def test_exit_0_without_a_result_is_no_success(self, bench: Bench):
        job = bench.run({"report_result": False})
        assert (job.status, job.reason) == (Status.failed, "trainer_crashed")

    def test_a_retryable_failure_is_queued_again_while_there_are_retries(self, bench: Bench):
        job = bench.run({"exit_code": 1}, max_retries=1)
        assert (job.status, job.attempt) == (Status.queued, 2)
        bench.launch(job.id, bench.place(job.id))
        assert bench.job(job.id).status == Status.failed

    def test_a_job_that_runs_longer_than_its_timeout_stops_with_a_checkpoint_and_fails(self, bench: Bench):
        job = bench.run(LONG, timeout_s=1.0)
        assert (job.status, job.reason) == (Status.failed, "timed_out")
        assert "timeout_s of 1 seconds" in job.message
        with bench.database.reading() as session:
            assert len(list_checkpoints(session, job.id)) == 1

    def test_a_trainer_that_is_told_to_stop_from_outside_is_tried_again_at_no_charge(self, bench: Bench):
        job_id = bench.submit(LONG)
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.progress.get("step", 0) > 1)
        os.kill(bench.pids(job_id)[0], signal.SIGTERM)
        job = bench.wait(job_id, lambda job: job.status == Status.queued)
        assert (job.reason, job.attempt) == ("trainer_killed", 2)

    def test_an_output_directory_that_is_no_folder_of_its_own_is_refused(self, bench: Bench):
        for output_dir in (".", "../elsewhere", "attempts/1", "/"):
            job = bench.run({"output_dir": output_dir})
            assert (job.status, job.reason) == (Status.failed, "bad_config")
            assert f"output_dir: got '{output_dir}'" in job.message


class TestCancel:
    def test_a_running_job_saves_a_checkpoint_which_is_kept_and_leaves_no_process(self, bench: Bench):
        job_id = bench.submit({**LONG, "children": 2})
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.status == Status.running)
        bench.cancel(job_id)
        job = bench.wait_for_end(job_id)
        assert not any(is_alive(pid) for pid in bench.pids(job_id))
        assert bench.history(job_id)[-2:] == ["stopping", "cancelled"]
        assert job.message == "The trainer has stopped with a checkpoint."
        with bench.database.reading() as session:
            assert len(list_checkpoints(session, job_id)) == 1
            assert get_checkpoint(session, job_id, RESULT) is None

    def test_a_job_that_is_placed_but_not_claimed_is_cancelled_and_never_starts(self, bench: Bench):
        job_id = bench.submit()
        attempt = bench.place(job_id)
        bench.cancel(job_id)
        assert bench.job(job_id).status == Status.cancelled
        bench.launch(job_id, attempt)
        assert bench.job(job_id).status == Status.cancelled
        assert not bench.workspace(job_id).path.exists()

    def test_a_job_whose_trainer_is_still_loading_is_cancelled(self, bench: Bench):
        job_id = bench.submit({**LONG, "children": 2})
        bench.start(job_id)
        assert bench.job(job_id).status == Status.starting
        bench.cancel(job_id)
        assert bench.wait_for_end(job_id).status == Status.cancelled
        assert kill_orphaned_trainers(bench.settings.work_dir) == []

    def test_without_a_broker_the_next_heartbeat_brings_the_wish(self, bench: Bench, broker: Broker):
        job_id = bench.submit(LONG)
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.status == Status.running)
        broker.stop()
        bench.cancel(job_id)
        assert bench.wait_for_end(job_id).status == Status.cancelled

    def test_a_trainer_that_ignores_sigterm_is_killed_after_the_grace_time_with_all_it_started(
        self, bench: Bench
    ):
        settings = bench.settings.model_copy(update={"stop_grace_s": 0.5})
        bench = Bench(settings, bench.database)
        job_id = bench.submit({**LONG, "ignore_sigterm": True, "children": 2})
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.status == Status.running)
        pids = bench.pids(job_id)
        assert all(is_alive(pid) for pid in pids)
        bench.cancel(job_id)
        job = bench.wait_for_end(job_id)
        assert job.status == Status.cancelled
        assert "did not stop within 0.5 seconds of SIGTERM and was killed" in job.message
        assert not any(is_alive(pid) for pid in pids)


class TestDraining:
    def test_the_jobs_of_a_drained_host_stop_with_a_checkpoint_and_wait_at_no_charge(self, bench: Bench):
        job_id = bench.submit(LONG)
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.progress.get("step", 0) >= 3)
        with bench.database.transaction() as session:
            drain_host(session, bench.settings.host_name, "new disk", actor="admin")
        wake(bench.settings.broker_url, job_channel(job_id))
        bench.wait_for_no_runner()
        job = bench.job(job_id)
        assert (job.status, job.reason, job.attempt, job.retries) == (Status.queued, "host_stopping", 2, 0)
        assert bench.allocations() == []
        with bench.database.reading() as session:
            assert len(list_checkpoints(session, job_id)) == 1


class TestShutdown:
    def test_a_runner_that_is_told_to_end_hands_the_job_back_at_no_charge(self, bench: Bench):
        job_id = bench.submit({**LONG, "steps": 120})
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.progress.get("step", 0) >= 3)
        bench.runner(job_id).terminate()
        bench.wait_for_no_runner()
        job = bench.job(job_id)
        assert (job.status, job.reason, job.attempt, job.retries) == (Status.queued, "host_stopping", 2, 0)
        assert bench.allocations() == []
        with bench.database.reading() as session:
            (checkpoint,) = list_checkpoints(session, job_id)
        bench.launch(job_id, bench.place(job_id))
        job = bench.job(job_id)
        assert job.status == Status.succeeded, bench.story(job_id)
        assert bench.metric_steps(job_id) == list(range(1, 121))
        assert f"starting at step {checkpoint.step}" in texts(bench.logs(job_id))


class TestLog:
    def test_a_hundred_thousand_lines_arrive_once_each_in_order(self, bench: Bench):
        job = bench.run({"steps": 10, "lines_per_step": 10_000})
        assert job.status == Status.succeeded
        wanted = [f"step {step} line {n}" for step in range(1, 11) for n in range(10_000)]
        archived = bench.archived(job.id)
        assert texts(archived)[1:] == wanted
        assert is_gapless(archived)
        assert bench.logs(job.id) == archived
        assert len(bench.artifacts.list(f"jobs/{job.id}/logs")) <= 10

    def test_a_broker_that_is_killed_and_comes_back_costs_no_line(
        self, bench: Bench, broker: Broker, restart_broker: Callable[[], None]
    ):
        job_id = bench.submit({"steps": 60, "step_s": 0.05, "lines_per_step": 50})
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.progress.get("step", 0) >= 5)
        os.kill(broker.pid, signal.SIGKILL)
        killed_at = bench.job(job_id).progress["step"]
        bench.wait(job_id, lambda job: job.progress["step"] >= killed_at + 10)
        restart_broker()
        job = bench.wait_for_end(job_id)
        assert job.status == Status.succeeded
        assert texts(bench.archived(job_id))[1:] == [
            f"step {s} line {n}" for s in range(1, 61) for n in range(50)
        ]
        assert bench.logs(job_id) == bench.archived(job_id)
        assert bench.metric_steps(job_id) == list(range(1, 61))

    def test_without_a_broker_all_the_way_the_archive_has_everything(self, bench: Bench, broker: Broker):
        broker.stop()
        job = bench.run()
        assert job.status == Status.succeeded
        assert len(bench.archived(job.id)) == 4
        assert bench.logs(job.id) == bench.archived(job.id)

    def test_the_lines_of_every_rank_are_kept_and_told_apart(self, bench: Bench):
        job_id = bench.submit()
        bench.launch(job_id, bench.place(job_id, devices=3))
        assert bench.job(job_id).status == Status.succeeded
        lines = bench.archived(job_id)
        assert is_gapless(lines)
        for rank in (1, 2):
            assert [line.line for line in lines if line.rank == rank] == [f"here is rank {rank}"]
        assert len([line for line in lines if line.rank == 0]) == 4
        assert sorted(map(str, bench.logs(job_id))) == sorted(map(str, lines))


class TestEvents:
    def test_lines_that_are_no_events_become_warnings(self, bench: Bench):
        job = bench.run({"events": ["oops", '{"type": "metric", "step": "one"}']})
        assert job.status == Status.succeeded
        assert [event.message for event in bench.events(job.id, "warning")] == [
            "An event line of the trainer is not JSON: oops",
            """An event line of the trainer has no int 'step': {"type": "metric", "step": "one"}""",
        ]

    def test_incomplete_vanished_and_foreign_directories_are_not_published(
        self, bench: Bench, tmp_path: Path
    ):
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "trainer_state.json").write_text("{}")
        event = '{{"type": "checkpoint", "name": "checkpoint-9", "step": 9, "path": "{}"}}'
        paths = ["attempts", "output/checkpoint-9", str(tmp_path / "elsewhere")]
        job = bench.run({"events": [event.format(path) for path in paths]})
        assert job.status == Status.succeeded
        warnings = [event.message for event in bench.events(job.id, "warning")]
        assert "incomplete" in warnings[0]
        assert "removed before" in warnings[1]
        assert "outside the job's workspace" in warnings[2]
        with bench.database.reading() as session:
            assert list_checkpoints(session, job.id) == []

    def test_a_checkpoint_that_the_trainer_removes_is_removed_from_the_artifacts(self, bench: Bench):
        job = bench.run({"save_steps": 1})
        assert bench.artifacts.list(f"jobs/{job.id}/checkpoints/1/checkpoint-1")
        job = bench.run({"save_steps": 1, "remove": ["checkpoint-1"]})
        assert bench.artifacts.list(f"jobs/{job.id}/checkpoints/1/checkpoint-2")
        assert not (bench.artifacts.root / "jobs" / job.id / "checkpoints/1/checkpoint-1").exists()


class TestLease:
    def test_a_runner_that_lost_its_attempt_kills_its_trainer_and_reports_nothing(self, bench: Bench):
        job_id = bench.submit(LONG)
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.status == Status.running)
        pid = bench.pids(job_id)[0]
        bench.take_away(job_id)
        bench.wait_for_no_runner()
        assert not is_alive(pid)
        job = bench.job(job_id)
        assert (job.status, job.reason, job.attempt) == (Status.queued, "host_lost", 2)
        assert bench.allocations() == []

    def test_the_trainer_of_a_frozen_runner_ends_itself_and_the_job_is_left_to_the_reaper(self, bench: Bench):
        bench = Bench(bench.settings.model_copy(update=SHORT_LEASE), bench.database)
        job_id = bench.submit(LONG)
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.status == Status.running)
        pid = bench.pids(job_id)[0]
        runner = bench.runner(job_id)
        runner.suspend()
        wait_until(lambda: not is_alive(pid))
        runner.resume()
        bench.wait_for_no_runner()
        assert bench.job(job_id).status == Status.running
        bench.wait(job_id, lambda job: bool(bench.reap()) or job.status == Status.queued)

    def test_a_killed_runner_takes_the_trainer_along_and_the_next_attempt_completes_everything(
        self, bench: Bench
    ):
        job_id = bench.submit(
            {"steps": 40, "save_steps": 5, "lines_per_step": 20, "children": 2, "hang_at": 15}
        )
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.progress.get("step", 0) == 15)
        pids = bench.pids(job_id)
        bench.runner(job_id).kill()
        wait_until(lambda: not is_alive(pids[0]))
        bench.lose(job_id)
        bench.launch(job_id, bench.place(job_id))
        job = bench.job(job_id)
        assert (job.status, job.attempt) == (Status.succeeded, 2), bench.story(job_id)
        assert not any(is_alive(pid) for pid in pids)
        assert sorted(bench.metric_steps(job_id)) == list(range(1, 41))
        lines = bench.logs(job_id)
        assert is_gapless(lines)
        assert lines == bench.archived(job_id)
        raw = [folder.raw_log(0).read_text().splitlines() for folder in bench.workspace(job_id).attempts()]
        assert texts(lines) == [line for lines in raw for line in lines]
        with bench.database.reading() as session:
            steps = [checkpoint.step for checkpoint in list_checkpoints(session, job_id)]
        assert steps == [5, 10, 15, 20, 25, 30, 35, 40]

    def test_a_result_that_was_not_reported_any_more_is_reported_by_the_next_attempt_without_training(
        self, bench: Bench
    ):
        job_id = bench.submit({"steps": 20, "wait_at": 1})
        bench.start(job_id)
        bench.wait(job_id, lambda job: job.progress.get("step", 0) == 1)
        runner = bench.runner(job_id)
        runner.suspend()
        (bench.workspace(job_id).path / "go-on").touch()
        wait_until(lambda: not is_alive(bench.pids(job_id)[0]))
        runner.kill()
        bench.lose(job_id)
        bench.launch(job_id, bench.place(job_id))
        job = bench.job(job_id)
        assert (job.status, job.attempt) == (Status.succeeded, 2), bench.story(job_id)
        assert texts(bench.logs(job_id)).count("starting at step 0") == 1
        assert not bench.workspace(job_id).attempt(2).raw_log(0).exists()
        assert bench.metric_steps(job_id) == list(range(1, 21))
        with bench.database.reading() as session:
            assert get_checkpoint(session, job_id, RESULT) is not None

    def test_an_attempt_on_a_host_without_the_workspace_goes_on_from_the_published_checkpoint(
        self, bench: Bench
    ):
        job = bench.run(
            {"steps": 6, "save_steps": 2, "exit_code": 1, "overwrite_output_dir": True}, max_retries=1
        )
        bench.workspace(job.id).path.rename(bench.settings.data_dir / "lost")
        bench.launch(job.id, bench.place(job.id))
        assert "starting at step 6" in texts(bench.logs(job.id))
        assert bench.workspace(job.id).config.read_text().count('"overwrite_output_dir": false') == 1
