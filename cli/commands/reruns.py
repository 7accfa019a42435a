"""The commands that run a job again or change it: retry, clone, update; and what models there are."""

from typing import Annotated, Any

import typer

from cli.commands.jobs import CLIENT_PANEL, AsJson, JobId

Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change an argument; null unsets it.")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Show the progress until the end.")]
Retries = Annotated[int | None, typer.Option(help="Runs again after a failure.")]
Timeout = Annotated[float | None, typer.Option(help="Longest time of an attempt, in seconds.")]
Devices = Annotated[int | None, typer.Option(min=1, help="How many to train on.")]


def add_to(app: typer.Typer) -> None:
    for command in (retry, clone, update, models):
        app.command(rich_help_panel=CLIENT_PANEL)(command)


def retry(
    job: JobId,
    overrides: Overrides = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Forget its checkpoints and begin anew.")
    ] = False,
    max_retries: Retries = None,
    timeout_s: Timeout = None,
    devices: Devices = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Run a failed or cancelled job again, from its last checkpoint, and what failed because of it."""
    from cli.client import Client, job_path
    from cli.submission import given

    body = _changes(overrides, max_retries, timeout_s, devices) | given(from_scratch=from_scratch or None)
    with Client() as client:
        _shown(client, client.post(job_path(job, "retry"), body or None), follow, as_json)


def clone(
    job: JobId,
    overrides: Overrides = None,
    name: Annotated[str | None, typer.Option(help="A name for the new job.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    max_retries: Retries = None,
    timeout_s: Timeout = None,
    devices: Devices = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Create a job like another one, with changes; print its id."""
    from cli.client import Client, job_path
    from cli.commands.jobs import create
    from cli.output import print_json
    from cli.submission import given

    body = _changes(overrides, max_retries, timeout_s, devices) | given(name=name, priority=priority)
    with Client() as client:
        made = create(client, body, job_path(job, "clone"))
        if follow:
            _shown(client, made, follow, as_json)
        else:
            print_json(made) if as_json else print(made["id"])


def update(
    job: JobId,
    priority: Annotated[int | None, typer.Option(help="Higher runs first; while the job is queued.")] = None,
    name: Annotated[str | None, typer.Option(help="A new name; an empty one for none.")] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Set a label.")
    ] = None,
    remove_labels: Annotated[
        list[str] | None, typer.Option("--remove-label", metavar="KEY", help="Remove a label.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a job's name and labels, or its priority while it is queued."""
    from cli.client import Client, job_path
    from cli.submission import given, parse_labels

    changed: dict[str, Any] = {**parse_labels(labels or []), **dict.fromkeys(remove_labels or [])}
    body = given(priority=priority, labels=changed)
    if name is not None:
        body["name"] = name or None
    with Client() as client:
        _shown(client, client.patch(job_path(job), body), False, as_json)


def models(as_json: AsJson = False) -> None:
    """List the models that a config may name, and where they are."""
    from cli.client import Client
    from cli.output import console, print_json, table

    with Client() as client:
        found = list(client.items("/models"))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            model["name"],
            "adapter" if model["adapter"] else model["model_type"],
            f"{model['parameters'] / 1e9:.2f} B" if model["parameters"] else "",
            model["available"] + (", quantized" if model["quantized"] else ""),
        )
        for model in found
    ]
    console().print(table(("Model", "Family", "Parameters", "Available"), rows))


def _changes(
    overrides: list[str] | None, max_retries: int | None, timeout_s: float | None, devices: int | None
) -> dict[str, Any]:
    from cli.submission import given, parse_overrides

    return given(
        config=parse_overrides(overrides or []),
        max_retries=max_retries,
        timeout_s=timeout_s,
        resources=given(devices_per_node=devices),
    )


def _shown(client: Any, state: dict[str, Any], follow: bool, as_json: bool) -> None:
    from cli.commands.jobs import finish, follow_to_end, print_state

    if follow:
        finish(follow_to_end(client, state["id"]), as_json)
    else:
        print_state(state, as_json)
