from pathlib import Path

import pytest

from trainer.checkpoint.find import Checkpoint
from trainer.checkpoint.rotation import surplus


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(Path(f"checkpoint-{step}"), step)


@pytest.mark.parametrize(
    ("steps", "limit", "best", "removed"),
    [
        ([1, 2, 3], None, None, []),
        ([1, 2, 3], 0, None, []),
        ([1, 2, 3], 5, None, []),
        ([1, 2, 3], 3, None, []),
        ([1, 2, 3], 2, None, [1]),
        ([1, 2, 3], 1, None, [1, 2]),
        # The best one is kept as if it were the second newest.
        ([1, 2, 3], 2, 1, [2]),
        ([1, 2, 3, 4], 3, 1, [2]),
        ([1, 2, 3], 2, 3, [1]),
        # With a limit of 1 the best and the last are both kept.
        ([1, 2, 3], 1, 2, [1]),
        ([1, 2, 3], 1, 3, [1, 2]),
        # 100 is newer than 20, whatever their names and times say.
        ([100, 9, 20], 1, None, [9, 20]),
    ],
)
def test_what_goes(steps: list[int], limit: int | None, best: int | None, removed: list[int]) -> None:
    found = surplus(
        [checkpoint(step) for step in steps],
        limit,
        last=checkpoint(max(steps)),
        best=None if best is None else f"checkpoint-{best}",
    )
    assert [old.step for old in found] == removed


def test_later_checkpoints_of_another_run_are_left_alone() -> None:
    found = surplus([checkpoint(step) for step in (2, 4, 50)], 1, last=checkpoint(4), best=None)
    assert [old.step for old in found] == [2]


def test_a_best_one_that_is_no_longer_there_takes_no_place() -> None:
    found = surplus([checkpoint(step) for step in (2, 3, 4)], 2, last=checkpoint(4), best="checkpoint-1")
    assert [old.step for old in found] == [2]
