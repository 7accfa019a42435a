from pathlib import Path

import pytest

from tests.trainer.checkpoint.processes import write_directory
from trainer.checkpoint.find import Checkpoint, find_checkpoint, list_checkpoints


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output directory with checkpoints 9, 20 and 100, and other things of similar names."""

    def write(directory: Path) -> None:
        (directory / "trainer_state.json").write_text("{}")
        (directory / "optimizer.safetensors").write_bytes(b"12345678")

    for step in (20, 100, 9):
        write_directory(tmp_path / f"checkpoint-{step}", write)
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / "checkpoint-300.old").mkdir()
    (tmp_path / "checkpoint-400").write_text("a file")
    (tmp_path / ".checkpoint-500.partial").mkdir()
    return tmp_path


def test_checkpoints_are_listed_by_step_and_not_by_name(output: Path) -> None:
    assert [checkpoint.step for checkpoint in list_checkpoints(output)] == [9, 20, 100]
    assert list_checkpoints(output)[0].name == "checkpoint-9"


def test_the_newest_whole_checkpoint_is_found(output: Path) -> None:
    assert find_checkpoint(output) == Checkpoint(output / "checkpoint-100", 100)


def test_broken_ones_are_passed_over_and_told(output: Path) -> None:
    (output / "checkpoint-100" / "trainer_state.json").unlink()
    (output / "checkpoint-20" / "optimizer.safetensors").write_bytes(b"")
    told: list[tuple[str, str]] = []
    found = find_checkpoint(output, lambda checkpoint, damage: told.append((checkpoint.name, damage)))
    assert found is not None
    assert found.step == 9
    assert told == [
        ("checkpoint-100", "it has no trainer_state.json"),
        ("checkpoint-20", "optimizer.safetensors has 0 bytes where 8 were written"),
    ]


def test_no_folder_and_an_empty_folder_have_no_checkpoint(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path) is None
    assert find_checkpoint(tmp_path / "nowhere") is None
