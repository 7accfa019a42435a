from sqlalchemy import delete

from store.jobs import delete_job
from store.tables import Job
from tests.worker.bench import Bench
from worker.cleaning import remove_forgotten_workspaces


def test_only_the_workspaces_of_deleted_jobs_are_removed(bench: Bench):
    kept, deleted = bench.run(), bench.run()
    foreign = bench.settings.work_dir / "not-a-job"
    foreign.mkdir()
    with bench.database.transaction() as session:
        delete_job(session, deleted.id)
    assert remove_forgotten_workspaces(bench.settings.work_dir, bench.database) == [deleted.id]
    assert {entry.name for entry in bench.settings.work_dir.iterdir()} == {kept.id, "not-a-job"}


def test_a_job_that_still_runs_keeps_its_workspace(bench: Bench):
    job_id = bench.submit({"steps": 400, "step_s": 0.05})
    bench.start(job_id)
    bench.pids(job_id)
    with bench.database.transaction() as session:
        session.execute(delete(Job).where(Job.id == job_id))
    assert remove_forgotten_workspaces(bench.settings.work_dir, bench.database) == []
    bench.wait_for_no_runner()


def test_a_host_without_a_work_directory_has_nothing_to_remove(bench: Bench):
    assert remove_forgotten_workspaces(bench.settings.work_dir, bench.database) == []
