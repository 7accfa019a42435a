from dataclasses import dataclass

import numpy as np
import pytest

from trainer.checkpoint.regions import (
    Placed,
    Region,
    as_slices,
    flat_parts,
    overlap,
    place,
    region_shape,
    region_size,
    runs,
    whole,
)


@dataclass(frozen=True)
class Held:
    """As much of a weight as says where its numbers belong."""

    transposed: bool
    region: tuple[slice, ...]
    columns: tuple[int, int] | None = None

    def place(self, local: Region) -> Placed | None:
        return place(local, self.region, transposed=self.transposed, columns=self.columns)


@pytest.mark.parametrize(
    ("shape", "start", "stop", "regions"),
    [
        ((10,), 3, 7, [((3, 7),)]),
        ((4, 5), 0, 20, [((0, 4), (0, 5))]),
        ((4, 5), 6, 8, [((1, 2), (1, 3))]),
        ((4, 5), 5, 15, [((1, 3), (0, 5))]),
        ((4, 5), 3, 17, [((0, 1), (3, 5)), ((1, 3), (0, 5)), ((3, 4), (0, 2))]),
        ((4, 5), 3, 7, [((0, 1), (3, 5)), ((1, 2), (0, 2))]),
        ((4, 5), 5, 5, []),
    ],
)
def test_a_flat_range_is_at_most_three_rectangles(
    shape: tuple[int, ...], start: int, stop: int, regions: list[Region]
) -> None:
    assert [part.region for part in flat_parts(shape, start, stop)] == regions


@pytest.mark.parametrize("start", range(13))
def test_the_rectangles_of_a_flat_range_hold_its_numbers_in_its_order(start: int) -> None:
    matrix = np.arange(12).reshape(3, 4)
    for stop in range(start, 13):
        flat = matrix.reshape(-1)[start:stop]
        for part in flat_parts(matrix.shape, start, stop):
            cut = flat[part.start : part.stop].reshape(region_shape(part.region))
            np.testing.assert_array_equal(matrix[as_slices(part.region)], cut)
        assert sum(region_size(part.region) for part in flat_parts(matrix.shape, start, stop)) == len(flat)


@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 3, 4)])
def test_runs_are_the_numbers_of_a_rectangle_in_order(shape: tuple[int, ...]) -> None:
    tensor = np.arange(np.prod(shape)).reshape(shape)
    for region in (whole(shape), tuple((1, size) for size in shape), tuple((0, size - 1) for size in shape)):
        cut = tensor[as_slices(region)].reshape(-1)
        joined = np.empty_like(cut)
        for run in runs(shape, region):
            joined[run.start : run.stop] = tensor.reshape(-1)[run.first : run.first + run.stop - run.start]
        np.testing.assert_array_equal(joined, cut)


@pytest.mark.parametrize(
    ("region", "count"),
    [(((0, 3), (0, 4)), 1), (((1, 3), (0, 4)), 1), (((0, 3), (1, 3)), 3), (((1, 2), (1, 3)), 1)],
)
def test_rows_that_are_whole_make_one_run(region: Region, count: int) -> None:
    assert len(list(runs((3, 4), region))) == count


def test_nothing_has_no_runs() -> None:
    assert list(runs((3, 4), ((1, 1), (0, 4)))) == []


def test_a_weight_that_is_here_whole_lies_as_it_is() -> None:
    placed = Held(False, (slice(0, 6), slice(0, 4))).place(((1, 3), (0, 2)))
    assert placed == (((1, 3), (0, 2)), ((1, 3), (0, 2)))


def test_a_transposed_weight_is_turned() -> None:
    placed = Held(True, (slice(0, 4), slice(0, 6))).place(((1, 3), (0, 2)))
    assert placed == (((1, 3), (0, 2)), ((0, 2), (1, 3)))


def test_columns_of_a_fused_parameter_begin_at_zero_on_disk() -> None:
    weight = Held(True, (slice(0, 2), slice(0, 6)), columns=(4, 6))
    assert weight.place(whole((6, 8))) == (((0, 6), (4, 6)), ((0, 2), (0, 6)))
    assert weight.place(((2, 3), (3, 5))) == (((2, 3), (4, 5)), ((0, 1), (2, 3)))
    assert weight.place(((2, 3), (0, 4))) is None


def test_a_shard_begins_where_it_lies_on_disk() -> None:
    rows = Held(False, (slice(3, 6), slice(0, 4)))
    assert rows.place(whole((3, 4))) == (((0, 3), (0, 4)), ((3, 6), (0, 4)))
    inputs_of_a_linear = Held(True, (slice(0, 8), slice(3, 6)))
    assert inputs_of_a_linear.place(((1, 3), (2, 8))) == (((1, 3), (2, 8)), ((2, 8), (4, 6)))


def test_rows_that_pad_the_vocabulary_are_not_stored() -> None:
    last_of_ten_rows = Held(False, (slice(8, 10), slice(0, 4)))
    assert last_of_ten_rows.place(whole((4, 4))) == (((0, 2), (0, 4)), ((8, 10), (0, 4)))
    assert last_of_ten_rows.place(((2, 4), (0, 4))) is None
    nothing = Held(False, (slice(10, 10), slice(0, 4)))
    assert nothing.place(whole((4, 4))) is None


def test_a_bias_of_a_fused_shard_is_placed_along_its_only_axis() -> None:
    weight = Held(False, (slice(2, 4),), columns=(2, 4))
    assert weight.place(((0, 6),)) == (((2, 4),), ((2, 4),))
    assert weight.place(((3, 6),)) == (((3, 4),), ((3, 4),))


def test_the_overlap_of_two_rectangles() -> None:
    assert overlap(((0, 3), (0, 4)), ((2, 5), (1, 9))) == ((2, 3), (1, 4))
    assert overlap(((0, 3), (0, 4)), ((3, 5), (0, 4))) is None
