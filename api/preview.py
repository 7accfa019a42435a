"""What a job would train on, token by token: `POST /jobs/validate?preview=N`.

The tokenizer and the chat template, which is a program of the user's, run in a process of their own that may
use little time and memory.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api.problems import invalid
from trainer.config.problems import Problem
from trainer.config.tasks import TASKS_WITH_RECORDS

MOST_EXAMPLES = 10
TIMEOUT_S = 30


def preview(
    task: str, config: Mapping[str, Any], examples: int
) -> tuple[dict[str, Any] | None, list[Problem]]:
    """The preview of a task's resolved config, and warnings; no preview when the process did not make one in
    time.

    Raises:
        ApiError: 422, a record or the chat template cannot be used.
    """
    if task not in TASKS_WITH_RECORDS:
        msg = "there is no preview, because this task reads no records"
        return None, [Problem(("query", "preview"), msg, "Leave it out.")]
    if not Path(str(config.get("tokenizer_name_or_path") or config["model_name_or_path"])).is_dir():
        return None, [_without("needs the tokenizer, which is fetched when the job starts")]
    command = [sys.executable, "-P", "-m", "trainer.preview", "-", "--task", task]
    command += ["--examples", str(examples)]
    text = json.dumps(config).encode()
    # what the service keeps in its own variables, such as passwords, is nothing for a template
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")}
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, env=environment, timeout=TIMEOUT_S, check=False
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return None, [_without(f"was not ready after {TIMEOUT_S} s")]
    except ValueError:
        return None, [_without("could not be made")]
    if problems := answer.get("problems"):
        raise invalid([_below_config(problem) for problem in problems])
    return answer, [_below_config(problem) for problem in answer.pop("warnings")]


def _below_config(problem: Mapping[str, Any]) -> Problem:
    return Problem(("body", "config", *problem["loc"]), problem["msg"], problem["hint"])


def _without(why: str) -> Problem:
    return Problem(("query", "preview"), f"the preview {why}", "Use regatta preview where the data is.")
