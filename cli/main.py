"""The `regatta` command. Only what `--help` needs is imported here; a command imports what it uses."""

from typing import Annotated

import typer

from cli.commands import (
    admin,
    datasets,
    events,
    hosts,
    jobs,
    local,
    numbers,
    pipelines,
    presets,
    reruns,
    secrets,
    service,
    webhooks,
)
from cli.commands.group import Commands

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Runs LLM fine-tuning jobs: a REST service, its client, and the trainer alone.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
service.add_to(app)
jobs.add_to(app)
reruns.add_to(app)
numbers.add_to(app)
presets.add_to(app)
pipelines.add_to(app)
datasets.add_to(app)
webhooks.add_to(app)
events.add_to(app)
admin.add_to(app)
hosts.add_to(app)
secrets.add_to(app)
local.add_to(app)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print("regatta", version("regatta"))
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None: ...
