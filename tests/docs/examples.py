"""The commands and programs of the pages: found in them, sorted, and run on one service."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = ("sh", "bash", "python")
TIMEOUT_S = 240

QUICKSTART = "docs/quickstart.md"
PAGES = (QUICKSTART, "docs/api.md", "docs/cli.md", "docs/openai.md", "docs/webhooks.md", "docs/production.md")
"""Those whose blocks are run here, in this order."""

START = "regatta up --model-root ~/models --data-root ~/data"
"""The block that starts the service on which all others run."""

ELSEWHERE = {
    ("README.md", "make demo"): "tests/end_to_end/test_demo.py",
    (QUICKSTART, "make demo"): "tests/end_to_end/test_demo.py",
    ("docs/api.md", "curl -s localhost:8000/datasets -F"): "tests/api/datasets/test_guide.py",
    ("docs/api.md", "regatta secrets new-key"): "tests/cli/test_admin.py",
    ("docs/cli.md", "regatta demo"): "tests/end_to_end/test_demo.py",
    ("docs/cli.md", "regatta up"): "tests/cli/test_up.py",
    ("docs/cli.md", "regatta migrate"): "tests/cli/test_commands.py",
    ("docs/cli.md", "data=$(regatta datasets upload"): "tests/cli/test_datasets.py",
    ("docs/cli.md", "regatta merge"): "tests/cli/test_tasks.py",
    (
        "docs/cli.md",
        "regatta train finetune sft_argument.json    ",
    ): "tests/trainer/launcher/test_training.py",
    ("docs/cli.md", "regatta tiny-model gemma tiny"): "tests/end_to_end/test_documented_commands.py",
    ("docs/cli.md", "import paddle"): "tests/end_to_end/test_documented_commands.py",
    ("docs/production.md", "pg_dump"): "tests/docs/test_backup.py",
    ("docs/production.md", "pg_restore"): "tests/docs/test_backup.py",
    ("docs/python.md", "import trainer"): "tests/end_to_end/test_python_page.py",
    ("docs/python.md", "from regatta_client import InvalidError"): "tests/end_to_end/test_python_client.py",
    ("docs/python.md", "import asyncio"): "tests/end_to_end/test_python_client.py",
    ("docs/webhooks.md", "from standardwebhooks import Webhook"): "tests/worker/test_webhooks.py",
}
"""By page and beginning: blocks that a test of their own runs, or the calls that they are made of."""

NOT_RUN = {
    ("CONTRIBUTING.md", "make lint"): "these are the checks themselves",
    (QUICKSTART, "make install"): "installs what the tests run in",
    ("docs/api.md", "curl -N"): "a stream without an end",
    ("docs/cli.md", "regatta generate google/gemma-2b-it"): "fetches a model of the hub",
    ("docs/production.md", "cp docker/.env.example"): "needs a container engine",
    (
        "docs/production.md",
        "kubectl create secret",
    ): "needs a cluster; tests/docker/test_helm.py renders the chart",
}
"""By page and beginning: blocks that nothing runs, and why."""

AROUND = {
    ("docs/api.md", "curl -s localhost:8000/jobs/$job/retry"): (
        "regatta hosts cordon rack-1; job=$(regatta submit job.json); regatta cancel $job",
        "regatta hosts uncordon rack-1",
    ),
    ("docs/openai.md", "import os"): ("export REGATTA_API_KEY=$(regatta keys create openai --database)", ""),
    ("docs/cli.md", "regatta cancel"): (
        "regatta hosts cordon rack-1; job=$(regatta submit job.json)",
        "regatta hosts uncordon rack-1",
    ),
}
"""What is done before and after a block so that the job it speaks of is there, and still waits."""

PRELUDE = """
curl() { command curl --fail-with-body --show-error "$@"; }
newest() {
    command curl -s "$REGATTA_URL/$1?limit=1" |
        python -c 'import json, sys; print(json.load(sys.stdin)["items"][0]["id"])'
}
"""
NAMED = {"job": "jobs", "pipeline": "pipelines", "key": "keys"}
"""Variables of the pages, and the lists whose newest entry each is where a page does not set it."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """The blocks of a page that are programs."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [
        Block(page, text[: match.start()].count("\n") + 1, match[1], match[2])
        for match in found
        if match[1] in PROGRAMS
    ]


