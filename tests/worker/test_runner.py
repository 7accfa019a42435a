from store.states import Status
from tests.worker.bench import Bench


def test_a_job_that_succeeds_leaves_metrics_checkpoints_a_result_and_its_log(bench: Bench):
    job = bench.run({"steps": 4, "save_steps": 2})
    assert (job.status, job.reason) == (Status.succeeded, "completed"), bench.story(job.id)
    assert bench.history(job.id) == ["queued", "starting", "running", "succeeded"]
    assert bench.metric_steps(job.id) == [1, 2, 3, 4]
    print([l.line for l in bench.logs(job.id)])
    print(bench.story(job.id))
