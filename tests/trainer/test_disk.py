"""A result that cannot be written ends a task with one sentence, whichever task it is."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training import PAIRS, read_events, write_records
from trainer.files import WriteError, atomic_file, refuse_cut_off
from trainer.tools.tiny_model import build_tiny_model

#: No file may be larger, which is how the system refuses to write without a disk that is full.
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
from trainer.run import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "gemma"
    return build_tiny_model("gemma", folder, vocab_size=1_024, hidden_size=64, num_hidden_layers=1)


@pytest.mark.parametrize(
    ("task", "more", "words"),
    [
        ("quantize", {"do_ptq": True, "ptq_step": 1}, "cannot be written to (File too large)"),
        ("export", {}, "model.pdiparams"),
    ],
)
def test_a_task_whose_result_does_not_fit_says_so(
    task: str, more: dict[str, Any], words: str, model: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    arguments = {"model_name_or_path": str(model), "output_dir": str(output), **more}
    if task == "quantize":
        write_records(tmp_path / "data" / "train.json", PAIRS)
        arguments["dataset_name_or_path"] = str(tmp_path / "data")
    config = tmp_path / "config.json"
    config.write_text(json.dumps(arguments))
    given = {**os.environ, "OMP_NUM_THREADS": "1", "REGATTA_EVENTS": str(tmp_path / "events.jsonl")}
    command = [sys.executable, "-c", LIMITED, task, str(config)]
    done = subprocess.run(command, env=given, timeout=150, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    (*_, error) = read_events(tmp_path / "events.jsonl")
    assert (error["type"], error["kind"]) == ("error", "disk")
    assert str(output) in error["msg"]
    assert words in error["msg"]
    assert "output_dir" in error["msg"]
    assert error["msg"] in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_file_that_cannot_be_written_is_named_and_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(WriteError) as raised, atomic_file(tmp_path / "a.json"):
        raise OSError(28, "No space left on device")
    assert raised.value.filename == str(tmp_path / "a.json")
    assert raised.value.folder == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_cut_off_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"12345")
    refuse_cut_off(path, 5)
    with pytest.raises(WriteError, match="No space left"):
        refuse_cut_off(path, 6)
