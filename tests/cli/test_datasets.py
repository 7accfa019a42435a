"""`regatta datasets`, against a real server."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.datasets import files_to_send
from cli.errors import CliError
from store.settings import Settings
from tests.api.datasets.conftest import sft_lines
from tests.api.parts import serving
from tests.service import build_tiny_gemma

GUIDE = Path(__file__).parents[2] / "docs" / "cli.md"
Regatta = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path, migrated_sqlite: Path) -> Iterator[dict[str, str]]:
    """Of a command that finds a server."""
    shutil.copy(migrated_sqlite, tmp_path / "regatta.db")
    settings = Settings(
        data_dir=tmp_path / "server",
        database_url=f"sqlite:///{tmp_path / 'regatta.db'}",
        model_roots=(tmp_path / "models",),
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with serving(settings) as server:
        yield os.environ | {"REGATTA_URL": server.url, "PATH": path, "NO_COLOR": "1"}


@pytest.fixture
def regatta(environment: dict[str, str], tmp_path: Path) -> Regatta:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cli", "datasets", *words]
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        root = str(Path(__file__).parents[2])
        return subprocess.run(
            command,
            cwd=work,
            env=environment | {"PYTHONPATH": root},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_the_commands_of_the_guide_run(environment: dict[str, str], tmp_path: Path) -> None:
    build_tiny_gemma(tmp_path / "models" / "tiny-gemma")
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    for name in ("train.json", "data/train.json"):
        (work / name).write_bytes(sft_lines(20))
    (work / "dev.json.gz").write_bytes(gzip.compress(sft_lines(5)))
    part = GUIDE.read_text().partition("\n### Data sets\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    done = subprocess.run(
        ["/bin/bash", "-euc", block], cwd=work, env=environment, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    assert "sft: 20 train, 5 dev" in done.stderr
    assert "Valid: the server would accept these data." in done.stdout
    assert '{"src": "question 1", "tgt": "answer 1"}' in done.stdout
    assert re.search(r"Counted +20 of 20 examples", done.stdout)
    assert (work / "copy" / "train.json").read_bytes() == sft_lines(20)
    assert (work / "copy" / "dev.json").read_bytes() == sft_lines(5)


def test_the_same_content_gives_the_same_id(regatta: Regatta, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(sft_lines(9))
    first = regatta("upload", str(tmp_path / "a.jsonl"))
    again = regatta("upload", str(tmp_path / "a.jsonl"), "--name", "other", "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(again.stdout)["id"] == first.stdout.strip()
    assert len(json.loads(regatta("list", "--json").stdout)) == 1
    assert json.loads(regatta("show", first.stdout.strip(), "--json").stdout)["kind"] == "sft"


def test_what_is_wrong_is_a_table_and_exit_status_2(regatta: Regatta, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(sft_lines(2) + b'{"src": "q"}\n')
    done = regatta("upload", str(tmp_path / "a.jsonl"), "--split", "dev")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(r"dev\.a\.jsonl\[3\] +line 3: tgt is missing, found \"src\"", done.stderr)
    for words in (("upload", "nothing.json"), ("upload", "/dev/null"), ("upload", ".", "--split", "test")):
        done = regatta(*words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "Traceback" not in done.stderr


def test_a_download_never_writes_over_anything(regatta: Regatta, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(sft_lines(2))
    made = regatta("upload", str(tmp_path / "a.json")).stdout.strip()
    done = regatta("download", made, str(tmp_path))
    assert (done.returncode, (tmp_path / "train.json").exists()) == (1, False)
    assert "is not an empty directory" in done.stderr
    unknown = regatta("download", "unknown", str(tmp_path / "new"))
    assert (unknown.returncode, (tmp_path / "new").exists()) == (1, False)


def test_files_belong_to_the_split_they_are_called_after(tmp_path: Path) -> None:
    for name in ("dev.jsonl.gz", "quant.json", "other.json", "folder/train/b.json", "folder/dev.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    names = [tmp_path / name for name in ("dev.jsonl.gz", "quant.json", "other.json", "folder")]
    assert [(split, path.name) for split, path in files_to_send(names, None)] == [
        ("dev", "dev.jsonl.gz"),
        ("quant", "quant.json"),
        ("train", "other.json"),
        ("train", "b.json"),
        ("dev", "dev.json"),
    ]
    assert {split for split, _ in files_to_send(names, "dev")} == {"dev"}
    with pytest.raises(CliError, match="no file and no folder"):
        files_to_send([tmp_path / "absent"], None)
