"""Pieces that are held by one or several processes, to files and back; one process plays them all."""

import json
from pathlib import Path

import numpy as np
import pytest

from trainer.checkpoint.pieces import Piece, TensorFiles
from trainer.checkpoint.plan import Holdings, Plan, make_plan
from trainer.checkpoint.regions import Region, as_slices, whole
from trainer.checkpoint.snapshot import Snapshot, uncopied
from trainer.checkpoint.tensor_files import TensorReader, make_files, write_pieces
from trainer.config.problems import DataError
from trainer.models.safetensors_file import SafetensorsFile, TensorHeader, write_safetensors

Tensors = dict[str, np.ndarray]
DTYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16"}


@pytest.fixture
def tensors() -> Tensors:
    """Matrices and vectors of three dtypes; bfloat16 as its bits."""
    generator = np.random.default_rng(0)
    return {
        "layers.0.weight": generator.standard_normal((12, 8)).astype(np.float32),
        "layers.10.weight": generator.standard_normal((6, 4)).astype(np.float16),
        "layers.2.weight": generator.integers(0, 2**16, (9, 4)).astype(np.uint16),
        "norm.weight": generator.standard_normal(7).astype(np.float32),
    }


def header(array: np.ndarray) -> TensorHeader:
    return TensorHeader(DTYPES[array.dtype.name], array.shape)


def piece(tensors: Tensors, name: str, region: Region | None = None, *, transposed: bool = False) -> Piece:
    array = tensors[name]
    region = region or whole(array.shape)
    cut = array[as_slices(region)]
    held = np.ascontiguousarray(cut.T if transposed else cut)
    return Piece(name, header(array), region, transposed, lambda: held)


def files(*pieces: Piece, max_bytes: int | None = None) -> list[TensorFiles]:
    return [TensorFiles("model", "pt", pieces, max_bytes)]


def plan_of(*ranks: list[TensorFiles]) -> Plan:
    return make_plan([Holdings.of(held) for held in ranks])


