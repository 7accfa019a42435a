"""The page for PaddleNLP's users, made from the fields: `python -m trainer.config.migration_page [FILE]`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

from trainer.config.names import ALIASES, DROPPED
from trainer.config.page import cell, write_page
from trainer.config.schema import CONFIGS
from trainer.config.standing import standing_of
from trainer.config.values import show

FILE = Path("docs/migration-from-paddlenlp.md")

INTRODUCTION = """# Coming from PaddleNLP

Made by `python -m trainer.config.migration_page`; do not edit.

The argument file is the `config` of a job, unchanged. `run_finetune.py` is task `finetune`,
`run_quantization.py` is `quantize`, `run_dpo.py` is `dpo` and `run_kto.py` is `kto`. Paths are looked for
below the service's roots. Values and defaults of each argument: [the argument file](config.md).

## What trains differently

* A step is the mean over its label tokens, and micro-batches left at the end of an epoch are a step of their
  own. PaddleNLP takes a mean of means, and left-over gradients go into the next epoch
  ([005](decisions/005-a-step-is-a-mean-over-tokens.md)).
* All turns of a record are learned; PaddleNLP learns only the first one where there is no chat template
  ([005](decisions/005-a-step-is-a-mean-over-tokens.md)).
* Preference losses count every token of both responses; PaddleNLP drops the first one of each rejected
  response ([009](decisions/009-preference-losses-follow-paddlenlp.md)).
* KL terms of kto and of the loss `kto_pair` are means over a whole step, not over a micro-batch
  ([010](decisions/010-what-a-loss-takes-from-the-whole-step.md)).
* kto pairs a prompt with the response of the next record that has another prompt; in PaddleNLP some get their
  own ([010](decisions/010-what-a-loss-takes-from-the-whole-step.md)).
"""


def render() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_renamed(), *_limited(), *_same()]) + "\n"


def _fields() -> dict[str, FieldInfo]:
    """Each argument, as the first task that has it declares it."""
    fields: dict[str, FieldInfo] = {}
    for config in CONFIGS.values():
        for name, field in config.model_fields.items():
            fields.setdefault(name, field)
    return dict(sorted(fields.items()))


def _renamed() -> Iterator[str]:
    yield "## Names of other releases\n"
    yield "| name | becomes |"
    yield "| --- | --- |"
    for old, new in ALIASES.items():
        yield f"| `{old}` | renamed, with a warning: `{new}` |"
    for old, remedy in DROPPED.items():
        yield f"| `{old}` | refused: {cell(remedy)} |"
    yield ""


def _limited() -> Iterator[str]:
    yield "## Ignored with a warning, or refused\n"
    yield "Only values beside the default, and beside those named, are.\n"
    yield "| argument | becomes | because |"
    yield "| --- | --- | --- |"
    for name, field in _fields().items():
        standing = standing_of(field)
        if standing.kind == "supported":
            continue
        becomes = "ignored with a warning" if standing.kind == "no_effect" else "refused"
        if standing.harmless:
            becomes += f" (not {', '.join(map(show, standing.harmless))})"
        yield f"| `{name}` | {cell(becomes)} | {cell(standing.reason)} |"
    yield ""


def _same() -> Iterator[str]:
    yield "## The same\n"
    yield "These do what they say, some within limits that [the argument file](config.md) tells:\n"
    supported = [name for name, field in _fields().items() if standing_of(field).kind == "supported"]
    yield ", ".join(f"`{name}`" for name in supported) + "."


def main(arguments: list[str]) -> None:
    """Write the page to the given file, or to its place in docs."""
    write_page(
        arguments, "trainer.config.migration_page", "Write the page for PaddleNLP's users.", FILE, render
    )


if __name__ == "__main__":
    main(sys.argv[1:])
