"""Secrets reach the trainer's environment, and nothing that it writes."""

import json
import stat
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from store.jobs import existing_job
from store.secretbox import ensure_key_file, key_file, open_box
from store.secrets import add_job_secrets, put_secret
from store.states import Status
from store.tables import Base
from tests.worker.bench import Bench

VALUE = 'hf_"quoted"_value'


@pytest.fixture
def secret(bench: Bench) -> str:
    """The name of a secret that the project has."""
    ensure_key_file(bench.settings)
    with bench.database.transaction() as session:
        put_secret(session, "default", "HF_TOKEN", open_box(bench.settings).encrypt(VALUE))
    return "HF_TOKEN"


def files_with(value: str, folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.name for path in found if value.encode() in path.read_bytes()}


def rows_with(value: str, bench: Bench) -> list[str]:
    with bench.database.reading() as session:
        return [
            table.name
            for table in Base.metadata.sorted_tables
            for row in session.execute(text(f"SELECT * FROM {table.name}"))  # noqa: S608 - our own names
            if value in str(tuple(row)) or json.dumps(value)[1:-1] in str(tuple(row))
        ]


def test_what_a_trainer_tells_of_a_secret_is_masked_everywhere(bench: Bench, secret: str) -> None:
    job = bench.run({"tell_variables": [secret], "error": {"msg": "", "kind": "config"}, "exit_code": 2})
    lines = [line.line for line in bench.logs(job.id)]
    assert lines[0] == 'HF_TOKEN is *** {"value": "***"}'
    assert lines[1].startswith("xxx")
    assert "hf_" not in lines[1]
    assert job.message == "no entry with ***"
    assert bench.archived(job.id) == bench.logs(job.id)
    assert rows_with(VALUE, bench) == []
    assert files_with(VALUE, bench.settings.data_dir) == {"rank-0.log"}
    workspace = bench.settings.work_dir / job.id
    assert stat.S_IMODE(workspace.stat().st_mode) == 0o700


def test_a_jobs_own_secret_goes_before_the_projects_and_is_on_no_command_line_and_in_no_file(
    bench: Bench, secret: str
) -> None:
    job_id = bench.submit({"steps": 400, "step_s": 0.05})
    own = "the-jobs-own-token"
    with bench.database.transaction() as session:
        project = existing_job(session, job_id).project
        add_job_secrets(session, job_id, project, {secret: open_box(bench.settings).encrypt(own)})
    bench.start(job_id)
    trainer = psutil.Process(bench.pids(job_id)[0])
    assert trainer.environ()[secret] == own
    runner = trainer.parent()
    assert runner is not None
    assert secret not in runner.environ()
    assert own not in " ".join(runner.cmdline() + trainer.cmdline())
    assert files_with(own, bench.settings.data_dir) == set()
    bench.cancel(job_id)
    bench.wait_for_end(job_id)


def test_the_service_decides_about_its_own_variables(bench: Bench, secret: str) -> None:
    with bench.database.transaction() as session:
        box = open_box(bench.settings)
        put_secret(session, "default", "REGATTA_EVENTS", box.encrypt("/tmp/elsewhere"))
        put_secret(session, "default", "CUDA_VISIBLE_DEVICES", box.encrypt("0,1,2,3,4,5"))
    job = bench.run({"steps": 1})
    assert job.status == Status.succeeded


def test_a_host_without_the_key_says_so_and_the_job_waits_for_another(bench: Bench, secret: str) -> None:
    key_file(bench.settings).unlink()
    job = bench.run({"steps": 1})
    assert job.status == Status.queued
    assert job.reason == "host_failed"
    assert "REGATTA_SECRET_KEY" in job.message
