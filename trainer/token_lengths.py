"""How many tokens records have: for choosing max_length before a job is made.

``python -m trainer.token_lengths MODEL --kind KIND [--every K] [--max-length N]`` reads JSON lines from
standard input and prints JSON; of every K lines the first is counted. What is wrong with the tokenizer, its
chat template or a record is printed as ``{"problems": [...]}``, with exit code 2 or 3. Only the tokenizer is
loaded.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from trainer import load_tokenizer
from trainer.config import ConfigError, RegattaError, read_config
from trainer.config.data_kinds import KINDS, PARSERS
from trainer.config.lengths import Lengths
from trainer.config.preference_records import PreferenceRecord
from trainer.config.problems import DataError, Problem
from trainer.config.records import RecordError, SftRecord
from trainer.config.schema import DpoConfig, KtoConfig, SftConfig
from trainer.data.encoding import build_encoder
from trainer.data.preference_encoding import build_preference_encoder
from trainer.preview import limit_resources

PERCENTILES = (50, 90, 95, 99)
_WITHOUT_LIMIT = 1 << 24
_TASKS = {"sft": "finetune", "dpo": "dpo", "kto": "kto"}


def token_lengths(
    model: str, kind: str, lines: Iterable[bytes], every: int = 1, max_length: int = 2048
) -> dict[str, Any]:
    """Count the tokens of records, encoded as a job does that says nothing of a chat template.

    Args:
        model: a folder with a tokenizer.
        kind: sft, dpo or kto. A record of dpo has the tokens of both responses.
        every: count the first of every so many lines.
        max_length: what a job would allow.

    Returns:
        `counted`; `template` (its file, None for raw text); of the counted ones `total`, `mean`, `max`,
        `histogram`, `percentiles` and `over_max_length` (the share that is longer).

    Raises:
        ConfigError, DataError: the template, the tokenizer or a record cannot be used.
    """
    measure, template = _measure(model, kind)
    lengths, seen = Lengths(), []
    for number, line in enumerate(lines, 1):
        if (number - 1) % every == 0:
            length = measure(_record(kind, number, line))
            lengths.add(length)
            seen.append(length)
    seen.sort()
    over = sum(length > max_length for length in seen)
    return {
        "counted": lengths.count,
        "template": template,
        **lengths.as_dict(),
        "percentiles": {str(share): _percentile(seen, share) for share in PERCENTILES},
        "over_max_length": round(over / len(seen), 6) if seen else 0.0,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the lengths of the records in standard input as JSON; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.token_lengths")
    parser.add_argument("model", metavar="MODEL", help="folder with a tokenizer")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--every", type=int, default=1, metavar="K")
    parser.add_argument("--max-length", type=int, default=2048, metavar="N")
    arguments = parser.parse_args(argv)
    limit_resources()
    try:
        answer = token_lengths(
            arguments.model, arguments.kind, sys.stdin.buffer, arguments.every, arguments.max_length
        )
        code = 0
    except RegattaError as error:
        answer, code = {"problems": [problem.as_dict() for problem in error.problems]}, error.exit_code
    print(json.dumps(answer))
    return code


def _measure(model: str, kind: str) -> tuple[Callable[[Any], int], str | None]:
    """What counts the tokens of a record, and the file of the chat template."""
    data = {"dataset_name_or_path": "."} if kind == "sft" else {"train_dataset_path": "."}
    reading = read_config(
        _TASKS[kind], {"model_name_or_path": model, "output_dir": ".", "do_train": True, **data}
    )
    tokenizer, config = load_tokenizer(model), reading.config
    if isinstance(config, DpoConfig | KtoConfig):
        form = build_preference_encoder(config, tokenizer).form

        def preference(record: PreferenceRecord) -> int:
            prompt, responses = form.ids(record, 0)
            return len(prompt) + sum(map(len, responses))

        return preference, form.template
    if not isinstance(config, SftConfig):
        raise ConfigError(reading.problems)
    encoder = build_encoder(config, tokenizer, src_length=_WITHOUT_LIMIT, max_length=_WITHOUT_LIMIT)

    def sft(record: SftRecord) -> int:
        return len(encoder.example(record).input_ids) + 1  # the last token is only a label

    return sft, encoder.template


def _record(kind: str, number: int, line: bytes) -> Any:
    try:
        return replace(PARSERS[kind](line), location=f"line {number}")
    except RecordError as error:
        raise DataError(Problem((number,), f"line {number}: {error.message}")) from None


def _percentile(ordered: Sequence[int], share: int) -> int:
    """The smallest length that at least `share` percent do not exceed."""
    return ordered[max(-(-len(ordered) * share // 100) - 1, 0)] if ordered else 0


if __name__ == "__main__":
    sys.exit(main())
