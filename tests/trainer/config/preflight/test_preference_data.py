"""The files of dpo and kto are checked line by line before a device is taken."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.config.conftest import write_lines
from trainer.config import DataError, read_config
from trainer.config.preflight import Roots, check_job, path_problems
from trainer.config.schema import PreferenceConfig
from trainer.data.files import read_preference_records

Config = Callable[..., PreferenceConfig]
PAIR = {"src": "q", "response": ["x", "y"], "sort": [1, 0]}
JUDGED = {"src": "q", "response": ["x"], "sort": [1]}
GOOD = {"dpo": PAIR, "kto": JUDGED}
SHARED = Path(__file__).parents[5] / "shared" / "data"


@pytest.fixture
def data(roots: Roots) -> Path:
    """A folder with pairs.jsonl and judged.jsonl for training, and the same for evaluation."""
    folder = roots.data[0] / "preferences"
    for name in ("train", "dev"):
        write_lines(folder / "dpo" / f"{name}.jsonl", [PAIR] * 5)
        write_lines(folder / "kto" / f"{name}.jsonl", [JUDGED, JUDGED | {"sort": [0]}] * 3)
    return folder


@pytest.fixture
def config(data: Path) -> Config:
    """A config of a preference task with these arguments added."""

    def make(task: str, **arguments: Any) -> PreferenceConfig:
        given = {
            "model_name_or_path": "gemma",
            "output_dir": "out",
            "do_train": True,
            "max_steps": 3,
            "save_steps": 3,
            "max_seq_len": 64,
            "max_prompt_len": 32,
            "train_dataset_path": f"preferences/{task}/train.jsonl",
            "dev_dataset_path": f"preferences/{task}/dev.jsonl",
        }
        reading = read_config(task, given | arguments)
        assert isinstance(reading.config, PreferenceConfig), reading.problems
        return reading.config

    return make


@pytest.mark.parametrize(("task", "examples"), [("dpo", 5), ("kto", 6)])
def test_good_files_are_found_counted_and_named_absolutely(
    config: Config, roots: Roots, data: Path, task: str, examples: int
) -> None:
    checked = check_job(config(task, do_eval=True, evaluation_strategy="epoch"), roots)
    assert checked.problems == ()
    for split in ("train", "dev"):
        found = checked.statistics[split]
        assert {key: found[key] for key in ("files", "examples", "turns")} == {
            "files": 1,
            "examples": examples,
            "turns": examples,
        }
        path = str(data / task / f"{split}.jsonl")
        assert getattr(checked.config, f"{split}_dataset_path") == path
    assert checked.statistics["optimizer_steps"] == 3


@pytest.mark.parametrize("task", ["dpo", "kto"])
def test_only_the_files_that_are_used_are_read(config: Config, roots: Roots, data: Path, task: str) -> None:
    (data / task / "dev.jsonl").unlink()
    assert check_job(config(task), roots).problems == ()
    (problem,) = check_job(config(task, do_eval=True, evaluation_strategy="epoch"), roots).problems
    assert problem.loc == ("dev_dataset_path",)
    assert "does not exist under" in problem.msg
    assert problem.hint.startswith("Give a file of JSON lines under ")


def test_a_folder_is_not_a_file(config: Config, roots: Roots, data: Path) -> None:
    (problem,) = check_job(config("dpo", train_dataset_path="preferences/dpo"), roots).problems
    assert problem.loc == ("train_dataset_path",)
    assert problem.msg == '"preferences/dpo" is a folder, expected a file'
    assert problem.hint.startswith("Give a file of JSON lines")


@pytest.mark.parametrize("given", ["../secret.jsonl", "/etc/passwd", "preferences/dpo/link.jsonl"])
def test_files_lie_inside_the_allowed_folders(
    config: Config, roots: Roots, data: Path, tmp_path: Path, given: str
) -> None:
    (tmp_path / "outside.jsonl").write_text(json.dumps(PAIR))
    (data / "dpo" / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (problem,) = check_job(config("dpo", train_dataset_path=given), roots).problems
    assert problem.loc == ("train_dataset_path",)


def test_a_refused_config_is_told_about_its_files_too(roots: Roots, data: Path) -> None:
    given = {"model_name_or_path": "gemma", "output_dir": "out", "do_train": True, "beta": "much"}
    reading = read_config("dpo", given | {"train_dataset_path": "preferences/none.jsonl"})
    assert reading.config is None
    assert ("train_dataset_path",) in [problem.loc for problem in path_problems(reading, roots)]


@pytest.mark.parametrize("task", ["dpo", "kto"])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda good: b"\xef\xbb\xbf" + good * 2, id="byte order mark"),
        pytest.param(lambda good: good.replace(b"\n", b"\r\n") * 3, id="CRLF"),
        pytest.param(lambda good: (good * 2).rstrip(), id="no newline at the end"),
        pytest.param(lambda good: b"\n \n" + good * 2, id="blank lines"),
        pytest.param(lambda good: good + good.replace(b"q", b"q" * 1_200_000), id="a line of more than 1 MB"),
        pytest.param(lambda good: good * 2 + good.replace(b"q", "où?".encode()), id="text beyond ASCII"),
    ],
)
def test_what_can_be_read_is_accepted(
    config: Config, roots: Roots, data: Path, task: str, content: Callable[[bytes], bytes]
) -> None:
    path = data / task / "train.jsonl"
    path.write_bytes(content(json.dumps(GOOD[task]).encode() + b"\n"))
    checked = check_job(config(task), roots)
    assert checked.problems == ()
    records = list(read_preference_records(path, task, "train_dataset_path"))
    assert len(records) == checked.statistics["train"]["examples"]


@pytest.mark.parametrize("task", ["dpo", "kto"])
@pytest.mark.parametrize(
    ("line", "msg"),
    [
        (b'{"src": "q"', "broken JSON: Expecting ',' delimiter (column 12)"),
        (b'{"src": "\xff"}', "broken JSON: byte 9 is not UTF-8 text"),
        (b'{"src": "q", "src": "r"}', "broken JSON: the key 'src' appears twice"),
        (b'{"sort": [NaN]}', "broken JSON: NaN is not a JSON number"),
        (b"[]", "got [], expected an object with src, tgt, response and sort"),
        (
            b'{"src": "q", "tgt": "a"}',
            "this is fine-tuning data (it has no response); task finetune takes it",
        ),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_training_would_say_the_same(
    config: Config, roots: Roots, data: Path, task: str, line: bytes, msg: str
) -> None:
    path = data / task / "train.jsonl"
    good = json.dumps(GOOD[task]).encode() + b"\n"
    path.write_bytes(good + b"\n" + line + b"\n" + good)
    summary, problem = check_job(config(task), roots).problems
    assert "1 of 3 lines of train cannot be used" in summary.msg
    assert problem.loc == ("train_dataset_path", "train.jsonl", 3)
    assert problem.msg == f"line 3: {msg}"
    with pytest.raises(DataError) as caught:
        list(read_preference_records(path, task, "train_dataset_path"))
    assert (caught.value.problems[0].loc, caught.value.problems[0].msg) == (problem.loc, problem.msg)


@pytest.mark.parametrize("task", ["dpo", "kto"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_a_file_without_a_record_is_refused(
    config: Config, roots: Roots, data: Path, task: str, content: bytes
) -> None:
    (data / task / "train.jsonl").write_bytes(content)
    (problem,) = check_job(config(task), roots).problems
    assert problem.msg == "train has no record, expected at least one"
    assert '"response"' in problem.hint


def test_a_json_array_is_told_apart(config: Config, roots: Roots, data: Path) -> None:
    (data / "dpo" / "train.jsonl").write_text(json.dumps([PAIR]))
    (problem,) = check_job(config("dpo"), roots).problems
    assert problem.loc == ("train_dataset_path", "train.jsonl")
    assert "it is one JSON array, expected JSON lines" in problem.msg


def test_a_gzip_file_is_unpacked(config: Config, roots: Roots, data: Path) -> None:
    (data / "pairs.jsonl.gz").write_bytes(gzip.compress(json.dumps(PAIR).encode() + b"\n"))
    checked = check_job(config("dpo", train_dataset_path="preferences/pairs.jsonl.gz"), roots)
    assert checked.problems == ()
    assert checked.statistics["train"]["examples"] == 1


def test_a_single_judged_response_is_refused(config: Config, roots: Roots, data: Path) -> None:
    write_lines(data / "kto" / "train.jsonl", [JUDGED])
    (problem,) = check_job(config("kto"), roots).problems
    assert problem.msg.startswith("train has a single record, expected at least 2")


def test_responses_that_are_all_judged_alike_are_a_warning(config: Config, roots: Roots, data: Path) -> None:
    write_lines(data / "kto" / "train.jsonl", [JUDGED] * 2)
    checked = check_job(config("kto"), roots)
    assert checked.problems == ()
    assert "all responses of train are desirable" in str([warning.msg for warning in checked.warnings])


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not beside this checkout")
@pytest.mark.parametrize(("task", "other"), [("dpo", "kto"), ("kto", "dpo")])
def test_the_shared_data_is_sound_for_its_task_and_told_apart(
    config: Config, roots: Roots, task: str, other: str
) -> None:
    roots = Roots(roots.models, (SHARED,))
    files = {"train_dataset_path": f"{task}/train.jsonl", "dev_dataset_path": f"{task}/dev.jsonl"}
    checked = check_job(config(task, do_eval=True, evaluation_strategy="epoch", **files), roots)
    assert checked.problems == ()
    assert (checked.statistics["train"]["examples"], checked.statistics["dev"]["examples"]) == (260, 40)
    wrong = check_job(config(task, train_dataset_path=f"{other}/train.jsonl"), roots).problems
    assert len(wrong) == 11
    assert f"task {other} takes it" in wrong[1].msg


def weigh(config: Config, roots: Roots, data: Path, good: int, bad: int, **weights: float) -> list[str]:
    """What is said about the weights of kto with so many responses of each kind."""
    write_lines(data / "kto" / "train.jsonl", [JUDGED] * good + [JUDGED | {"sort": [0]}] * bad)
    warnings = check_job(config("kto", **weights), roots).warnings
    return [f"{each.msg}. {each.hint}" for each in warnings if each.loc == ("desirable_weight",)]


def test_classes_out_of_balance_are_a_warning_with_the_weights_that_balance_them(
    config: Config, roots: Roots, data: Path
) -> None:
    assert weigh(config, roots, data, 9, 2) == [
        "train has 9 desirable and 2 undesirable responses, which weigh 9 to 2 = 4.5, expected 1 to 1.33. "
        "Set desirable_weight to 0.222 to 0.296, or undesirable_weight to 3.38 to 4.5."
    ]
    assert weigh(config, roots, data, 2, 9)[0].endswith(
        "Set desirable_weight to 4.5 to 6, or undesirable_weight to 0.167 to 0.222."
    )


@pytest.mark.parametrize(
    ("good", "bad", "weights"),
    [
        (5, 5, {}),
        (5, 4, {}),
        (9, 2, {"undesirable_weight": 4.0}),
        (9, 2, {"desirable_weight": 0.25}),
        (5, 5, {"desirable_weight": 1.5}),
    ],
)
def test_balanced_or_chosen_weights_are_not_worth_a_word(
    config: Config, roots: Roots, data: Path, good: int, bad: int, weights: dict[str, float]
) -> None:
    assert weigh(config, roots, data, good, bad, **weights) == []
