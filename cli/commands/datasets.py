"""The commands about data sets on a server: upload, list, show, tokens, download, delete."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.group import Commands
from cli.commands.jobs import CLIENT_PANEL

AsJson = Annotated[bool, typer.Option("--json", help="Print the server's JSON.")]
DatasetId = Annotated[str, typer.Argument(metavar="DATASET", help="The data set's id.")]

datasets = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Data sets that jobs can use as dataset:<id>."
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(datasets, name="datasets", rich_help_panel=CLIENT_PANEL)


@datasets.command("upload")
def upload(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="JSON lines (also .gz), or a folder with train.json."),
    ],
    split: Annotated[
        str | None, typer.Option(help="train, dev or quant; else as the files are called, else train.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name to find the data set by.")] = None,
    kind: Annotated[str | None, typer.Option(help="sft, dpo or kto; else the first record tells.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only validate: nothing is stored.")] = False,
    as_json: AsJson = False,
) -> None:
    """Store a data set, and print its id."""
    from cli import datasets as sending
    from cli.client import Client
    from cli.errors import INVALID, CliError
    from cli.output import console, print_json

    if split is not None and split not in sending.SPLITS:
        raise CliError(f"--split: got {split}, expected {', '.join(sending.SPLITS)}.", INVALID)
    chosen = sending.files_to_send(files, split)
    with Client() as client:
        answer = sending.upload(client, chosen, {"name": name, "kind": kind}, check=check)
    if as_json:
        print_json(answer)
        return
    console(stderr=True).print(f"{answer['kind']}: {_counts(answer)}")
    print("Valid: the server would accept these data." if check else answer["id"])


@datasets.command("list")
def list_all(
    name: Annotated[str | None, typer.Option(help="Only this name.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List data sets, the newest first."""
    from itertools import islice

    from cli.client import PAGE_SIZE, Client
    from cli.output import moment, print_json, print_rows

    with Client() as client:
        filters = {"name": name, "kind": kind, "limit": min(limit, PAGE_SIZE)}
        found = list(islice(client.items("/datasets", filters), limit))
    if as_json:
        print_json(found)
        return
    print_rows(
        ("Data set", "Name", "Kind", "Examples", "Created"),
        (
            (row["id"], row["name"] or "", row["kind"], _counts(row), moment(row["created_at"]))
            for row in found
        ),
    )


@datasets.command("show")
def show(
    dataset: DatasetId,
    records: Annotated[int, typer.Option(min=0, max=200, help="Print so many records of each split.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what a data set holds."""
    from cli.client import Client
    from cli.datasets import dataset_path
    from cli.output import console, fields_table, moment, print_json, print_json_line

    with Client() as client:
        shown = client.get(dataset_path(dataset))
        if as_json:
            print_json(shown)
            return
        splits = [(split, _split(about)) for split, about in shown["splits"].items()]
        fields = [(title, shown[title.lower()]) for title in ("Name", "Kind", "Project", "Sha256")]
        created = [("Created", moment(shown["created_at"])), ("By", shown["created_by"])]
        console().print(fields_table([("Data set", shown["id"]), *fields, *created, *splits]))
        for split in shown["splits"] if records else ():
            query = {"split": split, "limit": records}
            for item in client.get(dataset_path(dataset, "records"), query)["items"]:
                print_json_line(item["record"])


@datasets.command("tokens")
def tokens(
    dataset: DatasetId,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of the server, or job:<id>.")],
    split: Annotated[str, typer.Option(help="train, dev or quant.")] = "train",
    max_length: Annotated[int, typer.Option(help="What a job would allow.")] = 2048,
    as_json: AsJson = False,
) -> None:
    """Count the tokens that the records have for a model."""
    from cli.client import SEND_TIMEOUT_S, Client
    from cli.datasets import dataset_path
    from cli.output import console, fields_table, print_json

    query = {"model": model, "split": split, "max_length": max_length}
    with Client(timeout_s=SEND_TIMEOUT_S) as client:
        counted = client.get(dataset_path(dataset, "statistics"), query)
    if as_json:
        print_json(counted)
        return
    shares = [(f"{share} % have at most", length) for share, length in counted["percentiles"].items()]
    over = f"{counted['over_max_length']:.2%} are longer than {max_length}"
    fields = [
        ("Counted", f"{counted['counted']} of {counted['examples']} examples"),
        ("Mean", counted["mean"]),
    ]
    console().print(fields_table([*fields, *shares, ("Longest", counted["max"]), ("Cut", over)]))


@datasets.command("download")
def download(
    dataset: DatasetId, directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")]
) -> None:
    """Store the files of a data set in a new folder."""
    from cli.client import Client
    from cli.datasets import download as fetch

    with Client() as client:
        fetch(client, dataset, directory)
    print(directory)


@datasets.command("delete")
def delete(dataset: DatasetId) -> None:
    """Forget a data set that no job needs."""
    from cli.client import Client
    from cli.datasets import dataset_path

    with Client() as client:
        client.delete(dataset_path(dataset))
    print(f"Data set {dataset} is deleted.")


def _counts(answer: dict[str, Any]) -> str:
    return ", ".join(f"{about['examples']} {split}" for split, about in answer["splits"].items())


def _split(about: dict[str, Any]) -> str:
    characters = about["characters"]
    counts = f"{about['examples']} examples, {about['turns']} turns, {about['bytes']} bytes"
    return f"{counts}; characters: {characters['mean']:g} on average, {characters['max']} at most"
