"""The commands of the guide's part on data sets run as they stand."""

import gzip
import json
import os
import re
import subprocess
from pathlib import Path

import httpx

from tests.api.datasets.conftest import sft_lines
from tests.service import build_tiny_gemma

GUIDE = Path(__file__).parents[3] / "docs" / "api.md"


def commands() -> list[str]:
    part = GUIDE.read_text().partition("\n## Data sets\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    return block.splitlines()


def test_the_guide_uploads_shows_counts_and_deletes(
    client: httpx.Client, roots: Path, tmp_path: Path
) -> None:
    build_tiny_gemma(roots / "models" / "tiny-gemma")
    (tmp_path / "train.json").write_bytes(sft_lines(20))
    (tmp_path / "dev.json.gz").write_bytes(gzip.compress(sft_lines(5)))
    (tmp_path / "more.json").write_bytes(sft_lines(30, "other"))
    answers: list[dict] = []
    for command in commands():
        command = command.replace("localhost:8000", client.base_url.netloc.decode())
        command = command.replace("<id>", answers[0]["id"] if answers else "")
        done = subprocess.run(
            ["/bin/bash", "-euc", command],
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
            check=True,
            env=os.environ,
        )
        answers.append(json.loads(done.stdout) if done.stdout else {})
    made, more, checked, found, records, tokens, *_ = answers
    assert {split: about["examples"] for split, about in made["splits"].items()} == {"train": 20, "dev": 5}
    assert (more["name"], more["splits"]["train"]["examples"], checked["kind"]) == ("more-berths", 30, "sft")
    assert found["items"] == [made]
    assert [item["line"] for item in records["items"]] == [2, 3]
    assert tokens["counted"] == 20
    assert (tmp_path / "copy.json").read_bytes() == sft_lines(20)
    assert client.get("/datasets").json()["items"] == [more]
