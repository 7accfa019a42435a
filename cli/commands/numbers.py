"""The commands that show a job's numbers: metrics as a table, and one of them as a curve."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.commands.jobs import CLIENT_PANEL, JobId

if TYPE_CHECKING:
    from cli.client import Client

Kind = Annotated[
    Literal["train", "eval"], typer.Option(help="Those of training steps, or those of evaluations.")
]


def add_to(app: typer.Typer) -> None:
    for command in (metrics, plot):
        app.command(rich_help_panel=CLIENT_PANEL)(command)


def metrics(
    job: JobId,
    kind: Kind = "train",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends; with --json only.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the server's JSON, a metric a line.")
    ] = False,
) -> None:
    """Print a job's numbers step by step: loss, learning rate, speed …"""
    from cli.client import Client
    from cli.metrics import names, read_metrics
    from cli.output import console, number, print_json_line, table

    if follow and not as_json:
        raise typer.BadParameter("--follow goes with --json; a curve that goes on is `regatta plot -f`")
    with Client() as client:
        found = read_metrics(client, job, kind=kind, follow=follow)
        if as_json:
            for metric in found:
                print_json_line(metric)
            return
        rows = list(found)
    if not rows:
        console(stderr=True).print(f"No {kind} metrics.")
        return
    columns = names(rows)
    shown = ([str(row["step"]), *(number(row["values"].get(name)) for name in columns)] for row in rows)
    console().print(table(("step", *columns), shown))


def plot(
    job: JobId,
    metric: Annotated[str, typer.Option(help="Which number, as `regatta metrics` calls it.")] = "loss",
    kind: Kind = "train",
    height: Annotated[int, typer.Option(min=2, max=100, help="Lines of the curve.")] = 12,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Redraw the curve until the job ends.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the points: a list of step and value.")
    ] = False,
) -> None:
    """Draw a number of a job over its steps, in the terminal."""
    from cli.client import Client
    from cli.output import console, print_json
    from cli.plot import step_plot

    screen = console()
    width = screen.width if screen.is_terminal else 100

    def drawn(points: dict[int, float]) -> str:
        return step_plot(points, metric, width, height) if points else f"No {metric} yet."

    with Client() as client:
        if follow and screen.is_terminal and not as_json:
            _draw_on(client, job, metric, kind, drawn)
            return
        points = _read(client, job, metric, kind, follow)
    if as_json:
        print_json([{"step": step, "value": points[step]} for step in sorted(points)])
    else:
        print(drawn(points))


def _read(client: "Client", job: str, metric: str, kind: str, follow: bool) -> dict[int, float]:
    """The finite values of a metric by step.

    Raises: CliError where the job has other metrics but not this one.
    """
    from cli.errors import INVALID, CliError
    from cli.metrics import names, point, read_metrics

    rows = list(read_metrics(client, job, kind=kind, follow=follow))
    known = names(rows)
    if rows and metric not in known:
        raise CliError(f"--metric {metric}: the job has {', '.join(known)}.", INVALID)
    points = ((row["step"], point(row, metric)) for row in rows)
    return {step: value for step, value in points if value is not None}


def _draw_on(
    client: "Client", job: str, metric: str, kind: str, drawn: Callable[[dict[int, float]], str]
) -> None:
    """Draw the curve anew as it grows, until the job has ended."""
    from rich.live import Live
    from rich.text import Text

    from cli.metrics import point, read_metrics
    from cli.output import console

    points: dict[int, float] = {}
    with Live(Text(drawn(points)), console=console()) as live:
        for row in read_metrics(client, job, kind=kind, follow=True):
            value = point(row, metric)
            if value is not None:
                points[row["step"]] = value
                live.update(Text(drawn(points)))
