"""The commands that speak to a running server: submit, jobs, show, logs, wait, cancel, delete,
download.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the server's JSON.")]
CLIENT_PANEL = "Talk to a server (REGATTA_URL, default http://127.0.0.1:8000)"


def add_to(app: typer.Typer) -> None:
    for command in (submit, jobs, show, logs, wait, cancel, delete, download):
        app.command(rich_help_panel=CLIENT_PANEL)(command)


def submit(
    file: Annotated[Path, typer.Argument(help="An argument file, or the whole body of a POST /jobs.")],
    task: Annotated[str | None, typer.Option(help="The task; told from the file when not given.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace an argument.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for the job.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label to find the job by.")
    ] = None,
    max_retries: Annotated[int | None, typer.Option(help="Runs again after a failure.")] = None,
    timeout_s: Annotated[float | None, typer.Option(help="Longest time of an attempt, in seconds.")] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="How many to train on, of each host; by default what the config needs."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Hosts to train on; by default one.")] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the server announces each change of status.")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Send this variable of your environment for the trainer's."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only validate: nothing is stored.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show the progress until the end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a job from an argument file."""
    from cli.client import Client
    from cli.output import console, print_json
    from cli.submission import given, parse_labels, read_submission, secrets_of_environment

    extras = {
        "name": name,
        "priority": priority,
        "labels": parse_labels(labels or []),
        "max_retries": max_retries,
        "timeout_s": timeout_s,
        "resources": given(nodes=nodes, devices_per_node=devices),
        "webhook": given(url=webhook),
        "secrets": secrets_of_environment(secret or []),
    }
    submission = read_submission(file, task, overrides or [], extras)
    notes = console(stderr=True)
    if submission.guessed_from:
        notes.print(f"Task: {submission.body['task']} (told from {submission.guessed_from}).")
    with Client() as client:
        if check:
            _show_check(client.post("/jobs/validate", submission.body), as_json)
            return
        job = create(client, submission.body)
        _print_warnings(job.get("warnings") or [])
        if secret := (job.get("webhook") or {}).get("secret"):
            notes.print(f"The webhook's secret, shown this once: {secret}", markup=False, soft_wrap=True)
        if not follow:
            print_json(job) if as_json else print(job["id"])
            return
        notes.print(f"Job {job['id']}")
        finish(follow_to_end(client, job["id"]), as_json)


