"""The command that lets a model write, in this process."""

import logging
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from trainer.tools.generate import Completion
    from trainer.tools.generate_options import GenerateOptions


class EarlyStopping(StrEnum):
    """When beam search ends."""

    OFF = "off"
    ON = "on"
    NEVER = "never"


class Dtype(StrEnum):
    """Of the parameters."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


_EARLY = {EarlyStopping.OFF: False, EarlyStopping.ON: True, EarlyStopping.NEVER: "never"}
_SAMPLING, _BEAMS = "With --sample", "Beam search"


def generate(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A model's directory, or its hub name.")],
    prompts: Annotated[
        list[str] | None, typer.Option("--prompt", help="A text to go on from; may be repeated.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help='JSON lines with a "prompt" each.')
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Where to, as JSON lines in the same order."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 64,
    batch_size: Annotated[int, typer.Option(help="Prompts that run together; changes no answer.")] = 8,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: say nothing twice.")] = 1.0,
    dtype: Annotated[Dtype, typer.Option(help="Of the parameters.")] = Dtype.FLOAT32,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list of prompt and completion.")
    ] = False,
    do_sample: Annotated[
        bool, typer.Option("--sample", help="Draw tokens.", rich_help_panel=_SAMPLING)
    ] = False,
    temperature: Annotated[
        float, typer.Option(help="Above 1: more daring.", rich_help_panel=_SAMPLING)
    ] = 1.0,
    top_k: Annotated[
        int, typer.Option(help="Draw among so many tokens; 0: all.", rich_help_panel=_SAMPLING)
    ] = 0,
    top_p: Annotated[
        float, typer.Option(help="Draw among tokens of this probability in all.", rich_help_panel=_SAMPLING)
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the draws.", rich_help_panel=_SAMPLING)] = 0,
    num_beams: Annotated[int, typer.Option(help="Sequences kept; 1: none.", rich_help_panel=_BEAMS)] = 1,
    length_penalty: Annotated[
        float, typer.Option(help="Above 0: favour long answers.", rich_help_panel=_BEAMS)
    ] = 1.0,
    early_stopping: Annotated[
        EarlyStopping, typer.Option(help="End with as many answers as beams.", rich_help_panel=_BEAMS)
    ] = EarlyStopping.OFF,
) -> None:
    """Let a model go on from prompts: with the likeliest token, by drawing, or by beam search."""
    from cli.prompts import FIELD, completed

    _refuse_graph(Path(directory))
    options = _options(
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        repetition_penalty=repetition_penalty,
        do_sample=do_sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        num_beams=num_beams,
        length_penalty=length_penalty,
        early_stopping=_EARLY[early_stopping],
    )
    records = _records(prompts or [], source, target)
    completions = _complete(directory, dtype, [record[FIELD] for record in records], options)
    _show(completed(records, completions), source, target, as_json)


def _refuse_graph(directory: Path) -> None:
    """Raises CliError for what `regatta export` has made: it computes logits, and has nothing to load."""
    from cli.errors import INVALID, CliError

    if (directory / "model.pdiparams").is_file() and not (directory / "config.json").exists():
        msg = (
            f"{directory} holds a graph that was exported for Paddle's inference library, not a model. "
            "Name the model that it was made of; a graph is run with paddle.jit.load."
        )
        raise CliError(msg, INVALID)


def _options(**values: Any) -> "GenerateOptions":
    """The options; what is wrong with them is said in the words of the command line."""
    from dataclasses import fields

    from cli.errors import INVALID, CliError
    from trainer.config.problems import ConfigError
    from trainer.tools.generate_options import GenerateOptions

    try:
        return GenerateOptions(**values)
    except ConfigError as error:
        names = {field.name: f"--{field.name.replace('_', '-')}" for field in fields(GenerateOptions)}
        names["do_sample"] = "--sample"

        def said(text: object) -> str:
            return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), f"{text}")

        problems = [
            {
                "loc": [said(part) for part in problem.loc],
                "msg": said(problem.msg),
                "hint": said(problem.hint),
            }
            for problem in error.problems
        ]
        raise CliError("These options cannot be used:", INVALID, problems) from error


def _records(prompts: list[str], source: Path | None, target: Path | None) -> list[dict[str, Any]]:
    """What to go on from; everything that is wrong with it is said before a model is loaded."""
    from cli.errors import INVALID, CliError
    from cli.prompts import FIELD, read_prompts

    if target and not target.absolute().parent.is_dir():
        raise CliError(f"--output {target}: there is no folder {target.absolute().parent}.", INVALID)
    if bool(prompts) == bool(source):
        raise CliError("Give --prompt (once or several times) or --input FILE, one of the two.", INVALID)
    return read_prompts(source) if source else [{FIELD: prompt} for prompt in prompts]


def _complete(
    directory: str, dtype: str, prompts: list[str], options: "GenerateOptions"
) -> "list[Completion]":
    from cli.errors import INVALID, CliError
    from trainer import load_model, load_tokenizer
    from trainer.config.problems import DataError
    from trainer.tools.generate import complete

    def progress(done: int) -> None:
        if sys.stderr.isatty() and len(prompts) > options.batch_size:
            print(f"\r{done} of {len(prompts)} prompts", end="\n" * (done == len(prompts)), file=sys.stderr)

    _show_warnings()
    model, tokenizer = load_model(directory, dtype), load_tokenizer(directory)
    try:
        return complete(model, tokenizer, prompts, options, progress)
    except DataError as error:
        problems = [problem.as_dict() for problem in error.problems]
        raise CliError("The model cannot go on from these prompts:", INVALID, problems) from error


def _show_warnings() -> None:
    """Let what the trainer warns of be read; importing Paddle leaves a handler that shows nothing."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("warning: %(message)s"))
    logging.getLogger("trainer").addHandler(handler)


def _show(records: list[dict[str, Any]], source: Path | None, target: Path | None, as_json: bool) -> None:
    from cli.output import print_json
    from cli.prompts import json_lines
    from trainer.files import atomic_file

    if target:
        with atomic_file(target) as file:
            file.write(json_lines(records).encode())
    elif as_json:
        print_json(records)
    elif source:
        print(json_lines(records), end="")
    else:
        for record in records:
            print(record["completion"])
