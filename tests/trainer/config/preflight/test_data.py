import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.config.conftest import write_lines
from trainer.config import FinetuneConfig
from trainer.config.preflight import Roots, check_job

Config = Callable[..., FinetuneConfig]
GOOD = {"src": "q", "tgt": "a"}
SHARED = Path(__file__).parents[5] / "shared" / "data"


def test_a_broken_line_is_named_with_its_number(config: Config, roots: Roots, data: Path) -> None:
    (data / "train.json").write_text('{"src": "q", "tgt": "a"}\n\n{"src": "q", "tgt"}\n')
    summary, problem = check_job(config(), roots).problems
    assert summary.msg == "1 of 2 lines of train cannot be used: 1 x broken JSON"
    assert problem.loc == ("dataset_name_or_path", "train.json", 3)
    assert problem.msg.startswith("line 3: broken JSON: ")


def test_all_errors_are_counted_by_kind_and_the_first_ten_shown(
    config: Config, roots: Roots, data: Path
) -> None:
    records = [GOOD, {"src": "q"}, {"src": "q", "tgt": 7}, GOOD] * 20 + [{"src": "q"}]
    write_lines(data / "train.json", records)
    checked = check_job(config(), roots)
    summary, *shown = checked.problems
    assert summary.msg == "41 of 81 lines of train cannot be used: 21 x no tgt, 20 x wrong type"
    assert summary.hint == "The first 10 follow."
    assert [problem.loc[2] for problem in shown] == [2, 3, 6, 7, 10, 11, 14, 15, 18, 19]
    assert checked.statistics["train"]["examples"] == 40
    assert "optimizer_steps" not in checked.statistics


def test_preference_data_is_told_as_such(config: Config, roots: Roots, data: Path) -> None:
    write_lines(data / "train.json", [{"src": ["q"], "tgt": [], "response": ["x", "y"], "sort": [1, 0]}])
    _, problem = check_job(config(), roots).problems
    assert problem.msg == (
        "line 1: this is preference data (it has response and sort); task dpo or kto takes it"
    )


def test_text_that_is_not_utf8_is_named_with_its_line(config: Config, roots: Roots, data: Path) -> None:
    (data / "train.json").write_bytes(b'{"src": "q", "tgt": "a"}\n{"src": "\xff", "tgt": "a"}\n')
    assert check_job(config(), roots).problems[1].msg == "line 2: broken JSON: byte 9 is not UTF-8 text"


def test_a_json_array_is_told_apart(config: Config, roots: Roots, data: Path) -> None:
    (data / "train.json").write_text(json.dumps([GOOD, {"src": "q", "tgt": 5}]))
    (problem,) = check_job(config(), roots).problems
    assert "it is one JSON array, expected JSON lines" in problem.msg
    assert "jq" in problem.hint


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_an_empty_data_set_is_refused(config: Config, roots: Roots, data: Path, content: str) -> None:
    (data / "train.json").write_text(content)
    (problem,) = check_job(config(), roots).problems
    assert problem.msg == "train has no record, expected at least one"
    assert "tgt" in problem.hint


def test_data_that_is_needed_must_be_there(config: Config, roots: Roots, data: Path) -> None:
    (data / "dev.json").unlink()
    assert check_job(config(), roots).problems == ()
    (problem,) = check_job(config(do_eval=True), roots).problems
    assert "has no dev.json and no folder dev with JSON lines, and do_eval is true" in problem.msg
    assert problem.hint == "Add the file, or set evaluation_strategy to no and do_eval to false."
    (data / "train.json").unlink()
    assert "has no train.json" in check_job(config(), roots).problems[0].msg
    assert check_job(config(do_train=False, do_eval=True), roots).problems[0].msg.endswith("do_eval is true")


def test_only_the_splits_that_are_used_are_read(config: Config, roots: Roots, data: Path) -> None:
    (data / "train.json").write_text("broken")
    assert check_job(config(do_train=False, do_eval=True), roots).problems == ()


