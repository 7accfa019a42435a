"""The commands about secrets: values that trainers get in their environment."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from cli.commands.admin import ADMIN_PANEL, AsJson
from cli.commands.group import Commands

SecretName = Annotated[str, typer.Argument(metavar="NAME", help="The variable, for example HF_TOKEN.")]
OfProject = Annotated[str | None, typer.Option("--project", help="Whose; default: your own project.")]

secrets = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Secrets: values in the environment of a project's trainers."
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(secrets, name="secrets", rich_help_panel=ADMIN_PANEL)


@secrets.command("set")
def set_secret(name: SecretName, project: OfProject = None) -> None:
    """Set a secret; the value is asked for, or read from stdin: on the command line others could see it."""
    from cli.client import Client

    with Client() as client:
        client.put(_path(name), {"value": _value(name)}, _of(project))
    print(f"Secret {name} is set.")


@secrets.command("list")
def list_secrets(project: OfProject = None, as_json: AsJson = False) -> None:
    """List the names of a project's secrets."""
    from cli.client import Client
    from cli.output import moment, print_json, print_rows

    with Client() as client:
        found = list(client.items("/secrets", _of(project)))
    if as_json:
        print_json(found)
        return
    print_rows(
        ("Secret", "Project", "Created", "Set"),
        (
            (secret["name"], secret["project"], moment(secret["created_at"]), moment(secret["updated_at"]))
            for secret in found
        ),
    )


@secrets.command("delete")
def delete_secret(name: SecretName, project: OfProject = None) -> None:
    """Forget a secret; jobs that run keep it."""
    from cli.client import Client

    with Client() as client:
        client.delete(_path(name), _of(project))
    print(f"Secret {name} is deleted.")


@secrets.command("new-key")
def new_key() -> None:
    """Print a new key for REGATTA_SECRET_KEY."""
    from store.secretbox import new_key

    print(new_key())


@secrets.command("rotate")
def rotate() -> None:
    """Encrypt everything anew with the first key of this process's settings, in the database itself."""
    from cli.administration import rotate_secrets
    from cli.settings import read_settings

    print(f"Secrets encrypted with the first key: {rotate_secrets(read_settings())}.")


def _value(name: str) -> str:
    """What the user types without its being shown, or the first line of stdin."""
    import getpass
    import sys

    if sys.stdin.isatty():
        return getpass.getpass(f"Value of {name}: ")
    return sys.stdin.readline().rstrip("\r\n")


def _path(name: str) -> str:
    return f"/secrets/{quote(name, safe='')}"


def _of(project: str | None) -> dict[str, Any]:
    return {"project": project}
