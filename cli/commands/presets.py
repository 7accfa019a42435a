"""The commands about the argument files that ship with a server."""

from typing import Annotated

import typer

from cli.commands.group import Commands
from cli.commands.jobs import CLIENT_PANEL, AsJson

presets = typer.Typer(cls=Commands, no_args_is_help=True, help="Argument files that ship with the server.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(presets, name="presets", rich_help_panel=CLIENT_PANEL)


@presets.command("list")
def list_all(as_json: AsJson = False) -> None:
    """List the argument files by family, name and task."""
    from cli.client import Client
    from cli.output import print_json, print_rows

    with Client() as client:
        found = list(client.items("/presets"))
    if as_json:
        print_json(found)
        return
    print_rows(("Preset", "Task"), ((f"{row['family']}/{row['name']}", row["task"]) for row in found))


@presets.command("show")
def show(
    preset: Annotated[str, typer.Argument(metavar="FAMILY/NAME", help="Which one, for example bloom/lora.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the server's JSON, with task, devices and problems.")
    ] = False,
) -> None:
    """Print an argument file; what has to be changed in it is said beside."""
    from cli.client import Client, path_of
    from cli.output import console, print_json, problem_table

    family, slash, name = preset.partition("/")
    if not slash:
        raise typer.BadParameter(f"got {preset}, expected FAMILY/NAME as `regatta presets list` prints it")
    with Client() as client:
        found = client.get(path_of("presets", family, name))
    if as_json:
        print_json(found)
        return
    print_json(found["config"])
    if found["problems"]:
        notes = console(stderr=True)
        notes.print("To be changed before it is submitted:", style="yellow")
        notes.print(problem_table(found["problems"]))
