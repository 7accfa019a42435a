"""Programs of the trainer that look at a job's data before it runs: its preview, its tokens.

The tokenizer and the chat template, which is a program of the user's, run in a process of their own that may
use little time and memory.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.config.problems import Problem

TIMEOUT_S = 30


class NoAnswerError(Exception):
    """The program has said nothing; the message goes on from the name of what was wanted."""


def ask(module: str, task: str, config: Mapping[str, Any], options: Sequence[str] = ()) -> dict[str, Any]:
    """What ``python -m module`` prints about the resolved config of a task that reads records.

    Raises:
        NoAnswerError: the tokenizer is not here, or there was no answer in time.
    """
    if not Path(str(config.get("tokenizer_name_or_path") or config["model_name_or_path"])).is_dir():
        raise NoAnswerError("needs the tokenizer, which is fetched when the job starts")
    command = [sys.executable, "-P", "-m", module, "-", "--task", task, *options]
    # what the service keeps in its own variables, such as passwords, is nothing for a template
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")}
    text = json.dumps(config).encode()
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, env=environment, timeout=TIMEOUT_S, check=False
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"was not ready after {TIMEOUT_S} s") from None
    except ValueError:
        raise NoAnswerError("could not be made") from None


def problems_in(answer: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with arguments or data, at its place in the body; empty when the answer is one."""
    found = answer.get("problems") or ()
    return [below_config(problem) for problem in found] if isinstance(found, list) else []


def below_config(problem: Mapping[str, Any]) -> Problem:
    """A problem of the config as one of the body."""
    return Problem(("body", "config", *problem["loc"]), problem["msg"], problem["hint"])
