"""The commands for hosts: what they offer, and keeping jobs away from them."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.commands.admin import ADMIN_PANEL, AsJson
from cli.commands.group import Commands

HostName = Annotated[str, typer.Argument(metavar="NAME", help="The host's name.")]
Why = Annotated[str, typer.Option("--reason", help="Why, for who asks.")]

hosts = typer.Typer(cls=Commands, no_args_is_help=True, help="Hosts, and keeping jobs away from them.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(hosts, name="hosts", rich_help_panel=ADMIN_PANEL)


@hosts.command("list")
def list_hosts(as_json: AsJson = False) -> None:
    """List hosts: what they have and run, and whether they get jobs."""
    from cli.client import Client
    from cli.output import moment, print_json, print_rows

    with Client() as client:
        found = list(client.items("/hosts"))
    if as_json:
        print_json(found)
        return
    print_rows(
        ("Host", "Devices", "In use", "Jobs", "State", "Heartbeat", "Memory", "Versions", "Reason"),
        (
            (
                host["name"],
                f"{len(host['devices'])} {host['device']}",
                str(sum(len(part["devices"]) for part in host["running"])),
                str(len(host["running"])),
                _state(host),
                moment(host["heartbeat_at"]),
                _memory(host),
                _versions(host),
                host["cordon_reason"] or host["exclusion_reason"],
            )
            for host in found
        ),
    )


@hosts.command("cordon")
def cordon(name: HostName, reason: Why = "", as_json: AsJson = False) -> None:
    """Give the host no new jobs; those that run there go on."""
    _tell(name, "cordon", {"reason": reason}, as_json)


@hosts.command("uncordon")
def uncordon(name: HostName, as_json: AsJson = False) -> None:
    """Give the host jobs again."""
    _tell(name, "uncordon", {}, as_json)


@hosts.command("drain")
def drain(name: HostName, reason: Why = "", as_json: AsJson = False) -> None:
    """Give the host no new jobs, and let those that run there go on elsewhere from a checkpoint."""
    _tell(name, "drain", {"reason": reason}, as_json)


def _tell(name: str, what: str, query: Mapping[str, str], as_json: bool) -> None:
    from urllib.parse import quote

    from cli.client import Client
    from cli.output import print_json

    with Client() as client:
        host = client.post(f"/hosts/{quote(name, safe='')}/{what}", params=dict(query))
    if as_json:
        print_json(host)
    else:
        print(f"{host['name']}: {_state(host)}, {len(host['running'])} running")


def _memory(host: Mapping[str, Any]) -> str:
    size = host["info"].get("memory_bytes")
    return "" if size is None else f"{size / 2**30:.0f} GiB"


def _versions(host: Mapping[str, Any]) -> str:
    """Of what the host runs, as far as it has told."""
    told = ((name, host["info"].get(name)) for name in ("regatta", "paddle", "driver"))
    return ", ".join(f"{name} {version}" for name, version in told if version)


def _state(host: Mapping[str, Any]) -> str:
    if host["draining"]:
        return "draining" if host["running"] else "drained"
    if host["cordoned"]:
        return "cordoned"
    if host["excluded"]:
        return "excluded"
    if not host["alive"]:
        return "silent"
    return "open" if host["accepts_jobs"] else "stopped"
