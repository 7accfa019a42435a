import numpy as np
import pytest

from trainer.data.batches import Collator, epoch_order, epoch_steps
from trainer.data.sft import IGNORE, Example


def example(*ids: int) -> Example:
    return Example(np.array(ids, dtype=np.int32), np.array(ids, dtype=np.int32) + 1, cut=False, lost_turns=0)


@pytest.mark.parametrize(
    ("side", "ids", "mask"),
    [
        ("left", [[5, 6, 7], [0, 0, 8]], [[1, 1, 1], [0, 0, 1]]),
        ("right", [[5, 6, 7], [8, 0, 0]], [[1, 1, 1], [1, 0, 0]]),
    ],
)
def test_a_batch_is_padded_to_its_longest_example_on_the_given_side(
    side: str, ids: list[list[int]], mask: list[list[int]]
) -> None:
    batch = Collator(pad_id=0, side=side)([example(5, 6, 7), example(8)])
    assert batch.input_ids.tolist() == ids
    assert batch.documents.tolist() == mask
    assert (batch.labels[batch.documents == 0] == IGNORE).all()
    assert (batch.examples, batch.tokens, batch.label_tokens) == (2, 4, 4)


def test_width_can_be_fixed_or_rounded_up() -> None:
    assert Collator(0, "left", length=8)([example(1, 2, 3)]).input_ids.shape == (1, 8)
    assert Collator(0, "left", multiple_of=4)([example(1, 2, 3, 4, 5)]).input_ids.shape == (1, 8)


def test_a_real_eos_stays_a_label_where_padding_uses_the_same_id() -> None:
    batch = Collator(pad_id=1, side="right")([example(5, 0), example(7)])
    assert batch.labels.tolist() == [[6, 1], [8, IGNORE]]


def test_the_order_depends_on_seed_and_epoch_alone_and_visits_every_example_once() -> None:
    order = epoch_order(50, seed=3, epoch=1)
    assert sorted(order) == list(range(50))
    assert order.tolist() == epoch_order(50, seed=3, epoch=1).tolist()
    assert order.tolist() != epoch_order(50, seed=3, epoch=2).tolist()
    assert order.tolist() != epoch_order(50, seed=4, epoch=1).tolist()


def steps(count: int, consumed: int, batch: int, accumulation: int, drop_last: bool) -> list[list[list[int]]]:
    rows = [example(number) for number in range(consumed, count)]
    found = list(epoch_steps(rows, batch, accumulation, drop_last))
    assert [step.last for step in found] == [*[False] * (len(found) - 1), True]
    return [[[int(row.parts[0].input_ids[0]) for row in part] for part in step.parts] for step in found]


def test_micro_batches_left_at_the_end_of_an_epoch_make_a_step_of_their_own() -> None:
    assert steps(7, 0, 2, 2, False) == [[[0, 1], [2, 3]], [[4, 5], [6]]]
    assert steps(9, 0, 2, 2, False)[-1] == [[8]]


def test_drop_last_drops_the_last_smaller_batch_and_nothing_else() -> None:
    assert steps(7, 0, 2, 2, True) == [[[0, 1], [2, 3]], [[4, 5]]]


@pytest.mark.parametrize("consumed", [0, 4, 8])
def test_an_epoch_taken_up_in_the_middle_gives_the_steps_that_were_left(consumed: int) -> None:
    assert steps(11, consumed, 2, 2, False) == steps(11, 0, 2, 2, False)[consumed // 4 :]
