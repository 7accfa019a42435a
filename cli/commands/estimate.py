"""The command that says what a job will take."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cli.errors import INVALID, CliError


def estimate(
    task: Annotated[str, typer.Argument(help="The task, for example finetune.")],
    config: Annotated[Path, typer.Argument(metavar="CONFIG.json", help="The argument file.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace an argument.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="How many devices; by default what the config needs.")
    ] = None,
    device: Annotated[
        Literal["cpu", "gpu"] | None, typer.Option(help="Kind of device; by default the config's.")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=0, help="Fail when a device needs more memory than this."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a job will take, without running it: parameters, memory, tokens, steps, checkpoints."""
    from cli.output import console, print_json, problem_table
    from trainer.config import load_config
    from trainer.config.estimate import estimate_job
    from trainer.config.estimate.doubts import doubts
    from trainer.config.estimate.fit import GIB, too_large
    from trainer.config.preflight import check_job, path_problems
    from trainer.config.tasks import task_problem
    from trainer.config.topology import Topology

    if problem := task_problem(task):
        raise CliError(str(problem), INVALID)
    reading = load_config(task, config, overrides or [])
    if reading.config is None:
        problems = [*reading.problems, *path_problems(reading, None, Path.cwd())]
        raise _refused(config, problems)
    checked = check_job(reading.config, None, Path.cwd(), devices)
    if checked.problems:
        raise _refused(config, checked.problems)
    topology = Topology.of(checked.config, devices)
    kind = device or _device_of(reading.given)
    counted, why = _counted(checked.config)
    found = estimate_job(checked, topology, kind, counted, why)
    warnings = [*reading.warnings, *checked.warnings, *doubts(checked.config, found)]
    if as_json:
        print_json({**found.as_dict(), "warnings": [warning.as_dict() for warning in warnings]})
    else:
        screen = console()
        screen.print(_table(found, topology.world, kind))
        if warnings:
            screen.print()
            screen.print(problem_table(warning.as_dict() for warning in warnings))
    if memory is not None:
        problem = too_large(found, checked.config, topology, kind, int(memory * GIB))
        if problem:
            raise CliError(f"{problem.msg}. {problem.hint}", INVALID)


def _refused(path: Path, problems: Any) -> CliError:
    return CliError(f"{path} cannot be run.", INVALID, [problem.as_dict() for problem in problems])


def _device_of(given: dict[str, Any]) -> Literal["cpu", "gpu"]:
    return "cpu" if str(given.get("device")) == "cpu" or given.get("no_cuda") is True else "gpu"


def _counted(config: Any) -> tuple[Any, str | None]:
    """The tokens of the data, or why they are not known."""
    from trainer.config import RegattaError
    from trainer.config.schema import RecordsConfig
    from trainer.token_counts import count_tokens

    if not isinstance(config, RecordsConfig):
        return None, None
    if not Path(config.tokenizer_name_or_path or config.model_name_or_path).is_dir():
        return None, "data: the number of tokens needs the tokenizer, which is fetched when the job starts"
    try:
        return count_tokens(config), None
    except RegattaError as error:
        return None, f"data: the tokens cannot be counted: {error.problems[0]}"


def _table(found: Any, devices: int, kind: str) -> Any:
    """The estimate for people."""
    from cli.output import fields_table

    return fields_table([*_sizes(found), *_memory(found, devices, kind), *_data(found), *_written(found)])


def _sizes(found: Any) -> list[tuple[str, object]]:
    if found.parameters is None:
        return []
    share = 100 * found.trainable_parameters / found.parameters
    return [
        ("parameters", f"{found.parameters:,}"),
        ("trainable", f"{found.trainable_parameters:,} ({share:.3g} %)"),
        ("adapter", f"{found.adapter_parameters:,}" if found.adapter_parameters else None),
    ]


def _memory(found: Any, devices: int, kind: str) -> list[tuple[str, object]]:
    from dataclasses import asdict

    from trainer.config.estimate.fit import WORDS, gib

    if found.memory is None:
        return []
    where = "" if found.memory.stage is None else f" of pipeline stage {found.memory.stage}"
    rows: list[tuple[str, object]] = [
        ("devices", f"{devices} {kind}"),
        ("memory of each", f"{gib(found.memory.total)}, most at {found.memory.moment}{where}"),
    ]
    parts = sorted(asdict(found.memory.parts).items(), key=lambda part: -part[1])
    return rows + [(f"  {WORDS.get(name, name)}", gib(size)) for name, size in parts if size]


def _data(found: Any) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for name, split in (found.data or {}).items():
        text = f"{split.tokens:,} tokens in {split.examples:,} examples, {split.label_tokens:,} learned,"
        text += f" longest {split.longest:,}, {split.padding_share:.1%} of a batch is padding"
        if split.packed_padding_share is not None:
            text += f" ({split.packed_padding_share:.1%} with zero_padding)"
        rows.append((f"{name} data", text))
    steps = found.optimizer_steps
    return [
        *rows,
        ("optimizer steps", f"{steps:,}" if steps is not None else None),
        ("tokens per step", f"{found.tokens_per_step:,}" if found.tokens_per_step else None),
        ("tokens of the run", f"{found.run_tokens:,}" if found.run_tokens else None),
    ]


def _written(found: Any) -> list[tuple[str, object]]:
    from trainer.config.estimate.fit import gib

    rows: list[tuple[str, object]] = []
    if found.checkpoints is not None:
        files = found.checkpoints
        rows.append(("checkpoint", f"{gib(files.bytes)} (weights {gib(files.weights_bytes)})"))
        if files.saves is not None:
            rows.append(("checkpoints", f"{files.saves} written, {files.kept} kept"))
            rows.append(("on disk", f"{gib(files.total_bytes)} at most"))
    return rows + [("note", note) for note in found.notes]
