"""Names of OpenAI's API and what they stand for here.

`file-<id>` is a data set, `ftjob-<id>` a job, `ft:<base>:<project>:<suffix>:<id>` the model that a job has
made, and that with `:ckpt-step-<n>` behind it one of its checkpoints.
"""

import re
from pathlib import PurePosixPath

FILE, JOB = "file-", "ftjob-"
_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MODEL = re.compile(rf"ft:(?P<base>.*):[^:]*:[^:]*:(?P<id>{_ID})(?::ckpt-step-(?P<step>[0-9]{{1,18}}))?")


def bare(name: str, prefix: str) -> str:
    """The id without its prefix; empty when it has another."""
    return name.removeprefix(prefix) if name.startswith(prefix) else ""


def model_name(base: str, project: str, suffix: str, job_id: str, step: int | None = None) -> str:
    """What the model of a job, or its checkpoint of a step, is called."""
    if known := _MODEL.fullmatch(base):
        base = known["base"]
    if base.startswith("/"):
        base = PurePosixPath(base).name
    name = f"ft:{base}:{project.replace(':', '_')}:{suffix}:{job_id}"
    return name if step is None else f"{name}:ckpt-step-{step}"


def reference(model: str) -> str:
    """What a config says for a model: a reference to the job that has made it, else the name itself."""
    known = _MODEL.fullmatch(model)
    if known is None:
        return model
    return f"job:{known['id']}" + (f"/checkpoint-{int(known['step'])}" if known["step"] else "")