def jobs(
    status: Annotated[str | None, typer.Option(help="Only this status, for example running.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task.")] = None,
    name: Annotated[str | None, typer.Option(help="Only this name.")] = None,
    text: Annotated[
        str | None, typer.Option(help="Only with this in its name, or at the beginning of its id.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only with this label; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first."""
    from itertools import islice

    from cli.client import PAGE_SIZE, Client
    from cli.output import console, job_table, print_json
    from cli.submission import parse_labels

    labels = [f"{key}:{value}" for key, value in parse_labels(label or []).items()]
    filters = {"status": status, "task": task, "name": name, "text": text, "label": labels}
    filters["limit"] = min(limit, PAGE_SIZE)
    if not as_json:
        filters["view"] = "summary"
    with Client() as client:
        found = list(islice(client.items("/jobs", filters), limit))
    if as_json:
        print_json(found)
    elif found:
        console().print(job_table(found))
    else:
        console(stderr=True).print("No jobs.")


def show(job: JobId, as_json: AsJson = False) -> None:
    """Show one job: status, progress, times, checkpoints, and what its result is measured by."""
    from cli.client import Client, job_path
    from cli.details import job_details
    from cli.output import console, print_json

    with Client() as client:
        state = client.get(job_path(job))
        if as_json:
            print_json(state)
            return
        checkpoints = list(client.items(job_path(job, "checkpoints")))
        result = client.get(job_path(job, "result")) if state["status"] == "succeeded" else None
    console().print(job_details(state, checkpoints, result))


def logs(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    tail: Annotated[int | None, typer.Option(min=1, max=10_000, help="Only the last N lines.")] = None,
    rank: Annotated[int, typer.Option(min=0, help="The process of the job whose lines are printed.")] = 0,
    all_ranks: Annotated[
        bool, typer.Option("--all-ranks", help="Those of every process, each with its rank in front.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print what a job's processes wrote."""
    from cli.client import Client
    from cli.logs import read_lines
    from cli.output import print_json_line

    with Client() as client:
        wanted = None if all_ranks else rank
        for line in read_lines(client, job, follow=follow, tail=tail, rank=wanted):
            text = f"[{line['rank']}] {line['line']}" if all_ranks else line["line"]
            print_json_line(line) if as_json else print(text, flush=follow)


def wait(
    job: JobId,
    as_json: AsJson = False,
) -> None:
    """Wait for a job's end; exit status 0 only when it succeeded."""
    from cli.client import Client

    with Client() as client:
        finish(follow_to_end(client, job), as_json)


def cancel(job: JobId, as_json: AsJson = False) -> None:
    """Stop a job; a running one saves a checkpoint first."""
    _act(job, "cancel", as_json)


def delete(job: JobId) -> None:
    """Forget a finished job, with its history, checkpoints and result."""
    from cli.client import Client, job_path

    with Client() as client:
        client.delete(job_path(job))
    print(f"Job {job} is deleted.")


def download(
    job: JobId,
    places: Annotated[
        list[str],
        typer.Argument(metavar="[CHECKPOINT] DIR", help="Which one (default: the result), and where to."),
    ],
) -> None:
    """Store a job's result, or one of its checkpoints, in a new directory."""
    from cli.client import Client
    from cli.downloads import download_checkpoint

    if len(places) > 2:
        raise typer.BadParameter("expected JOB [CHECKPOINT] DIR")
    checkpoint = places[0] if len(places) == 2 else None
    with Client() as client:
        download_checkpoint(client, job, checkpoint, Path(places[-1]))


def create(client: Any, body: dict[str, Any], path: str = "/jobs") -> dict[str, Any]:
    """POST what makes a job (or several); the key makes it safe to ask again when the connection broke
    before the answer came.
    """
    import uuid

    from cli.errors import ServerAway

    key = {"Idempotency-Key": str(uuid.uuid4())}
    try:
        return client.post(path, body, key)
    except ServerAway:
        return client.post(path, body, key)


def _act(job: str, verb: str, as_json: bool) -> None:
    from cli.client import Client, job_path

    with Client() as client:
        print_state(client.post(job_path(job, verb)), as_json)


def print_state(state: dict[str, Any], as_json: bool) -> None:
    """Say where a job stands now."""
    from rich.text import Text

    from cli.output import console, print_json, status_text

    if as_json:
        print_json(state)
    else:
        console().print(Text(f"Job {state['id']} ").append_text(status_text(state)))


def follow_to_end(client: Any, job: str) -> dict[str, Any]:
    """Show the progress of a job until its end; the job as it is then."""
    from cli.follow import follow_job
    from cli.output import console

    try:
        return follow_job(client, job, console(stderr=True))
    except KeyboardInterrupt:
        console(stderr=True).print(f"The job goes on. Stop it with: regatta cancel {job}")
        raise


def finish(job: dict[str, Any], as_json: bool) -> None:
    """Say how a job ended; a job that did not succeed is exit status 1."""
    from cli.errors import FAILED
    from cli.follow import outcome
    from cli.output import console, print_json

    if as_json:
        print_json(job)
    else:
        console().print(outcome(job))
    if job["status"] != "succeeded":
        raise typer.Exit(FAILED)


def _show_check(answer: dict[str, Any], as_json: bool) -> None:
    from cli.output import console, print_json

    if as_json:
        print_json(answer)
        return
    _print_warnings(answer.get("warnings") or [])
    console().print("Valid: the server would accept this job.")


def _print_warnings(warnings: list[dict[str, Any]]) -> None:
    from cli.output import console, problem_table

    if warnings:
        notes = console(stderr=True)
        notes.print("Warnings:", style="yellow")
        notes.print(problem_table(warnings))