def test_folders_of_files_and_gzip_are_read(config: Config, roots: Roots, data: Path) -> None:
    (data / "train.json").unlink()
    write_lines(data / "train" / "a.jsonl", [GOOD, {"src": ["q", "r"], "tgt": ["a", "b"]}])
    (data / "train" / "b.json.gz").write_bytes(gzip.compress(json.dumps(GOOD).encode() + b"\n{}\n"))
    checked = check_job(config(), roots)
    assert checked.problems[1].loc == ("dataset_name_or_path", "train/b.json.gz", 2)
    assert {key: checked.statistics["train"][key] for key in ("files", "examples", "turns")} == {
        "files": 2,
        "examples": 3,
        "turns": 4,
    }


def test_files_may_not_lead_out_of_the_roots(
    config: Config, roots: Roots, data: Path, tmp_path: Path
) -> None:
    (data / "train.json").rename(tmp_path / "outside.json")
    (data / "train.json").symlink_to(tmp_path / "outside.json")
    (problem,) = check_job(config(), roots).problems
    assert problem.msg == "train.json is a link to a place outside the allowed folders"


def test_a_large_file_needs_little_memory(config: Config, roots: Roots, data: Path) -> None:
    line = json.dumps({"src": "q" * 500, "tgt": "a" * 500}) + "\n"
    with (data / "train.json").open("w") as stream:
        for _ in range(5_000):
            stream.write(line)
    job = config()
    tracemalloc.start()
    checked = check_job(job, roots)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert checked.statistics["train"]["examples"] == 5_000
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("arguments", "name", "part"),
    [
        ({}, "save_steps", "save_steps 500 > 3 optimizer steps in all: no checkpoint before the end"),
        ({"save_strategy": "no", "warmup_steps": 3}, "warmup_steps", "warmup_steps 3 >= 3 optimizer steps"),
        (
            {"save_strategy": "no", "evaluation_strategy": "steps", "eval_steps": 4},
            "eval_steps",
            "eval_steps 4 > 3 optimizer steps in all: evaluated at the end only",
        ),
        (
            {"load_best_model_at_end": True, "evaluation_strategy": "steps", "eval_steps": 1},
            "save_steps",
            "so load_best_model_at_end has nothing to choose from",
        ),
    ],
)
def test_the_number_of_steps_tells_what_will_not_happen(
    config: Config, roots: Roots, arguments: dict[str, object], name: str, part: str
) -> None:
    (warning,) = check_job(config(**arguments), roots).warnings
    assert warning.loc == (name,)
    assert part in warning.msg


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({}, 3),
        ({"dataloader_drop_last": True}, 2),
        ({"num_train_epochs": 2.5}, 7),
        ({"num_train_epochs": 0.1}, 1),
        ({"gradient_accumulation_steps": 2}, 2),
        ({"per_device_train_batch_size": 1, "num_train_epochs": 3}, 60),
        ({"max_steps": 11}, 11),
    ],
)
def test_optimizer_steps_are_counted(
    config: Config, roots: Roots, arguments: dict[str, object], steps: int
) -> None:
    assert check_job(config(**arguments), roots).statistics["optimizer_steps"] == steps


def test_dropping_every_batch_is_refused(config: Config, roots: Roots) -> None:
    (problem,) = check_job(config(dataloader_drop_last=True, per_device_train_batch_size=21), roots).problems
    assert problem.loc == ("dataloader_drop_last",)
    assert "every batch is dropped" in problem.msg


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not beside this checkout")
def test_the_shared_data_is_sound_for_its_task_and_told_apart(config: Config, roots: Roots) -> None:
    roots = Roots(roots.models, (SHARED,))
    checked = check_job(config(do_eval=True, evaluation_strategy="epoch", save_strategy="epoch"), roots)
    assert checked.problems == ()
    assert (checked.statistics["train"]["examples"], checked.statistics["dev"]["examples"]) == (900, 99)
    wrong = check_job(config(dataset_name_or_path="dpo"), roots).problems
    assert len(wrong) == 11
    assert "task dpo or kto takes it" in wrong[1].msg