def entry(table: Mapping[tuple[str, str], T], block: Block) -> T | None:
    """What a table of blocks says of this one."""
    of_page = {start: said for (page, start), said in table.items() if page == block.page}
    return next((said for start, said in of_page.items() if block.code.startswith(start)), None)


def is_run(block: Block) -> bool:
    """Whether this module runs it."""
    return block.page in PAGES and entry(ELSEWHERE, block) is None and entry(NOT_RUN, block) is None


def run_blocks(chosen: list[Block], folder: Path, environment: dict[str, str]) -> str:
    """Run blocks one after the other in one shell, as they stand but for the server's address; their output.

    Raises: AssertionError with the output when one fails.
    """
    address = environment["REGATTA_URL"].removeprefix("http://")
    parts, known = [PRELUDE], ""
    for number, block in enumerate(chosen):
        parts.append(f"echo '>>> {block}' >&2")
        for name, path in NAMED.items():
            if f"${name}" in block.code and f"{name}=" not in known + block.code:
                parts.append(f': "${{{name}:=$(newest {path})}}"')
        known += block.code
        code = block.code
        if block.language == "python":
            program = f"block_{number}.py"
            (folder / program).write_text(local(code, address), encoding="utf-8")
            code = f"python {program}"
        before, after = entry(AROUND, block) or ("", "")
        parts.append(f"({before}\n{code}\n{after})" if before else code)
    command = ["/bin/bash", "-eu", "-o", "pipefail", "-c", local("\n".join(parts), address)]
    with (folder / "output.txt").open("w+", encoding="utf-8") as output:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=TIMEOUT_S,
            )
            ended = f"exit status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            ended = f"not done after {TIMEOUT_S} s"
        output.seek(0)
        said = output.read()
    assert not ended, f"{ended}\n{said[-6000:]}"
    return said


def local(code: str, address: str) -> str:
    """A program of a page for the service of the test: nothing of it leaves this machine."""
    code = re.sub(r"(localhost|127\.0\.0\.1):8000", address, code)
    code = code.replace("https://example.com/hooks/regatta", "http://127.0.0.1:9/hooks/regatta")
    return code.replace("google/gemma-2b-it", "tiny-gemma")


def environment_in(home: Path) -> dict[str, str]:
    """The environment of a user whose home is this folder."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")}
    return given | {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "HF_TOKEN": "hf_0123456789",
    }


def lay_out(folder: Path, home: Path) -> None:
    """A working directory with the files that the pages name."""
    folder.mkdir()
    for name in ("cli", "trainer"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "tiny-gemma").symlink_to(home / "models" / "tiny-gemma")
    (folder / "harbour").symlink_to(home / "data" / "harbour")
    config = {
        "model_name_or_path": "tiny-gemma",
        "dataset_name_or_path": "harbour",
        "output_dir": "out",
        "do_train": True,
        "save_strategy": "steps",
        "save_steps": 50,
        "logging_steps": 10,
        "src_length": 32,
        "max_length": 48,
    }
    merge = {"lora_path": "job:sft", "output_dir": "out"}
    pipeline = [
        {"id": "sft", "task": "finetune", "config": config | {"lora": True, "max_steps": 2}},
        {"id": "merged", "task": "merge", "config": merge},
    ]
    question, answer = "Where is the ferry?", "At pier four."
    chat = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    texts = {
        "sft_argument.json": json.dumps(config),
        "job.json": json.dumps({"task": "finetune", "config": config | {"max_steps": 20}}),
        "pipeline.json": json.dumps({"jobs": pipeline}),
        "prompts.jsonl": json.dumps({"prompt": "Where is the ferry?"}),
        "chats.jsonl": json.dumps({"messages": chat}) + "\n",
        "token.txt": "hf_0123456789\n",
        "dpo.jsonl": json.dumps({"src": "a?", "response": ["b", "c"], "sort": [1, 0]}) + "\n",
        "dpo_argument.json": json.dumps(
            {"model_name_or_path": "tiny-gemma", "train_dataset_path": "dpo.jsonl", "output_dir": "out"}
        ),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
