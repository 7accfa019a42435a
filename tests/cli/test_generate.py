"""`regatta generate`: prompts in, completions out."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.service import build_tiny_gemma
from trainer.tools.tiny_model import build_tiny_model


def regatta(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "160", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cli", "generate", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_gemma(tmp_path_factory.mktemp("models") / "tiny")


def write_lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read_lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


class TestPrompts:
    def test_json_lines_go_in_and_come_out_in_order_with_their_other_fields(
        self, model: Path, tmp_path: Path
    ):
        prompts = ["The harbour wakes before the town", "A", "Boats and\nbridges é🙂", "x"]
        records = [{"id": n, "prompt": prompt} for n, prompt in enumerate(prompts)]
        source = write_lines(tmp_path / "in.jsonl", *records)
        target = tmp_path / "out.jsonl"
        words = ("--max-new-tokens", "5", "--batch-size", "2")
        done = regatta(str(model), "--input", str(source), "--output", str(target), *words)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        found = read_lines(target.read_text(encoding="utf-8"))
        assert [{"id": row["id"], "prompt": row["prompt"]} for row in found] == records
        assert all(isinstance(row["completion"], str) for row in found)
        assert {row["finish_reason"] for row in found} <= {"stop", "length"}
        assert all(row["new_tokens"] == 5 for row in found if row["finish_reason"] == "length")
        alone = regatta(str(model), "--prompt", prompts[0], "--max-new-tokens", "5")
        assert alone.stdout == found[0]["completion"] + "\n"
        several = regatta(str(model), "--input", str(source), *words)
        assert read_lines(several.stdout) == found

    def test_options_reach_the_model(self, model: Path):
        words = (str(model), "--prompt", "The harbour", "--max-new-tokens", "8", "--json")
        greedy = json.loads(regatta(*words).stdout)
        drawn = regatta(*words, "--sample", "--temperature", "3", "--top-p", "0.99", "--seed", "4")
        again = regatta(*words, "--sample", "--temperature", "3", "--top-p", "0.99", "--seed", "4")
        assert json.loads(drawn.stdout) == json.loads(again.stdout) != greedy
        beams = regatta(*words, "--num-beams", "3", "--early-stopping", "never", "--length-penalty", "0.5")
        assert beams.returncode == 0, beams.stderr
        assert len(json.loads(beams.stdout)) == 1


def test_an_empty_prompt_without_a_beginning_token_is_a_wrong_request(tmp_path: Path):
    bloom = build_tiny_model("bloom", tmp_path / "bloom", hidden_size=16, num_attention_heads=2)
    done = regatta(str(bloom), "--prompt", "a", "--prompt", "")
    assert done.returncode == 2
    assert "prompt[2]" in done.stderr
    assert "is empty" in done.stderr


def test_a_prompt_beyond_the_positions_of_the_model_is_a_warning(tmp_path: Path):
    sizes: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 8}
    gemma = build_tiny_model("gemma", tmp_path / "gemma", **sizes)
    done = regatta(str(gemma), "--prompt", "a", "--prompt", "boats and bridges" * 3, "--max-new-tokens", "1")
    assert done.returncode == 0
    assert "warning: 1 of 2 prompts may go beyond the 8 tokens" in done.stderr


class TestRefusals:
    """All of them come before a model is loaded, so the directory need not hold one."""

    def test_wrong_lines_are_named_by_number(self, tmp_path: Path):
        source = tmp_path / "in.jsonl"
        source.write_text('{"prompt": "a"}\n\n{"text": "b"}\nnot json\n{"prompt": 3}\n')
        done = regatta("no-model", "--input", str(source))
        assert done.returncode == 2
        assert "has 3 wrong lines" in done.stderr
        assert all(f"in.jsonl[{number}]" in done.stderr for number in (3, 4, 5))

    def test_one_wrong_line_is_one(self, tmp_path: Path):
        done = regatta("no-model", "--input", str(write_lines(tmp_path / "in.jsonl", 3)))
        assert "has 1 wrong line:" in done.stderr

    def test_options_out_of_range_are_all_named(self):
        words = ("--sample", "--top-p", "2", "--batch-size", "0", "--max-new-tokens", "0")
        done = regatta("no-model", "--prompt", "a", *words)
        assert done.returncode == 2
        assert all(option in done.stderr for option in ("--top-p", "--batch-size", "--max-new-tokens"))
        assert "Traceback" not in done.stderr

    def test_options_that_exclude_each_other_are_named_as_they_are_given(self):
        done = regatta("no-model", "--prompt", "a", "--num-beams", "3", "--sample")
        assert done.returncode == 2
        assert "got 3 together with --sample" in done.stderr
        assert "do_sample" not in done.stderr
        assert "num_beams" not in done.stderr

    def test_either_a_prompt_or_a_file(self, tmp_path: Path):
        source = write_lines(tmp_path / "in.jsonl", {"prompt": "a"})
        for words in ((), ("--prompt", "a", "--input", str(source))):
            done = regatta("no-model", *words)
            assert done.returncode == 2
            assert "one of the two" in done.stderr

    @pytest.mark.parametrize("content", ["", "\n\n"])
    def test_a_file_without_prompts(self, tmp_path: Path, content: str):
        (tmp_path / "in.jsonl").write_text(content)
        done = regatta("no-model", "--input", str(tmp_path / "in.jsonl"))
        assert done.returncode == 2
        assert "has no prompts" in done.stderr

    def test_a_place_that_is_not_there(self, tmp_path: Path):
        missing = tmp_path / "missing" / "x.jsonl"
        assert "No such file" in regatta("no-model", "--input", str(missing)).stderr
        done = regatta("no-model", "--prompt", "a", "--output", str(missing))
        assert done.returncode == 2
        assert "there is no folder" in done.stderr.replace("\n", " ")

    def test_a_directory_without_a_model(self, tmp_path: Path):
        done = regatta(str(tmp_path), "--prompt", "a")
        assert done.returncode == 3
        assert "config.json" in done.stderr
        assert "is not there" in done.stderr


def test_an_exported_graph_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "model.pdiparams").touch()
    done = regatta(str(tmp_path), "--prompt", "x")
    assert done.returncode == 2
    assert "holds a graph that was exported" in done.stderr
    assert "Name the model that it was made of" in done.stderr
