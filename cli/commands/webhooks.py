"""The commands for a job's webhook: what was announced, and sending it again."""

from typing import Annotated

import typer

from cli.commands.group import Commands
from cli.commands.jobs import CLIENT_PANEL, AsJson, JobId

webhook = typer.Typer(cls=Commands, no_args_is_help=True, help="A job's webhook and what became of it.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(webhook, name="webhook", rich_help_panel=CLIENT_PANEL)


@webhook.command("show")
def show(job: JobId, as_json: AsJson = False) -> None:
    """List what was announced of a job, and whether it has arrived."""
    from cli.client import Client, job_path
    from cli.output import console, moment, print_json, print_rows

    with Client() as client:
        hook = client.get(job_path(job, "webhook"), {"limit": 1})["webhook"]
        deliveries = list(client.items(job_path(job, "webhook")))
    if as_json:
        print_json({"webhook": hook, "deliveries": deliveries})
        return
    disabled = f", disabled {moment(hook['disabled_at'])}" if hook["disabled_at"] else ""
    console(stderr=True).print(f"{hook['url']}{disabled}", markup=False)
    print_rows(
        ("Delivery", "Event", "Status", "Tries", "Last try", "Next try", "Answer"),
        (
            (
                row["id"],
                row["type"],
                row["status"],
                str(row["attempts"]),
                moment(row["tried_at"]),
                moment(row["next_try_at"]),
                row["error"] or str(row["answer_code"] or ""),
            )
            for row in deliveries
        ),
    )


@webhook.command("redeliver")
def redeliver(
    job: JobId,
    delivery: Annotated[
        str | None, typer.Argument(metavar="[DELIVERY]", help="Only this one, even if it has arrived.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send again, at once, what has not arrived."""
    from cli.client import Client, job_path
    from cli.output import print_json

    path, query = job_path(job, "webhook", "redeliver"), {"delivery": delivery} if delivery else None
    with Client() as client:
        answer = client.post(path, params=query)
    if as_json:
        print_json(answer)
        return
    count = answer["deliveries"]
    print(f"{count} {'delivery is' if count == 1 else 'deliveries are'} sent again.")
