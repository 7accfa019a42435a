"""The tasks of the service, and which of them this version can run."""

import difflib

from trainer.config.problems import Problem

TASKS: tuple[str, ...] = ("finetune", "dpo", "kto", "quantize", "merge", "export", "evaluate")
AVAILABLE_TASKS: tuple[str, ...] = ("finetune", "dpo", "kto", "quantize", "merge", "export", "evaluate")

#: The tasks whose data are records, which can be shown before they run.
TASKS_WITH_RECORDS: tuple[str, ...] = ("finetune", "evaluate", "dpo", "kto", "quantize")

#: Names that other programs give to a task.
SYNONYMS = {
    "sft": "finetune",
    "lora": "finetune",
    "prefix_tuning": "finetune",
    "eval": "evaluate",
    "quantization": "quantize",
    "ptq": "quantize",
    "gptq": "quantize",
    "awq": "quantize",
}


def unknown_task_problem(task: str) -> Problem | None:
    """The problem of a task that the service does not know at all, or None."""
    if task in TASKS:
        return None
    nearest = SYNONYMS.get(task.lower()) or next(
        iter(difflib.get_close_matches(task.lower(), TASKS, n=1)), None
    )
    hint = f"Did you mean {nearest}?" if nearest else f"Use for example {AVAILABLE_TASKS[0]}."
    return Problem(("task",), f"got {task[:60]!r}, expected one of {', '.join(TASKS)}", hint)


def task_problem(task: str) -> Problem | None:
    """The reason why this version cannot run `task`, or None when it can."""
    if task in AVAILABLE_TASKS:
        return None
    if problem := unknown_task_problem(task):
        return problem
    available = ", ".join(AVAILABLE_TASKS)
    return Problem(("task",), f"task {task} is not available in this version", f"Available: {available}.")
