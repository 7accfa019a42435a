"""What a job uses of other jobs and of data sets lies in its workspace when its trainer starts."""

import json
from pathlib import Path

from store.checkpoints import RESULT, get_checkpoint
from store.datasets import NewDataset, create_or_find, dataset_key
from store.inputs import Input
from store.reruns import Rerun, retry_job
from store.tables import Job
from tests.worker.bench import Bench

MODEL, TRAIN = "model_name_or_path", "train_dataset_path"


def config_of(bench: Bench, job: Job) -> dict:
    """The config that the trainer was given."""
    return json.loads(bench.workspace(job.id).config.read_text())


def user(bench: Bench, used: str, checkpoint: str | None = None, **config: object) -> str:
    """A job that takes another one's result (or a checkpoint) as its model."""
    reference = f"job:{used}" + (f"/{checkpoint}" if checkpoint else "")
    inputs = (Input(MODEL, job_id=used, checkpoint=checkpoint),)
    return bench.submit({"steps": 1, MODEL: reference} | config, inputs=inputs)


def run(bench: Bench, job_id: str) -> Job:
    bench.launch(job_id, bench.place(job_id))
    return bench.job(job_id)


def test_the_result_of_an_earlier_job_is_linked_into_the_workspace(bench: Bench) -> None:
    first = bench.run({"steps": 2})
    second = run(bench, user(bench, first.id))
    assert second.status == "succeeded", bench.story(second.id)
    folder = Path(config_of(bench, second)[MODEL])
    assert folder == bench.workspace(second.id).inputs / f"job-{first.id}"
    with bench.database.reading() as session:
        published = get_checkpoint(session, first.id, RESULT)
    assert published is not None
    for file in published.files:
        assert (folder / file["path"]).samefile(bench.artifacts.root / published.key / file["path"])


def test_a_named_checkpoint_is_taken_from_a_job_that_failed(bench: Bench) -> None:
    first = bench.run({"steps": 4, "save_steps": 2, "exit_code": 2})
    assert first.status == "failed"
    second = run(bench, user(bench, first.id, "checkpoint-2"))
    assert second.status == "succeeded", bench.story(second.id)
    assert (Path(config_of(bench, second)[MODEL]) / "model.safetensors").read_text() == "weights of step 2"


def test_the_file_of_a_split_is_given_where_an_argument_wants_a_file(bench: Bench, tmp_path: Path) -> None:
    folder, key = tmp_path / "upload", dataset_key("one")
    folder.mkdir()
    (folder / "train.json").write_text("{}\n")
    bench.artifacts.publish_directory(folder, key)
    with bench.database.transaction() as session:
        create_or_find(session, NewDataset("one", "dpo", "0" * 64, key, 3, {"train": {}}))
    config = {"steps": 1, TRAIN: "dataset:one"}
    job = run(bench, bench.submit(config, inputs=(Input(TRAIN, dataset_id="one"),)))
    assert job.status == "succeeded", bench.story(job.id)
    assert Path(config_of(bench, job)[TRAIN]).read_text() == "{}\n"


def test_a_job_whose_input_is_gone_fails_and_says_which(bench: Bench) -> None:
    first = bench.run({"steps": 1})
    second = user(bench, first.id)
    bench.artifacts.delete_prefix(f"jobs/{first.id}")
    job = run(bench, second)
    assert job.reason == "artifacts_unavailable", bench.story(second)
    assert f"job-{first.id} is not among the artifacts any more." in job.message


def test_inputs_are_fetched_anew_on_another_host_and_kept_on_the_same(bench: Bench) -> None:
    first = bench.run({"steps": 1})
    second = user(bench, first.id, exit_code=2)
    assert run(bench, second).status == "failed"
    folder = Path(config_of(bench, bench.job(second))[MODEL])
    mark = folder / "mark"
    mark.touch()
    for forget in (False, True):
        if forget:
            (folder.parent / "keys.json").unlink()
        with bench.database.transaction() as session:
            retry_job(session, second)
        run(bench, second)
        assert mark.exists() is not forget
        assert (folder / "model.safetensors").exists()


def test_a_retry_from_scratch_forgets_what_the_host_has(bench: Bench) -> None:
    job_id = bench.submit({"steps": 4, "save_steps": 2, "exit_code": 2})
    assert run(bench, job_id).status == "failed"
    for from_scratch, first_step in ((False, 5), (True, 1)):
        with bench.database.transaction() as session:
            retry_job(session, job_id, rerun=Rerun(from_scratch=from_scratch))
        run(bench, job_id)
        events = bench.workspace(job_id).attempts()[-1].events.read_text().splitlines()
        steps = [event["step"] for event in map(json.loads, events) if event["type"] == "metric"]
        assert steps == list(range(first_step, 5))
