import json
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.submission import (
    EXPORT_ARGUMENTS,
    MERGE_ARGUMENTS,
    guess_task,
    parse_labels,
    parse_overrides,
    read_submission,
)


@pytest.fixture
def argument_file(tmp_path: Path) -> Path:
    path = tmp_path / "sft_argument.json"
    path.write_text(json.dumps({"dataset_name_or_path": "./data", "learning_rate": 3e-05}))
    return path


def test_an_argument_file_becomes_the_config_of_a_body_with_the_guessed_task(argument_file: Path) -> None:
    submission = read_submission(argument_file, None, [], {"name": "first", "priority": None, "labels": {}})
    config = {"dataset_name_or_path": "./data", "learning_rate": 3e-05}
    assert submission.body == {"task": "finetune", "config": config, "name": "first"}
    assert submission.guessed_from == "dataset_name_or_path"


def test_a_named_task_is_not_guessed(argument_file: Path) -> None:
    submission = read_submission(argument_file, "quantize", [], {})
    assert (submission.body["task"], submission.guessed_from) == ("quantize", "")


def test_a_whole_body_is_sent_as_it_is_with_the_overrides_in_its_config(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(
        '{"task": "finetune", "name": "given", "priority": 3, "config": {"max_steps": 5, "seed": 1}}'
    )
    submission = read_submission(path, None, ["max_steps=9"], {"name": "other"})
    assert submission.body == {
        "task": "finetune",
        "name": "other",
        "priority": 3,
        "config": {"max_steps": 9, "seed": 1},
    }


def test_devices_that_are_given_go_before_those_of_the_body(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(
        '{"task": "finetune", "resources": {"devices_per_node": 2, "device": "gpu"}, "config": {}}'
    )
    submission = read_submission(path, None, [], {"resources": {"devices_per_node": 4}})
    assert submission.body["resources"] == {"devices_per_node": 4, "device": "gpu"}
    assert "resources" in read_submission(path, None, [], {"resources": {}}).body


def test_override_values_are_json_where_they_can_be_and_text_elsewhere() -> None:
    words = ["a=1", "b=3e-05", "c=true", "d=null", "e=./out", 'f="1"', "g=[1, 2]", "h=x=y", "i=", "j=NaN"]
    assert parse_overrides(words) == {
        "a": 1,
        "b": 3e-05,
        "c": True,
        "d": None,
        "e": "./out",
        "f": "1",
        "g": [1, 2],
        "h": "x=y",
        "i": "",
        "j": "NaN",
    }


@pytest.mark.parametrize("word", ["max_steps", "=3"])
def test_an_override_without_a_name_or_a_value_is_refused(word: str) -> None:
    with pytest.raises(CliError, match=f"--set {word}: expected key=value"):
        parse_overrides([word])


def test_labels_are_text() -> None:
    assert parse_labels(["team=search", "run=7"]) == {"team": "search", "run": "7"}
    with pytest.raises(CliError, match="--label team: expected key=value"):
        parse_labels(["team"])


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"dataset_name_or_path": "d", "lora": True}, "finetune"),
        ({"dataset_name_or_path": "d", "do_ptq": True}, "quantize"),
        ({"dataset_name_or_path": "d", "do_gptq": True}, "quantize"),
        ({"dataset_name_or_path": "d", "do_ptq": False}, "finetune"),
        ({"dataset_name_or_path": "d", "lora": True, "lora_path": "a"}, "finetune"),
        ({"lora_path": "a", "output_dir": "o"}, "merge"),
        ({"lora_path": "a", "output_dir": "o", "model_name_or_path": "m", "dtype": "bfloat16"}, "merge"),
        ({"model_name_or_path": "m", "output_dir": "o"}, "export"),
        ({"train_dataset_path": "t", "beta": 0.1, "loss_type": "sigmoid"}, "dpo"),
        ({"train_dataset_path": "t", "desirable_weight": 1.0}, "kto"),
        ({"train_dataset_path": "t", "output_dir": "./checkpoints/kto_ckpts"}, "kto"),
        ({"train_dataset_path": "t", "output_dir": "./checkpoints/dpo_ckpts"}, "dpo"),
    ],
)
def test_the_task_is_told_from_the_arguments(config: dict, task: str) -> None:
    assert guess_task(config, Path("argument.json"))[0] == task


def test_every_argument_of_merge_and_export_may_be_in_its_file() -> None:
    from trainer.config.schema import ExportConfig, MergeConfig

    assert set(MergeConfig.model_fields) == MERGE_ARGUMENTS
    assert set(ExportConfig.model_fields) == EXPORT_ARGUMENTS


def test_the_shipped_presets_are_told_apart() -> None:
    from trainer.config import preset, preset_names

    for family, name in preset_names():
        found = preset(family, name)
        assert guess_task(found.config, Path("argument.json"))[0] == found.task, (family, name)


@pytest.mark.parametrize(
    "config",
    [
        {"learning_rate": 1},
        {"train_dataset_path": "t", "beta": 0.1},
        {"lora_path": "a", "output_dir": "o", "learning_rate": 1},
    ],
)
def test_a_file_that_does_not_tell_asks_for_the_task(config: dict) -> None:
    with pytest.raises(CliError, match="--task"):
        guess_task(config, Path("argument.json"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not valid JSON"),
        ("[1]", "holds a JSON list, expected an object"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
    ],
)
def test_a_file_that_the_server_would_not_read_is_refused_here(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(CliError, match=complaint):
        read_submission(path, None, [], {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"Cannot read .*absent\.json: No such file"):
        read_submission(tmp_path / "absent.json", None, [], {})
