"""Bodies made to be awkward: as many faults as fit into one, names that cannot be sent back."""

import json
import os
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.problems import LONGEST_NAME, MOST_PROBLEMS
from tests.api.parts import places

JSON = {"content-type": "application/json"}
ANSWER_BYTES = 100_000


def members(names: list[str]) -> bytes:
    return b",".join(f'"{name}":1'.encode() for name in names)


CROWDS = {
    "a name thousands of times": b'{"config":{' + members(["a"] * 150_000) + b"}}",
    "thousands of names twice": b'{"config":{'
    + members(list(chain.from_iterable((f"{n}", f"{n}") for n in range(40_000))))
    + b"}}",
    "NaN below a long name": b'{"' + b"x" * 400_000 + b'":[' + b",".join([b"NaN"] * 140_000) + b"]}",
    "NaN far down": b'{"a":' + b"[" * 58 + b",".join([b"NaN"] * 200_000) + b"]" * 58 + b"}",
    "NUL characters": b'{"config":[' + b",".join([b'"\\u0000"'] * 110_000) + b"]}",
    "names with NUL": b'{"config":{' + members([f"\\u0000{n}" for n in range(50_000)]) + b"}}",
    "unknown members": json.dumps({f"k{n}": 1 for n in range(60_000)}).encode(),
    "bad labels": json.dumps({"labels": {f"k {n}": 1 for n in range(50_000)}}).encode(),
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_of_very_many_problems_the_first_are_told(refusing_client: httpx.Client, crowd: str) -> None:
    answer = refusing_client.post("/jobs", content=CROWDS[crowd], headers=JSON)
    assert 1 <= len(places(answer)) <= MOST_PROBLEMS
    assert len(answer.content) < ANSWER_BYTES
    assert len(answer.json()["errors"]) == 1 or "More than 100 problems" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"%s": 1}',
        b'{"task": "finetune", "config": {}, "resources": {"%s": 1}}',
        b'{"task": "finetune", "config": {}, "labels": {"%s": 1}}',
        b'{"%s": NaN}',
        b'{"%s\\u0000": 1}',
    ],
)
def test_a_name_that_fills_the_body_is_cut_in_the_answer(refusing_client: httpx.Client, body: bytes) -> None:
    answer = refusing_client.post("/jobs", content=body % (b"x" * 900_000), headers=JSON)
    parts = [part for place in places(answer) for part in place]
    assert max(map(len, map(str, parts))) <= LONGEST_NAME + 1
    assert len(answer.content) < ANSWER_BYTES


@pytest.mark.parametrize(
    "body",
    [
        b'{"\\ud800": NaN}',
        b'{"\\ud800": {"a": "\\u0000"}}',
        b'{"\\ud800": 1, "\\ud800": 2}',
        b'{"config": {"\\udfff": 1}}',
    ],
)
def test_half_of_a_surrogate_pair_in_a_name_is_told_in_a_form_that_can_be_sent(
    refusing_client: httpx.Client, body: bytes
) -> None:
    answer = refusing_client.post("/jobs", content=body, headers=JSON)
    assert places(answer)
    assert "\\\\ud" in answer.text


def test_an_object_that_is_dropped_for_a_second_one_is_not_taken_for_another(
    refusing_client: httpx.Client,
) -> None:
    dropped = ", ".join('"a": {"x": 1, "x": 2}' for _ in range(200))
    innocent = ", ".join(f'"b{n}": {{"y": {n}}}' for n in range(200))
    body = f'{{"config": {{{dropped}, "a": 1, {innocent}}}}}'
    answer = refusing_client.post("/jobs", content=body, headers=JSON)
    assert places(answer) == [("body", "config", "a")]


def test_odd_names_in_files_and_of_files_can_be_told(
    client: httpx.Client, config: dict[str, Any], roots: Path
) -> None:
    index = b'{"weight_map": {"a": "\\ud800"}}'
    (roots / "models" / "gemma" / "model.safetensors.index.json").write_bytes(index)
    data = roots / "data" / "odd" / "train"
    data.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(data) + b"/\xff.json")).write_text("broken\n")
    body = {"task": "finetune", "config": config | {"dataset_name_or_path": "odd"}}
    answer = client.post("/jobs", json=body)
    arguments = {place[2] for place in places(answer)}
    assert arguments == {"model_name_or_path", "dataset_name_or_path"}
