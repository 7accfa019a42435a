import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.checkpoints import list_checkpoints
from store.tables import Job
from tests.worker.bench import Bench
from tests.worker.conftest import host_settings, running_bench
from worker.recovery import go_on_from_checkpoint, restore_checkpoint, unfinished_attempts
from worker.spec import Spec


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path) -> Iterator[Bench]:
    settings = host_settings(tmp_path_factory.mktemp("host") / "data")
    with running_bench(settings, migrated_sqlite) as bench:
        yield bench


@pytest.fixture(scope="module")
def job(bench: Bench) -> Job:
    """A finished job with three published checkpoints."""
    return bench.run({"steps": 3, "save_steps": 1, "resume_from_checkpoint": "/models/start"})


@pytest.fixture
def spec(bench: Bench, job: Job, tmp_path: Path) -> Iterator[Spec]:
    """What the runner of the job was told. Its folders are as it left them, whatever a test does to them."""
    folders = (bench.workspace(job.id).path, bench.artifacts.root)
    for number, folder in enumerate(folders):
        shutil.copytree(folder, tmp_path / str(number))
    yield Spec.read(bench.workspace(job.id).attempt(1).spec)
    for number, folder in enumerate(folders):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / str(number), folder)


@pytest.fixture
def output(spec: Spec) -> Path:
    return Path(spec.workspace) / "output"


def checkpoints(output: Path) -> list[str]:
    return sorted(entry.name for entry in output.glob("checkpoint-*"))


def restore(bench: Bench, spec: Spec) -> None:
    restore_checkpoint(spec, bench.database, bench.artifacts)


def test_an_empty_workspace_gets_the_newest_checkpoint(bench: Bench, spec: Spec, output: Path):
    shutil.rmtree(output)
    restore(bench, spec)
    assert checkpoints(output) == ["checkpoint-3"]
    assert (output / "checkpoint-3" / "model.safetensors").read_text() == "weights of step 3"


def test_a_workspace_that_is_as_new_stays_as_it_is(bench: Bench, spec: Spec, output: Path):
    (output / "checkpoint-3" / "note").write_text("untouched")
    restore(bench, spec)
    assert (output / "checkpoint-3" / "note").exists()


def test_an_older_or_incomplete_one_is_no_reason_to_stay_behind(bench: Bench, spec: Spec, output: Path):
    shutil.rmtree(output / "checkpoint-2")
    (output / "checkpoint-3" / "trainer_state.json").unlink()
    restore(bench, spec)
    assert checkpoints(output) == ["checkpoint-1", "checkpoint-3"]
    assert (output / "checkpoint-3" / "trainer_state.json").exists()


def test_a_damaged_artifact_is_passed_over_for_an_older_one(bench: Bench, spec: Spec, output: Path):
    shutil.rmtree(output)
    with bench.database.reading() as session:
        newest = list_checkpoints(session, spec.job_id)[-1]
    (bench.artifacts.root / newest.key / "model.safetensors").write_text("weights of step 9")
    restore(bench, spec)
    assert checkpoints(output) == ["checkpoint-2"]


def test_the_users_wish_for_the_first_start_does_not_undo_the_jobs_own_progress(spec: Spec, output: Path):
    go_on_from_checkpoint(spec)
    assert json.loads(spec.files.config.read_text())["resume_from_checkpoint"] is None


def test_without_a_checkpoint_of_its_own_the_job_starts_as_the_user_wished(spec: Spec, output: Path):
    shutil.rmtree(output)
    go_on_from_checkpoint(spec)
    assert json.loads(spec.files.config.read_text())["resume_from_checkpoint"] == "/models/start"


def test_only_earlier_attempts_that_have_not_delivered_all_are_unfinished(spec: Spec):
    for number in (2, 3, 4):
        spec.files.attempt(number).path.mkdir()
    later = Spec(**{**spec.__dict__, "attempt": 4})
    assert [folder.number for folder in unfinished_attempts(later)] == [2, 3]
