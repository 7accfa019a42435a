"""What a job would train on, token by token: `POST /jobs/validate?preview=N`."""

from collections.abc import Mapping
from typing import Any

from api.problems import invalid
from api.references import is_reference
from api.trainer_tools import NoAnswerError, ask, below_config, problems_in
from trainer.config.problems import Problem
from trainer.config.tasks import TASKS_WITH_RECORDS

MOST_EXAMPLES = 10


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
    if any(is_reference(value) for value in config.values()):
        msg = "there is no preview, because what the config refers to is not on this machine yet"
        return None, [
            Problem(("query", "preview"), msg, "Ask again once the job that it refers to has ended.")
        ]
    try:
        answer = ask("trainer.preview", task, config, ["--examples", str(examples)])
    except NoAnswerError as why:
        hint = "Use regatta preview where the data is."
        return None, [Problem(("query", "preview"), f"the preview {why}", hint)]
    if problems := problems_in(answer):
        raise invalid(problems)
    return answer, [below_config(problem) for problem in answer.pop("warnings")]