def write(directory: Path, *ranks: list[TensorFiles]) -> Plan:
    plan = plan_of(*ranks)
    directory.mkdir()
    make_files(directory, plan)
    for rank, held in enumerate(ranks):
        write_pieces(directory, uncopied(plan.pieces_of(rank, held)))
    return plan


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def cut(tensors: Tensors, ranks: int) -> list[list[Piece]]:
    """Every tensor cut in `ranks` parts: matrices into columns or rows by turns, and turned or not."""
    held: list[list[Piece]] = [[] for _ in range(ranks)]
    for number, (name, array) in enumerate(tensors.items()):
        axis = number % array.ndim
        edges = [array.shape[axis] * rank // ranks for rank in range(ranks + 1)]
        for rank in range(ranks):
            region = list(whole(array.shape))
            region[axis] = (edges[rank], edges[rank + 1])
            held[rank].append(piece(tensors, name, tuple(region), transposed=number == 0))
    return held


def test_a_file_has_the_bytes_that_a_sequential_writer_gives_it(tmp_path: Path, tensors: Tensors) -> None:
    headers = {name: header(array) for name, array in tensors.items()}
    write_safetensors(tmp_path / "expected", headers, tensors.__getitem__, {"format": "pt"})
    write(tmp_path / "found", files(*(piece(tensors, name) for name in tensors)))
    assert contents(tmp_path / "found") == {"model.safetensors": (tmp_path / "expected").read_bytes()}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("max_bytes", [None, 200])
def test_any_way_to_cut_the_tensors_gives_the_same_files(
    tmp_path: Path, tensors: Tensors, ranks: int, max_bytes: int | None
) -> None:
    write(tmp_path / "one", files(*(piece(tensors, name) for name in tensors), max_bytes=max_bytes))
    held = [files(*pieces, max_bytes=max_bytes) for pieces in cut(tensors, ranks)]
    write(tmp_path / "many", *held)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_large_sets_become_numbered_files_with_an_index(tmp_path: Path, tensors: Tensors) -> None:
    write(tmp_path / "d", files(*(piece(tensors, name) for name in reversed(tensors)), max_bytes=450))
    assert sorted(contents(tmp_path / "d")) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    assert json.loads((tmp_path / "d" / "model.safetensors.index.json").read_text()) == {
        "metadata": {"total_size": sum(array.nbytes for array in tensors.values())},
        "weight_map": {
            "layers.0.weight": "model-00001-of-00002.safetensors",
            "layers.2.weight": "model-00002-of-00002.safetensors",
            "layers.10.weight": "model-00002-of-00002.safetensors",
            "norm.weight": "model-00002-of-00002.safetensors",
        },
    }


def test_nothing_to_store_is_a_file_without_tensors(tmp_path: Path) -> None:
    write(tmp_path / "d", files(), files())
    assert SafetensorsFile(tmp_path / "d" / "model.safetensors").headers == {}


def test_files_may_lie_in_a_folder(tmp_path: Path, tensors: Tensors) -> None:
    write(tmp_path / "d", [TensorFiles("reference/model", "pt", (piece(tensors, "norm.weight"),))])
    found = SafetensorsFile(tmp_path / "d" / "reference" / "model.safetensors")
    np.testing.assert_array_equal(found.read("norm.weight"), tensors["norm.weight"])


def test_what_several_processes_hold_is_written_by_one_of_them_and_dealt_out(tensors: Tensors) -> None:
    both = files(*(piece(tensors, name) for name in tensors))
    plan = plan_of(both, both)
    written = [[piece.name for _, piece in plan.pieces_of(rank, both)] for rank in (0, 1)]
    assert sorted(written[0] + written[1]) == sorted(tensors)
    assert written[0]
    assert written[1]


def test_a_rectangle_inside_of_another_one_is_not_written(tensors: Tensors) -> None:
    whole_tensor = files(piece(tensors, "layers.0.weight"))
    halves = files(
        piece(tensors, "layers.0.weight", ((0, 6), (0, 8))),
        piece(tensors, "layers.0.weight", ((6, 12), (0, 8))),
    )
    plan = plan_of(halves, whole_tensor)
    assert plan.pieces_of(0, halves) == []
    assert len(plan.pieces_of(1, whole_tensor)) == 1


def test_a_part_that_nobody_holds_is_an_error(tensors: Tensors) -> None:
    upper = files(piece(tensors, "layers.0.weight", ((0, 6), (0, 8))))
    lower = files(piece(tensors, "layers.0.weight", ((7, 12), (0, 8))))
    with pytest.raises(RuntimeError, match=r"layers\.0\.weight: no process holds \(\(6, 7\), \(0, 8\)\)"):
        plan_of(upper, lower)


def test_processes_that_differ_about_a_tensor_are_an_error(tensors: Tensors) -> None:
    other = {"norm.weight": tensors["norm.weight"].astype(np.float16)}
    with pytest.raises(RuntimeError, match=r"norm\.weight: process 1 holds"):
        plan_of(files(piece(tensors, "norm.weight")), files(piece(other, "norm.weight")))


def test_a_snapshot_keeps_what_was_there_and_uses_its_memory_again(tmp_path: Path, tensors: Tensors) -> None:
    array = tensors["norm.weight"]
    held = files(Piece("norm.weight", header(array), whole(array.shape), False, lambda: array))
    plan = plan_of(held)
    snapshot = Snapshot()
    copied = snapshot.take(plan.pieces_of(0, held))
    before = array.copy()
    array += 1
    np.testing.assert_array_equal(copied[0].disk_values(), before)
    again = snapshot.take(plan.pieces_of(0, held))
    assert again[0].values is copied[0].values
    np.testing.assert_array_equal(again[0].disk_values(), array)


@pytest.mark.parametrize("max_bytes", [None, 200])
def test_a_reader_gives_any_rectangle_in_float32(
    tmp_path: Path, tensors: Tensors, max_bytes: int | None
) -> None:
    write(tmp_path / "d", files(*(piece(tensors, name) for name in tensors), max_bytes=max_bytes))
    reader = TensorReader(tmp_path / "d", "model")
    assert set(reader.names) == set(tensors)
    tensors["layers.2.weight"] = (tensors["layers.2.weight"].astype(np.uint32) << 16).view(np.float32)
    for name, array in tensors.items():
        assert reader.shape(name) == array.shape
        for region in (whole(array.shape), tuple((1, size - 1) for size in array.shape)):
            np.testing.assert_array_equal(reader.read(name, region), array[as_slices(region)])


def test_a_missing_file_of_several_is_told(tmp_path: Path, tensors: Tensors) -> None:
    write(tmp_path / "d", files(*(piece(tensors, name) for name in tensors), max_bytes=450))
    (tmp_path / "d" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DataError, match=r"model-00002-of-00002\.safetensors cannot be read"):
        TensorReader(tmp_path / "d", "model")


def test_an_index_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../model.safetensors"}}')
    with pytest.raises(DataError, match="which is not a file name"):
        TensorReader(tmp_path, "model")
