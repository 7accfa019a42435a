import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.batches import Collator
from trainer.data.packing import GREEDY_BUFFER, pack, padding_share
from trainer.data.sft import IGNORE, Example


def example(length: int, first: int = 0) -> Example:
    ids = np.arange(first, first + length, dtype=np.int32)
    return Example(ids, ids + 1, cut=False, lost_turns=0)


def lengths(sizes: list[int], max_length: int, greedy: bool) -> list[list[int]]:
    rows = pack([example(size) for size in sizes], max_length, greedy=greedy)
    return [[part.length for part in row.parts] for row in rows]


def test_plain_packing_opens_a_row_where_the_next_example_does_not_fit() -> None:
    assert lengths([4, 5, 3, 7, 1, 2], 10, greedy=False) == [[4, 5], [3, 7], [1, 2]]


def test_greedy_packing_puts_each_example_into_the_open_row_with_the_most_room() -> None:
    assert lengths([4, 7, 5, 3, 6, 1], 10, greedy=True) == [[4, 5], [7, 3], [6, 1]]


def test_greedy_packing_looks_at_a_buffer_of_examples_at_a_time() -> None:
    sizes = [6] * GREEDY_BUFFER + [4]
    assert lengths(sizes, 10, greedy=True) == [[6]] * GREEDY_BUFFER + [[4]]
    assert lengths([*sizes[1:]], 10, greedy=True)[0] == [6, 4]


@given(st.lists(st.integers(1, 20), max_size=60), st.booleans())
def test_rows_are_never_too_long_and_every_example_is_in_one_of_them(sizes: list[int], greedy: bool) -> None:
    rows = lengths(sizes, 20, greedy)
    assert all(0 < sum(row) <= 20 for row in rows)
    assert sorted(size for row in rows for size in row) == sorted(sizes)
    if not greedy:
        assert [size for row in rows for size in row] == sizes


@pytest.mark.parametrize("side", ["left", "right"])
def test_documents_are_numbered_in_their_row_and_their_positions_begin_anew(side: str) -> None:
    rows = list(pack([example(2, 10), example(3, 20), example(4, 30)], 6, greedy=False))
    batch = Collator(0, side, length=6)(rows)
    place = slice(1, 6) if side == "left" else slice(0, 5)
    assert batch.input_ids[0, place].tolist() == [10, 11, 20, 21, 22]
    assert batch.labels[0, place].tolist() == [11, 12, 21, 22, 23]
    assert batch.documents[0, place].tolist() == [1, 1, 2, 2, 2]
    assert batch.position_ids[0, place].tolist() == [0, 1, 0, 1, 2]
    assert (batch.labels[batch.documents == 0] == IGNORE).all()
    assert (batch.rows, batch.examples, batch.tokens) == (2, 3, 9)


def test_padding_share_is_what_the_rows_leave_empty() -> None:
    rows = list(pack([example(4), example(6), example(5)], 10, greedy=False))
    assert padding_share(rows, 10) == 0.25
    assert padding_share([example(4), example(2)], None) == 0.25
