"""Token lengths of records."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import build_tiny_gemma
from trainer import load_tokenizer
from trainer.config.data_kinds import SAMPLES
from trainer.token_lengths import token_lengths


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_tiny_gemma(tmp_path_factory.mktemp("models") / "tiny"))


def count(model: str, text: str) -> int:
    return len(load_tokenizer(model).encode(text, add_special_tokens=False))


def test_a_conversation_has_its_texts_and_what_surrounds_them(model: str) -> None:
    counted = token_lengths(model, "sft", [SAMPLES["sft"].encode()])
    expected = 1 + count(model, "question") + count(model, "answer") + 1
    assert (counted["total"], counted["counted"], counted["template"]) == (expected, 1, None)


def test_a_preference_has_both_responses(model: str) -> None:
    counted = token_lengths(model, "dpo", [SAMPLES["dpo"].encode()])
    texts = sum(count(model, text) for text in ("question", "better", "worse"))
    assert counted["total"] == 1 + texts + 2
    assert token_lengths(model, "kto", [SAMPLES["kto"].encode()])["total"] < counted["total"]


def test_percentiles_and_shares_are_of_the_counted_lines(model: str) -> None:
    lines = [json.dumps({"src": "q", "tgt": "a " * n}).encode() for n in range(1, 101)]
    every = token_lengths(model, "sft", lines)
    second = token_lengths(model, "sft", lines, every=2, max_length=1)
    assert (every["counted"], second["counted"], second["over_max_length"]) == (100, 50, 1.0)
    half = token_lengths(model, "sft", lines, max_length=every["percentiles"]["50"])
    assert half["over_max_length"] == 0.5
    assert every["percentiles"]["99"] <= every["max"]
    assert sum(entry["examples"] for entry in every["histogram"]) == 100


def test_the_program_reads_standard_input_and_says_what_is_wrong(model: str) -> None:
    def run(lines: bytes) -> tuple[int, dict]:
        command = [sys.executable, "-m", "trainer.token_lengths", model, "--kind", "sft"]
        done = subprocess.run(command, input=lines, capture_output=True, timeout=60, check=False)
        return done.returncode, json.loads(done.stdout)

    assert run(SAMPLES["sft"].encode())[1]["counted"] == 1
    code, answer = run(b"{}")
    assert (code, answer["problems"][0]["msg"]) == (3, "line 1: src is missing, found no key at all")


def test_a_folder_without_a_tokenizer_is_a_problem(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainer.token_lengths", str(tmp_path), "--kind", "sft"]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=60, check=False)
    assert json.loads(done.stdout)["problems"]
