"""The commands of the docs about quantizing and exporting run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 170.0
RAN = ("quantization_report.json", "model.safetensors", "tokenizer.model")


def block(page: str, language: str, word: str) -> str:
    """The one block of a page in a language that holds `word`."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    (found,) = [code for code in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) if word in code]
    return found


@pytest.fixture
def run(tmp_path: Path):
    """Run a program in a new folder that has what a checkout has, with a home of its own."""
    for name in ("cli", "trainer"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    binaries = Path(sys.executable).parent
    environment = os.environ | {"HOME": str(tmp_path), "PATH": f"{binaries}:{os.environ['PATH']}"}

    def program(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return program


@pytest.mark.timeout(TIMEOUT_S * 2)
def test_from_a_tiny_model_to_a_quantized_one_and_a_graph(run, tmp_path: Path) -> None:
    said = run("bash", "-euc", block("docs/cli.md", "sh", "train quantize"))
    assert said.count("evaluation after step") == 4
    for folder in ("gptq", "a8w8"):
        assert all((tmp_path / folder / name).is_file() for name in RAN)
    check = "\nassert logits.shape[:2] == [1, len(ids)], logits.shape\n"
    run(sys.executable, "-c", block("docs/cli.md", "python", "paddle.jit.load") + check)
