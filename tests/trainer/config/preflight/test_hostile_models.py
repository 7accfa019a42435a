"""Model folders made, or broken, so that reading them would lead elsewhere, never end or fill the memory."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.config import FinetuneConfig, Problem
from trainer.config.preflight import Roots, check_job

Config = Callable[..., FinetuneConfig]
GOOD = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def only_problem(config: FinetuneConfig, roots: Roots) -> Problem:
    (problem,) = check_job(config, roots).problems
    assert problem.hint
    return problem


def write_header(path: Path, header: bytes | dict[str, Any], data: bytes = b"1234") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize(
    "header",
    [
        {"a": GOOD | {"data_offsets": ["0", "4"]}},
        {"a": GOOD | {"data_offsets": ["0", 4]}},
        {"a": GOOD | {"data_offsets": [0, 4.0]}},
        {"a": GOOD | {"data_offsets": [True, 4]}},
        {"a": GOOD | {"data_offsets": [-4, 4]}},
        {"a": GOOD | {"data_offsets": [4, 0]}},
        {"a": GOOD | {"data_offsets": [4]}},
        {"a": GOOD | {"shape": [-1, -1]}},
        {"a": GOOD | {"shape": [10**9, 10**9]}},
        {"a": GOOD | {"shape": [[1]]}},
        {"a": GOOD | {"dtype": "F64"}},
        {"a": GOOD | {"dtype": 7}},
        {"a": GOOD, "b": GOOD},
        {"a": GOOD | {"shape": [0], "data_offsets": [0, 0]}},
        {"a": [0, 4]},
        {"a": None},
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [NaN, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-Infinity, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-' + b"9" * 400 + b", 4]}}",
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, ' + b"9" * 5000 + b"]}}",
        b"[" * 100_000,
    ],
)
def test_tensors_must_fill_their_file(
    config: Config, roots: Roots, model: Path, header: bytes | dict[str, Any]
) -> None:
    write_header(model / "model.safetensors", header)
    assert only_problem(config(), roots).msg == "model.safetensors is not a whole safetensors file"


def test_tensors_without_numbers_and_of_unknown_dtypes_are_fine(
    config: Config, roots: Roots, model: Path
) -> None:
    none = {"dtype": "F32", "shape": [0, 3], "data_offsets": [2, 2]}
    new = {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}
    rest = {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]}
    write_header(model / "model.safetensors", {"rest": rest, "none": none, "new": new})
    checked = check_job(config(), roots)
    assert checked.problems == ()
    assert checked.statistics["model"]["tensors"] == 3
    assert checked.statistics["model"]["bytes"] == 4


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ({"num_hidden_layers": 10**9}, "1000000000 layers, but the weights have 2 tensors"),
        ({"vocab_size": 10**6, "hidden_size": 10**6}, "but the weights hold 10 numbers"),
        ({"hidden_size": -1}, "hidden_size: got -1, expected a whole number of at least 1"),
        ({"vocab_size": "many"}, 'vocab_size: got "many"'),
        ({"num_hidden_layers": True}, "num_hidden_layers: got true"),
        ({"num_hidden_layers": 1.5}, "num_hidden_layers: got 1.5"),
    ],
)
def test_sizes_that_the_weights_cannot_have_are_refused(
    config: Config, roots: Roots, model: Path, content: dict[str, Any], part: str
) -> None:
    (model / "config.json").write_text(json.dumps({"model_type": "gemma"} | content))
    problem = only_problem(config(), roots)
    assert problem.loc == ("model_name_or_path", "config.json")
    assert part in problem.msg


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_config_is_plain_utf_8_as_every_tool_reads_it(
    config: Config, roots: Roots, model: Path, encoding: str
) -> None:
    (model / "config.json").write_text('{"model_type": "gemma"}', encoding=encoding)
    assert "config.json is not JSON" in only_problem(config(), roots).msg


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("generation_config.json", "model_name_or_path"),
        ("special_tokens_map.json", "tokenizer_name_or_path"),
        ("tokenizer_config.json", "tokenizer_name_or_path"),
        ("added_tokens.json", "tokenizer_name_or_path"),
        ("merges.txt", "tokenizer_name_or_path"),
    ],
)
def test_what_is_copied_beside_the_result_must_lie_in_the_roots_and_be_a_file(
    config: Config, roots: Roots, model: Path, tmp_path: Path, name: str, argument: str
) -> None:
    secret = tmp_path / "secret"
    (model / name).symlink_to(secret)  # what it points to may come later
    problem = only_problem(config(), roots)
    assert problem.loc[0] == argument
    assert f"{name} is a link to a place outside the allowed folders" in problem.msg
    (model / name).unlink()
    os.mkfifo(model / name)
    assert f"{name} is no plain file" in only_problem(config(), roots).msg


def test_a_tokenizer_of_absurd_size_is_not_read(config: Config, roots: Roots, model: Path) -> None:
    os.truncate(model / "tokenizer.json", 200 * 1024 * 1024)
    assert "tokenizer.json is larger than 100 MiB" in only_problem(config(), roots).msg
