from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from trainer.models.safetensors_file import SafetensorsFile, TensorHeader, write_safetensors

TENSORS = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.arange(5, dtype=np.float16),
    "empty": np.zeros((0, 4), np.float32),
    "c": np.array(2.5, dtype=np.float64),
}
NAMES = {"float64": "F64", "float32": "F32", "float16": "F16"}


def headers() -> dict[str, TensorHeader]:
    return {name: TensorHeader(NAMES[str(value.dtype)], value.shape) for name, value in TENSORS.items()}


def test_the_file_is_the_one_the_library_writes(tmp_path: Path):
    write_safetensors(tmp_path / "file", headers(), TENSORS.__getitem__, {"format": "pt"})
    assert (tmp_path / "file").read_bytes() == save(TENSORS, metadata={"format": "pt"})


def test_what_was_written_is_read(tmp_path: Path):
    write_safetensors(tmp_path / "file", headers(), TENSORS.__getitem__, {})
    file = SafetensorsFile(tmp_path / "file")
    assert file.headers == headers()
    for name, value in TENSORS.items():
        assert (file.read(name) == value).all()


def test_bfloat16_is_read_as_the_float32_it_stands_for(tmp_path: Path):
    bits = np.array([0x3F80, 0xC020, 0x7F80, 0x0001], np.uint16)
    write_safetensors(tmp_path / "file", {"x": TensorHeader("BF16", (4,))}, lambda _: bits, {})
    expected = np.array([1.0, -2.5, np.inf, 2.0**-133], np.float32)
    assert (SafetensorsFile(tmp_path / "file").read("x") == expected).all()


def test_a_tensor_comes_in_pieces_of_whole_rows(tmp_path: Path):
    write_safetensors(tmp_path / "file", headers(), TENSORS.__getitem__, {"format": "pt"})
    file = SafetensorsFile(tmp_path / "file")
    assert file.metadata == {"format": "pt"}
    for limit, rows in ((1, 1), (12, 1), (23, 1), (24, 2), (1000, 2)):
        pieces = list(file.pieces("b", limit))
        assert [start for start, _ in pieces] == list(range(0, 2, rows))
        assert (np.concatenate([piece for _, piece in pieces]) == TENSORS["b"]).all()
    assert [piece.tolist() for _, piece in file.pieces("a", 4)] == [[0, 1], [2, 3], [4]]
    assert list(file.pieces("empty", 4)) == []


def test_pieces_of_bfloat16_are_its_bits(tmp_path: Path):
    bits = np.array([0x3F80, 0xC020], np.uint16)
    write_safetensors(tmp_path / "file", {"x": TensorHeader("BF16", (2,))}, lambda _: bits, {})
    ((_, piece),) = SafetensorsFile(tmp_path / "file").pieces("x", 100)
    assert (piece.dtype, piece.tolist()) == (np.uint16, bits.tolist())


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyError):
        write_safetensors(path, headers(), {}.__getitem__, {})
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_tensor_of_another_size_than_its_header_says_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="x: got 8 bytes, the header says 12"):
        write_safetensors(
            tmp_path / "f", {"x": TensorHeader("F32", (3,))}, lambda _: np.zeros(2, np.float32), {}
        )
