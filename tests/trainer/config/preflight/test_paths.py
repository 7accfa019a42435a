import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.config import FinetuneConfig, Reading
from trainer.config.preflight import Roots, check_job, path_problems

Config = Callable[..., FinetuneConfig]


def test_a_sound_job_has_absolute_paths_and_statistics(
    config: Config, roots: Roots, model: Path, data: Path
) -> None:
    checked = check_job(config(evaluation_strategy="epoch", save_strategy="epoch"), roots)
    assert (checked.problems, checked.warnings) == ((), ())
    resolved = checked.config.resolved()
    assert resolved["model_name_or_path"] == resolved["tokenizer_name_or_path"] == str(model)
    assert resolved["dataset_name_or_path"] == str(data)
    assert resolved["output_dir"] == "out"
    assert checked.statistics == {
        "model": {"model_type": "gemma", "tensors": 2, "bytes": 40},
        "train": {"files": 1, "examples": 20, "turns": 20, "bytes": (data / "train.json").stat().st_size},
        "dev": {"files": 1, "examples": 3, "turns": 3, "bytes": (data / "dev.json").stat().st_size},
        "optimizer_steps": 3,
    }


def test_absolute_paths_inside_the_roots_are_found(
    config: Config, roots: Roots, model: Path, data: Path
) -> None:
    job = config(model_name_or_path=str(model), dataset_name_or_path=str(data), save_strategy="no")
    assert check_job(job, roots).problems == ()


@pytest.mark.parametrize("name", ["model_name_or_path", "dataset_name_or_path", "tokenizer_name_or_path"])
@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("missing", "does not exist under "),
        ("../elsewhere", "expected a path without .."),
        ("gemma/../../etc", "expected a path without .."),
        ("/etc", "is outside the allowed "),
        ("/no/such/place", "is outside the allowed "),
        ("job:0198", "only a service can refer to jobs and uploaded data"),
        ("dataset:0198", "only a service can refer to jobs and uploaded data"),
        ("x" * 5000, ""),
        ("file", "is not a folder"),
        ("link_out", "is outside the allowed "),
        ("a/" * 400_000, "expected a shorter path"),
        ("loop", ""),
    ],
)
def test_a_path_that_cannot_be_used_is_a_problem_with_a_remedy(
    config: Config, roots: Roots, name: str, given: str, part: str
) -> None:
    for root in (*roots.models, *roots.data):
        (root / "file").touch()
        (root / "link_out").symlink_to("/etc")
        (root / "loop").symlink_to(root / "loop")
    problems = check_job(config(**{name: given}), roots).problems
    (problem,) = [problem for problem in problems if problem.loc == (name,)]
    assert part in problem.msg
    assert problem.hint
    assert len(problem.msg) < 500


def test_a_link_that_stays_inside_a_root_is_followed(config: Config, roots: Roots, model: Path) -> None:
    (roots.models[0] / "alias").symlink_to(model)
    checked = check_job(config(model_name_or_path="alias"), roots)
    assert checked.problems == ()
    assert checked.config.resolved()["model_name_or_path"] == str(model)


def test_a_root_may_itself_be_a_link(config: Config, roots: Roots, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(roots.models[0])
    assert check_job(config(), Roots((tmp_path / "link",), roots.data)).problems == ()


def test_without_any_root_nothing_is_allowed(config: Config, model: Path) -> None:
    problems = check_job(config(model_name_or_path=str(model)), Roots((), ())).problems
    assert {problem.loc[0] for problem in problems} == {
        "model_name_or_path",
        "dataset_name_or_path",
    }
    assert all("no folder is allowed yet" in problem.hint for problem in problems)


def test_without_roots_paths_start_at_the_base(config: Config, roots: Roots, tmp_path: Path) -> None:
    job = config(model_name_or_path="models/gemma", dataset_name_or_path="models/../data/sft")
    with_dots = check_job(job, None, tmp_path)
    assert [problem.loc for problem in with_dots.problems] == []
    assert with_dots.config.resolved()["dataset_name_or_path"] == str(tmp_path / "data" / "sft")
    assert with_dots.config.resolved()["output_dir"] == str(tmp_path / "out")


@pytest.mark.parametrize(
    "given",
    ["/tmp/out", "../out", "a/../../out", ".", "./", "attempts/1", "config.json", "x" * 300, "x/" * 900],
)
def test_output_stays_in_the_folder_of_the_job(config: Config, roots: Roots, given: str) -> None:
    for base in (None, roots.models[0].parent / "work"):
        problems = check_job(config(output_dir=given), roots, base).problems
        assert [problem.loc for problem in problems] == [("output_dir",)]


def test_output_is_resolved_inside_the_workspace(config: Config, roots: Roots, tmp_path: Path) -> None:
    work = tmp_path / "work"
    for given in ("./out", str(work / "out")):
        checked = check_job(config(output_dir=given), roots, work)
        assert checked.problems == ()
        assert checked.config.resolved()["output_dir"] == str(work / "out")


def test_output_may_not_leave_the_workspace_through_a_link(
    config: Config, roots: Roots, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "out").symlink_to("/etc")
    assert [problem.loc for problem in check_job(config(), roots, work).problems] == [("output_dir",)]


def test_a_checkpoint_to_resume_from_must_exist_in_an_allowed_place(
    config: Config, roots: Roots, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "checkpoint-3").mkdir(parents=True)
    inside = config(resume_from_checkpoint=str(work / "checkpoint-3"))
    assert check_job(inside, roots, work).problems == ()
    outside = check_job(inside, roots).problems
    assert [problem.loc for problem in outside] == [("resume_from_checkpoint",)]
    missing: Any = config(resume_from_checkpoint=str(work / "checkpoint-4"))
    assert "does not exist" in check_job(missing, roots, work).problems[0].msg


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ({"model_name_or_path": "nowhere"}, ["model_name_or_path"]),
        ({"dataset_name_or_path": "nowhere", "output_dir": "/out"}, ["dataset_name_or_path", "output_dir"]),
        ({"model_name_or_path": None, "dataset_name_or_path": "nowhere"}, ["dataset_name_or_path"]),
        ({"model_name_or_path": 3, "output_dir": "", "do_eval": "maybe"}, []),
        ({}, []),
    ],
)
def test_files_of_a_config_that_is_refused_are_looked_for_too(
    read: Callable[..., Reading], roots: Roots, arguments: dict[str, Any], places: list[str]
) -> None:
    reading = read(learing_rate=1, seed="x", **arguments)
    assert [problem.loc[0] for problem in path_problems(reading, roots)] == places


def test_a_relative_checkpoint_is_looked_for_in_the_roots(config: Config, roots: Roots) -> None:
    (roots.models[0] / "runs" / "checkpoint-3").mkdir(parents=True)
    found = check_job(config(resume_from_checkpoint="runs/checkpoint-3"), roots)
    assert found.problems == ()
    assert found.config.resolved()["resume_from_checkpoint"] == str(roots.models[0] / "runs" / "checkpoint-3")
    (problem,) = check_job(config(resume_from_checkpoint="checkpoint-4"), roots).problems
    assert problem.loc == ("resume_from_checkpoint",)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read_is_a_problem(config: Config, roots: Roots, data: Path) -> None:
    data.chmod(0)
    try:
        problems = check_job(config(), roots).problems
    finally:
        data.chmod(0o755)
    assert [problem.loc[0] for problem in problems] == ["dataset_name_or_path"]
