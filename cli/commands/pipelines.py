"""The commands about pipelines on a server: submit, list, show, wait, cancel, delete."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.group import Commands
from cli.commands.jobs import CLIENT_PANEL

AsJson = Annotated[bool, typer.Option("--json", help="Print the server's JSON.")]
PipelineId = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's id.")]

pipelines = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Jobs that are posted together and use each other's results."
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(pipelines, name="pipelines", rich_help_panel=CLIENT_PANEL)


@pipelines.command("submit")
def submit(
    file: Annotated[
        Path, typer.Argument(help='The body of a POST /pipelines: {"jobs": [{"id": "sft", …}, …]}.')
    ],
    name: Annotated[str | None, typer.Option(help="A name for the pipeline.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for its end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create all jobs of a pipeline, and print its id."""
    from cli.client import Client
    from cli.commands.jobs import create
    from cli.output import console, print_json
    from cli.submission import given, read_json_object

    body = read_json_object(file) | given(name=name)
    with Client() as client:
        pipeline = create(client, body, "/pipelines")
        if follow:
            console(stderr=True).print(f"Pipeline {pipeline['id']}")
            _finish(client, pipeline["id"], as_json)
        else:
            print_json(pipeline) if as_json else print(pipeline["id"])


@pipelines.command("list")
def list_all(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20, as_json: AsJson = False
) -> None:
    """List pipelines, the newest first."""
    from itertools import islice

    from cli.client import PAGE_SIZE, Client
    from cli.output import console, print_json, table

    with Client() as client:
        found = list(islice(client.items("/pipelines", {"limit": min(limit, PAGE_SIZE)}), limit))
    if as_json:
        print_json(found)
        return
    rows = [
        (each["id"], each["name"], each["status"], ", ".join(job["step"] for job in each["jobs"]))
        for each in found
    ]
    console().print(table(("Pipeline", "Name", "Status", "Jobs"), rows))


@pipelines.command("show")
def show(pipeline: PipelineId, as_json: AsJson = False) -> None:
    """Show a pipeline and its jobs."""
    from cli.client import Client, path_of
    from cli.output import print_json

    with Client() as client:
        found = client.get(path_of("pipelines", pipeline))
    print_json(found) if as_json else _print(found)


@pipelines.command("wait")
def wait(pipeline: PipelineId, as_json: AsJson = False) -> None:
    """Wait for the end of a pipeline; exit status 0 only when all of its jobs succeeded."""
    from cli.client import Client

    with Client() as client:
        _finish(client, pipeline, as_json)


@pipelines.command("cancel")
def cancel(pipeline: PipelineId, as_json: AsJson = False) -> None:
    """Stop all jobs of a pipeline that are not finished."""
    from cli.client import Client, path_of
    from cli.output import print_json

    with Client() as client:
        found = client.post(path_of("pipelines", pipeline, "cancel"))
    print_json(found) if as_json else _print(found)


@pipelines.command("delete")
def delete(pipeline: PipelineId) -> None:
    """Forget a pipeline, its jobs and their results, once all of them are finished."""
    from cli.client import Client, path_of

    with Client() as client:
        client.delete(path_of("pipelines", pipeline))
    print(f"Pipeline {pipeline} is deleted.")


def _finish(client: Any, pipeline: str, as_json: bool) -> None:
    from cli.errors import FAILED
    from cli.follow import follow_pipeline
    from cli.output import console, print_json

    found = follow_pipeline(client, pipeline, console(stderr=True))
    print_json(found) if as_json else _print(found)
    if found["status"] != "succeeded":
        raise typer.Exit(FAILED)


def _print(pipeline: dict[str, Any]) -> None:
    from cli.output import console, fields_table, steps, table

    fields = [("Pipeline", pipeline["id"]), ("Name", pipeline["name"]), ("Status", pipeline["status"])]
    rows = [
        (job["step"], job["task"], job["status"], steps(job["progress"]), job["id"], job["message"])
        for job in pipeline["jobs"]
    ]
    screen = console()
    screen.print(fields_table(fields))
    screen.print(table(("Step", "Task", "Status", "Progress", "Job", "Message"), rows))
