"""`regatta preview`: what a job would train on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import build_tiny_gemma
from tests.training import write_records


@pytest.fixture(scope="module")
def argument_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preview")
    write_records(folder / "data" / "train.json", [("Who?", "The pilot, at noon."), ("Where?", "Here.")])
    arguments = {
        "model_name_or_path": str(build_tiny_gemma(folder / "model")),
        "dataset_name_or_path": str(folder / "data"),
        "output_dir": str(folder / "output"),
        "do_train": True,
        "src_length": 8,
        "max_length": 16,
    }
    (folder / "sft.json").write_text(json.dumps(arguments))
    return folder / "sft.json"


def preview(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "160", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "cli", "preview", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_every_token_is_shown_with_its_fate_and_a_cut_answer_is_marked(argument_file: Path) -> None:
    done = preview(str(argument_file), "--set", "max_length=10")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("\n\n")[1:]
    assert first.startswith("train.json line 1: 10 tokens")
    assert "an answer is cut and has no end" in first.splitlines()[0]
    assert first.splitlines()[1].split() == ["0", "2", "masked", "'<bos>'"]
    assert "learned" in first
    assert "'<eos>'" not in first
    assert second.strip().splitlines()[-1].split()[-2:] == ["learned", "'<eos>'"]


def test_json_has_the_same_for_programs(argument_file: Path) -> None:
    done = preview(str(argument_file), "--examples", "1", "--json")
    found = json.loads(done.stdout)
    assert found["template"] is None
    (example,) = found["examples"]
    assert example["length"] == len(example["tokens"])
    assert sum(token["learned"] for token in example["tokens"]) == example["label_tokens"]


def test_a_wrong_argument_is_told_as_everywhere(argument_file: Path) -> None:
    done = preview(str(argument_file), "--set", "max_lenght=10")
    assert done.returncode == 2
    assert "max_lenght" in done.stderr


def test_the_process_of_a_preview_keeps_to_limits_that_are_narrower_than_its_own(argument_file: Path) -> None:
    limits = "ulimit -t 50 -v 3900000"
    script = f"{limits}; exec {sys.executable} -m trainer.preview {argument_file}"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["examples"]) == 2


def test_preference_data_shows_the_prompt_once_and_each_response_behind_it(argument_file: Path) -> None:
    folder = argument_file.parent
    record = {"src": "Who?", "response": ["Nobody.", "The pilot."], "sort": [0, 1]}
    (folder / "pairs.jsonl").write_text(json.dumps(record))
    arguments = {
        name: json.loads(argument_file.read_text())[name] for name in ("model_name_or_path", "output_dir")
    }
    more = {"train_dataset_path": str(folder / "pairs.jsonl"), "do_train": True, "max_seq_len": 64}
    (folder / "dpo.json").write_text(json.dumps(arguments | more | {"max_prompt_len": 32}))
    done = preview(str(folder / "dpo.json"), "--json")
    assert done.returncode == 0, done.stderr
    (example,) = json.loads(done.stdout)["examples"]
    texts: dict[str | None, str] = {}
    for token in example["tokens"]:
        texts[token["response"]] = texts.get(token["response"], "") + token["text"]
        assert token["learned"] == (token["response"] is not None)
    assert texts == {None: "<bos>Who?", "chosen": "The pilot.<eos>", "rejected": "Nobody.<eos>"}
    shown = preview(str(folder / "dpo.json"))
    assert [line.split()[2] for line in shown.stdout.splitlines()[3:]].count("chosen") > 1


def test_quantize_shows_what_goes_into_the_model_to_calibrate_with(argument_file: Path) -> None:
    arguments = json.loads(argument_file.read_text()) | {"do_train": False, "do_ptq": True}
    file = argument_file.parent / "ptq.json"
    file.write_text(json.dumps(arguments))
    (example,) = json.loads(preview(str(file), "--examples", "1", "--json").stdout)["examples"]
    assert "".join(token["text"] for token in example["tokens"]) == "<bos>Who?The pilot, at noon."
    assert example["length"] == len(example["tokens"])
    assert example["label_tokens"] == 0
    done = preview(str(file))
    assert done.stdout.startswith("train split, to calibrate with: nothing is learned, raw text")
    assert "masked" not in done.stdout

    write_records(argument_file.parent / "data" / "quant.json", [("When?", "Now.")])
    found = json.loads(preview(str(file), "--json").stdout)
    assert [example["location"] for example in found["examples"]] == ["quant.json line 1"]


def test_a_task_without_records_has_no_preview(argument_file: Path) -> None:
    done = preview(str(argument_file), "--task", "nonsense")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
