"""The commands that run one task of the trainer from a few words, without an argument file."""

import json
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class Dtype(StrEnum):
    """Of the merged model."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def merge(
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="Folder of a LoRA adapter.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; must be new or empty.")],
    base: Annotated[
        str | None, typer.Option(help="The base model's folder or hub name, if the adapter's is not right.")
    ] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Of the result; by default the base model's.")] = None,
) -> None:
    """Make one model of a LoRA adapter and its base model, tensor by tensor."""
    from cli.archive import refuse_used

    refuse_used(directory)
    config = {"lora_path": str(adapter.absolute()), "output_dir": str(directory.absolute())}
    _run("merge", config | {"model_name_or_path": base, "dtype": dtype})


def export(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder of a model, quantized or not, or a hub name.")
    ],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; must be new or empty.")],
) -> None:
    """Make a static graph of a model, for Paddle's inference library, and run it once."""
    from cli.archive import refuse_used

    refuse_used(directory)
    _run("export", {"model_name_or_path": model, "output_dir": str(directory.absolute())})


def evaluate(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder of a model or an adapter, or a hub name.")
    ],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Folder with dev.json or dev/.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where eval_results.json goes.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set an argument of finetune.")
    ] = None,
) -> None:
    """Measure a model or an adapter on dev data: loss, accuracy, perplexity."""
    config = {"dataset_name_or_path": str(data.absolute()), "output_dir": str(directory.absolute())}
    _run("evaluate", config | {"model_name_or_path": model}, overrides or [])


def _run(task: str, config: dict[str, Any], overrides: list[str] | None = None) -> None:
    """Run the trainer in this process; its exit code is that of the command."""
    from trainer.run import main

    words = [word for override in overrides or [] for word in ("--set", override)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{task}.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        code = main([task, str(path), *words])
    raise typer.Exit(code)
