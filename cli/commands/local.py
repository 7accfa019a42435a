"""The commands that need no server: the trainer, text generation and tiny models, in this process."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.estimate import estimate
from cli.commands.generate import generate
from cli.commands.preview import preview
from cli.commands.tasks import evaluate, export, merge

LOCAL_PANEL = "Without a service"


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel=LOCAL_PANEL)(train)
    app.command(rich_help_panel=LOCAL_PANEL)(preview)
    app.command(rich_help_panel=LOCAL_PANEL)(estimate)
    app.command(rich_help_panel=LOCAL_PANEL)(generate)
    app.command(rich_help_panel=LOCAL_PANEL)(merge)
    app.command(rich_help_panel=LOCAL_PANEL)(export)
    app.command(rich_help_panel=LOCAL_PANEL)(evaluate)
    app.command("tiny-model", rich_help_panel=LOCAL_PANEL)(tiny_model)


def train(
    task: Annotated[str, typer.Argument(help="The task, for example finetune.")],
    config: Annotated[Path, typer.Argument(metavar="CONFIG.json", help="The argument file.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace an argument.")
    ] = None,
    nproc: Annotated[
        int | None, typer.Option(min=1, help="Processes on this host; by default what the config needs.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="0,1", help="GPUs of this host, a process each; or cpu.")
    ] = None,
    nnodes: Annotated[int, typer.Option(min=1, help="Hosts that train together.")] = 1,
    master: Annotated[
        str | None, typer.Option(metavar="IP:PORT", help="Where the hosts meet, on the first one.")
    ] = None,
    rank: Annotated[int, typer.Option(min=0, help="Number of this host, from 0.")] = 0,
    logs: Annotated[
        Path | None, typer.Option(help="Folder of a log per process; by default output_dir/logs.")
    ] = None,
) -> None:
    """Run the trainer here, without the service."""
    from trainer.run import main

    given = {
        "--nproc": nproc,
        "--devices": devices,
        "--nnodes": nnodes,
        "--master": master,
        "--rank": rank,
        "--logs": logs,
    }
    words = [word for override in overrides or [] for word in ("--set", override)]
    words += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    raise typer.Exit(main([task, str(config), *words]))


def tiny_model(
    family: Annotated[str, typer.Argument(help="The model family, for example gemma.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; must be new or empty.")],
    text: Annotated[
        Path | None, typer.Option(help="Text that the tokenizer is trained on; one ships with Regatta.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=NUMBER", help="A field of config.json, such as hidden_size=64."),
    ] = None,
) -> None:
    """Make a small model with random weights and a tokenizer of its own, for trying and testing."""
    from cli.archive import refuse_used
    from cli.submission import parse_overrides

    refuse_used(directory)
    from trainer.tools.tiny_model import build_tiny_model

    build_tiny_model(family, directory, text=text, seed=seed, **parse_overrides(sizes or []))
    print(directory)
