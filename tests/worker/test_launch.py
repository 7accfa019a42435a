import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from store.attempts import Claim, Node
from store.settings import Settings
from store.states import Status
from tests.worker.bench import Bench
from trainer.config.preflight import Roots
from worker.launch import BadOutputDirectory, Launcher, prepare
from worker.runners import settings_environment
from worker.spec import Spec


def claimed(attempt: int = 1, devices: tuple[int, ...] = (1,), **config: object) -> Claim:
    return Claim(
        job_id="a-job",
        attempt=attempt,
        rank=0,
        nodes=(Node("host-a", devices),),
        task="finetune",
        config=dict(config),
        timeout_s=30.0,
        lease_until=0.0,
        events_offset=0,
    )


def test_the_workspace_holds_the_resolved_config_and_what_the_runner_has_to_know(settings: Settings):
    spec = prepare(settings, claimed(output_dir="./out", max_steps=3), "host-a/owner", 12.5)
    workspace = settings.work_dir / "a-job"
    assert json.loads((workspace / "config.json").read_text()) == {"output_dir": "./out", "max_steps": 3}
    assert Spec.read(workspace / "attempts" / "1" / "spec.json") == spec
    assert spec.command == (sys.executable, "-P", "-m", "trainer", "finetune", str(workspace / "config.json"))
    assert (spec.workspace, spec.output_dir, spec.timeout_s) == (str(workspace), "./out", 30.0)
    assert (spec.owner, spec.renewed_at, spec.lease_ttl_s) == ("host-a/owner", 12.5, settings.lease_ttl_s)


def test_every_device_gets_a_process_whose_log_lies_in_the_attempts_folder(settings: Settings):
    spec = prepare(settings, claimed(attempt=2, devices=(0, 3, 5)), "host-a/owner", 0.0)
    assert spec.command[-5:] == ("--nproc", "3", "--logs", str(spec.folder.path), "--no-echo")


def test_a_trainer_may_read_what_its_host_allows(settings: Settings, tmp_path: Path):
    models = tmp_path / "models"
    some = settings.model_copy(update={"model_roots": (models,), "allow_hub": True})
    spec = prepare(some, claimed(output_dir="./out"), "host-a/owner", 0.0)
    inputs = settings.work_dir / "a-job" / "inputs"
    allowed = Roots((models, inputs), (Path("/"), inputs), hub=True)
    assert Roots.from_text(spec.env["REGATTA_ROOTS"]) == allowed
    assert "REGATTA_ROOTS" not in prepare(settings, claimed(output_dir="./out"), "host-a/owner", 0.0).env


@pytest.mark.parametrize(
    "output_dir",
    [".", "./", "/", "/tmp", "..", "../other", "attempts", "attempts/1/x", "config.json", "out/.."],
)
def test_an_output_directory_that_would_touch_other_files_is_refused(settings: Settings, output_dir: str):
    with pytest.raises(BadOutputDirectory, match=r"output_dir: got '.*', expected a folder of its own"):
        prepare(settings, claimed(output_dir=output_dir), "host-a/owner", 0.0)


def test_a_link_out_of_the_workspace_is_refused(settings: Settings, tmp_path: Path):
    (settings.work_dir / "a-job").mkdir(parents=True)
    (settings.work_dir / "a-job" / "out").symlink_to(tmp_path)
    with pytest.raises(BadOutputDirectory):
        prepare(settings, claimed(output_dir="out/model"), "host-a/owner", 0.0)


def test_another_process_reads_the_same_settings_from_its_environment(settings: Settings, tmp_path: Path):
    given = settings.model_copy(
        update={"model_roots": (tmp_path / "a:b", tmp_path / "c"), "devices": "cpu:3"}
    )
    code = "from store.settings import get_settings; print(get_settings().model_dump_json())"
    environment = os.environ | settings_environment(given)
    read = subprocess.check_output([sys.executable, "-c", code], env=environment, timeout=60)
    assert Settings.model_validate_json(read) == given


def test_a_job_that_this_host_cannot_begin_fails_with_the_reason_and_may_be_retried(bench: Bench):
    bench.settings.work_dir.parent.mkdir(parents=True, exist_ok=True)
    bench.settings.work_dir.write_text("a file where the work directory should be")
    job = bench.run({})
    assert (job.status, job.reason, job.attempt) == (Status.queued, "host_failed", 2)
    assert job.message.startswith("Host host-a could not start the job: ")


def test_a_message_about_nothing_that_can_be_claimed_is_passed_over(bench: Bench):
    job_id = bench.submit()
    launcher = Launcher(bench.settings, bench.database, threading.Event())
    launcher.launch("no-such-job", 1)
    launcher.launch(job_id, 1)
    attempt = bench.place(job_id)
    launcher.launch(job_id, attempt + 1)
    assert bench.job(job_id).status == Status.starting
    launcher.launch(job_id, attempt)
    launcher.launch(job_id, attempt)
    assert bench.job(job_id).status == Status.succeeded
    assert [folder.number for folder in bench.workspace(job_id).attempts()] == [1]


def test_the_runner_starts_the_trainer_before_it_loads_anything_but_the_standard_library():
    code = (
        "import sys, worker.runner; print([name for name in sys.modules if name.split('.')[0] in "
        "('psutil', 'sqlalchemy', 'pydantic', 'redis', 'celery', 'store', 'asyncio', 'logging')])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], timeout=60) == b"[]\n"
