"""Download a job's result or one of its checkpoints."""

from pathlib import Path
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from cli.archive import refuse_used, store_archive
from cli.client import Client, job_path
from cli.output import console

RESULT = "result"


def download_checkpoint(client: Client, job: str, checkpoint: str | None, target: Path) -> None:
    """Store the files of a checkpoint (None: of the result) in `target`, checked against the server's list.

    Raises:
        CliError: `target` is in use, or the archive is not what the server lists.
    """
    refuse_used(target)
    place = (RESULT,) if checkpoint in (None, RESULT) else ("checkpoints", str(checkpoint))
    listed: dict[str, Any] = client.get(job_path(job, *place))
    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as progress:
        bar = progress.add_task(checkpoint or RESULT, total=listed.get("bytes"))
        with client.stream(job_path(job, *place, "archive")) as response:
            store_archive(
                response.iter_bytes(), listed["files"], target, lambda count: progress.advance(bar, count)
            )
    print(target)
