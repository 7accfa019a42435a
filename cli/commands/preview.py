"""The command that shows what a job would train on."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.errors import INVALID, CliError


def preview(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.json", help="The argument file.")],
    examples: Annotated[int, typer.Option(min=1, help="How many records, from the first on.")] = 2,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace an argument.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="What the file is for; else its arguments tell.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the first training examples token by token, and what is learned of them; of task quantize the
    first examples to calibrate with.
    """
    from cli.output import print_json
    from cli.submission import guess_task, read_json_object
    from trainer.config.schema import RecordsConfig
    from trainer.config.tasks import TASKS_WITH_RECORDS
    from trainer.events import EventWriter
    from trainer.preview import preview as read_preview
    from trainer.run import read_arguments

    task = task or guess_task(read_json_object(config), config)[0]
    arguments = read_arguments(task, config, overrides or [], EventWriter())
    if not isinstance(arguments, RecordsConfig):
        raise CliError(
            f"task {task} reads no records. Those that do: {', '.join(TASKS_WITH_RECORDS)}.", INVALID
        )
    found = read_preview(arguments, examples)
    if as_json:
        print_json(found)
    else:
        _show(found, calibrating=task == "quantize")


def _show(found: dict[str, Any], *, calibrating: bool) -> None:
    from rich.text import Text

    from cli.output import console

    screen = console()

    def say(text: str, style: str = "") -> None:
        screen.print(Text(text, style=style), soft_wrap=True)

    use = ", to calibrate with: nothing is learned" if calibrating else ""
    say(f"{found['split']} split{use}, {found['template'] or 'raw text, no chat template'}")
    for warning in found["warnings"]:
        say(f"warning: {warning['msg']}. {warning['hint']}")
    for example in found["examples"]:
        say("")
        say(_headline(example, calibrating=calibrating), "bold")
        for position, token in enumerate(example["tokens"]):
            mark = token.get("response") or ("learned" if token["learned"] else "masked")
            mark = "" if calibrating else f"{mark:11} "
            line = f"{position:6} {token['id']:8} {mark}{token['text']!r}"
            say(line, "" if calibrating else "green" if token["learned"] else "dim")


def _headline(example: dict[str, Any], *, calibrating: bool) -> str:
    learned = "" if calibrating else f", {example['label_tokens']} learned"
    parts = [f"{example['location']}: {example['length']} tokens{learned}"]
    if example["cut"]:
        parts.append("an answer is cut and has no end")
    if example["lost_turns"]:
        parts.append(f"{example['lost_turns']} earlier turns are left out")
    if example["left_out"]:
        parts.append(f"left out: {example['left_out']}")
    return "; ".join(parts)
