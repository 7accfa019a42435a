"""The commands of administrators: keys and projects."""

from typing import Annotated, Any

import typer

from cli.commands.group import Commands

ADMIN_PANEL = "Administer a server (REGATTA_API_KEY with the scope admin)"

Direct = Annotated[
    bool,
    typer.Option(
        "--database", help="Work on the database itself (REGATTA_DATABASE_URL), as for the first key."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the server's JSON.")]
KeyName = Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use it.")]
ProjectName = Annotated[str, typer.Argument(metavar="PROJECT", help="The project's name.")]
Limit = Annotated[str | None, typer.Option(metavar="N", help="A number, or none to lift the limit.")]

keys = typer.Typer(cls=Commands, no_args_is_help=True, help="API keys: who may call the server.")
projects = typer.Typer(cls=Commands, no_args_is_help=True, help="Projects and how much each may use.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(keys, name="keys", rich_help_panel=ADMIN_PANEL)
    app.add_typer(projects, name="projects", rich_help_panel=ADMIN_PANEL)


@keys.command("create")
def create_key(
    name: KeyName,
    project: Annotated[str | None, typer.Option(help="Whose key; default: your own project.")] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="read, write or admin; may be repeated. Default: read and write.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="Lifetime; default: until it is revoked.")] = None,
    direct: Direct = False,
    as_json: AsJson = False,
) -> None:
    """Make a key, and print its text: it is shown this once."""
    from cli.output import print_json

    body = {
        "name": name,
        "project": project,
        "scopes": scope,
        "expires_in_s": None if days is None else days * 86400,
    }
    with _administration(direct) as server:
        made = server.create_key({member: value for member, value in body.items() if value is not None})
    print_json(made) if as_json else print(made["key"])


@keys.command("list")
def list_keys(
    project: Annotated[str | None, typer.Option(help="Only its keys.")] = None,
    direct: Direct = False,
    as_json: AsJson = False,
) -> None:
    """List keys, the newest first, without their texts."""
    from cli.output import moment, print_json, print_rows

    with _administration(direct) as server:
        found = server.list_keys(project)
    if as_json:
        print_json(found)
        return
    print_rows(
        ("Key", "Prefix", "Name", "Project", "Scopes", "Expires", "Revoked", "Last used"),
        (
            (
                key["id"],
                key["prefix"],
                key["name"],
                key["project"],
                ", ".join(key["scopes"]),
                *(moment(key[time]) for time in ("expires_at", "revoked_at", "last_used_at")),
            )
            for key in found
        ),
    )


@keys.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's id, from `regatta keys list`.")],
    direct: Direct = False,
) -> None:
    """Let a key be refused from now on."""
    with _administration(direct) as server:
        server.revoke_key(key)
    print(f"Key {key} is revoked.")


@projects.command("create")
def create_project(
    name: ProjectName,
    most_queued: Limit = None,
    most_running: Limit = None,
    most_devices: Limit = None,
    direct: Direct = False,
    as_json: AsJson = False,
) -> None:
    """Make a project."""
    with _administration(direct) as server:
        limits = _limits(most_queued=most_queued, most_running=most_running, most_devices=most_devices)
        _show([server.create_project({"name": name} | limits)], as_json)


@projects.command("list")
def list_projects(direct: Direct = False, as_json: AsJson = False) -> None:
    """List projects and their limits."""
    from cli.output import print_json

    with _administration(direct) as server:
        found = server.list_projects()
    print_json(found) if as_json else _show(found, as_json)


@projects.command("limits")
def limit_project(
    name: ProjectName,
    most_queued: Limit = None,
    most_running: Limit = None,
    most_devices: Limit = None,
    direct: Direct = False,
    as_json: AsJson = False,
) -> None:
    """Change the limits of a project: jobs that wait, jobs that run, devices in use."""
    with _administration(direct) as server:
        limits = _limits(most_queued=most_queued, most_running=most_running, most_devices=most_devices)
        _show([server.limit_project(name, limits)], as_json)


def _administration(direct: bool) -> Any:
    from cli.administration import administration
    from cli.settings import read_settings

    return administration(read_settings() if direct else None)


def _limits(**given: str | None) -> dict[str, int | None]:
    limits: dict[str, int | None] = {}
    for name, text in given.items():
        if text is None:
            continue
        if text != "none" and not (text.isascii() and text.isdigit()):
            raise typer.BadParameter(f"--{name.replace('_', '-')}: got {text!r}, expected a number or none")
        limits[name] = None if text == "none" else int(text)
    return limits


def _show(found: list[dict[str, Any]], as_json: bool) -> None:
    from cli.output import print_json, print_rows

    if as_json:
        print_json(found[0])
        return
    limits = ("most_queued", "most_running", "most_devices")
    print_rows(
        ("Project", "Most queued", "Most running", "Most devices"),
        (
            (
                project["name"],
                *("none" if project[limit] is None else str(project[limit]) for limit in limits),
            )
            for project in found
        ),
    )
