"""The command that shows who has done what on a server."""

from typing import Annotated

import typer

from cli.commands.jobs import CLIENT_PANEL

AsJson = Annotated[bool, typer.Option("--json", help="Print the server's JSON, an event a line.")]


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel=CLIENT_PANEL)(events)


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    project: Annotated[str | None, typer.Option(help="Only this project's.")] = None,
    job: Annotated[str | None, typer.Option(help="Only this job's, also when it is deleted.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only these, for example status.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this one did.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="RFC 3339, with its zone.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="RFC 3339, with its zone.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show who has done what: jobs, keys, projects, secrets. The oldest first."""
    import json

    from cli.client import Client
    from cli.output import event_line, print_json_line
    from cli.sse import follow as follow_stream

    query = {
        "project": project,
        "job": job,
        "type": type_,
        "actor": actor,
        "since": since,
        "until": until,
    }
    with Client() as client:
        if follow:
            client.get("/events", query | {"limit": 1})  # a wrong question is refused at once
            stream = follow_stream(client, "/events", query)
            found = (json.loads(event.data) for event in stream if event.type == "event")
        else:
            found = client.items("/events", query)
        for event in found:
            print_json_line(event) if as_json else print(event_line(event), flush=True)
