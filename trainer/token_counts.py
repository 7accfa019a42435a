"""How many tokens a job's data has: ``python -m trainer.token_counts CONFIG.json [--task TASK]``.

Prints JSON: for every split that the job uses what `trainer.config.estimate.SplitTokens` says, or what is
wrong as ``{"problems": [...]}``, with exit code 2 or 3; ``-`` reads the argument file from standard input. Of
a large split some records are tokenized, spread evenly. Nothing but the tokenizer is loaded: no model, no
Paddle.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import load_tokenizer
from trainer.config import ConfigError, RegattaError, read_config
from trainer.config.data_files import PREFERENCE_FILES, calibration_split
from trainer.config.estimate.tokens import MOST_RECORDS, Counted, SplitTokens, is_packed
from trainer.config.schema import PreferenceConfig, QuantizeConfig, RecordsConfig, SftConfig
from trainer.config.tasks import TASKS_WITH_RECORDS
from trainer.data.batches import epoch_order
from trainer.data.encoding import build_encoder
from trainer.data.files import read_preference_records, read_records
from trainer.data.packing import Packable, pack, padding_share
from trainer.data.preference_encoding import build_preference_encoder
from trainer.preview import limit_resources, read_object

if TYPE_CHECKING:
    from trainer.data.preference import PreferenceExample
    from trainer.data.sft import Example
    from trainer.tokenizers import Tokenizer

TASKS = (*TASKS_WITH_RECORDS, "quantize")


def count_tokens(config: RecordsConfig, most_records: int = MOST_RECORDS) -> Counted:
    """The tokens of every split that a job uses.

    Args:
        config: its paths are absolute, or relative to the working directory.
        most_records: of a split with more, so many are tokenized.

    Raises:
        ConfigError, DataError: the template, the tokenizer or a record cannot be used.
    """
    tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path)
    found = {}
    for split in _splits(config):
        total = sum(1 for _ in _records(config, split))
        stride = max(1, math.ceil(total / most_records))
        chosen = islice(_records(config, split), 0, None, stride)
        examples = list(_examples(config, tokenizer, chosen))
        if examples:
            found[split] = _tally(config, split, examples, total, math.ceil(total / stride))
    return found


def _splits(config: RecordsConfig) -> Iterator[str]:
    if isinstance(config, QuantizeConfig):
        yield calibration_split(Path(config.dataset_name_or_path))
    elif config.do_train:
        yield "train"
    if config.do_eval:
        yield "dev"


def _records(config: RecordsConfig, split: str) -> Iterator[Any]:
    if isinstance(config, PreferenceConfig):
        field = PREFERENCE_FILES[split]
        return read_preference_records(Path(getattr(config, field)), config.task, field)
    return read_records(Path(config.dataset_name_or_path), split)


def _examples(
    config: RecordsConfig, tokenizer: Tokenizer, records: Iterable[Any]
) -> Iterator[Example | PreferenceExample]:
    """The examples of records; those that nothing can be learned from are left out, as in training."""
    if isinstance(config, SftConfig):
        encoder = build_encoder(config, tokenizer)
        yield from (example for record in records if (example := encoder.example(record)).label_tokens)
        return
    preferences = build_preference_encoder(config, tokenizer)
    for record in records:
        encoded = preferences.encoded(record)
        if not preferences.why_left_out(encoded):
            yield preferences.example(encoded)


def _tally(
    config: RecordsConfig,
    split: str,
    examples: Sequence[Example | PreferenceExample],
    records: int,
    tokenized: int,
) -> SplitTokens:
    length = config.max_length if isinstance(config, SftConfig) else config.max_seq_len
    packed = list(pack(examples, length, greedy=config.greedy_zero_padding))
    rows: Sequence[Packable] = packed if is_packed(config) else examples
    trained = split != "dev"
    size = config.per_device_train_batch_size if trained else config.per_device_eval_batch_size
    scale = records / tokenized
    largest = sorted(rows, key=lambda row: row.length)[-size:]
    return SplitTokens(
        records=records,
        sampled=None if tokenized == records else tokenized,
        examples=round(len(examples) * scale),
        tokens=round(sum(example.length for example in examples) * scale),
        label_tokens=round(sum(example.label_tokens for example in examples) * scale),
        longest=max(example.length for example in examples),
        rows=round(len(rows) * scale),
        batch_tokens=sum(row.length for row in largest),
        batch_labels=sum(row.label_tokens for row in largest),
        padding_share=_padding(config, rows, size),
        packed_padding_share=padding_share(packed, length),
    )


def _padding(config: RecordsConfig, rows: Sequence[Packable], size: int) -> float:
    """The share of padding in the batches of the first epoch."""
    fixed = None
    multiple = 1
    if isinstance(config, SftConfig):
        fixed = config.max_length if config.pad_to_max_length or config.zero_padding else None
        multiple = config.pad_to_multiple_of or 1
    order = epoch_order(len(rows), config.seed if config.data_seed is None else config.data_seed, 0)
    lengths = [rows[index].length for index in order]
    padded = 0
    for at in range(0, len(lengths), size):
        batch = lengths[at : at + size]
        padded += len(batch) * math.ceil((fixed or max(batch)) / multiple) * multiple
    return 1.0 - sum(lengths) / padded


def main(argv: Sequence[str] | None = None) -> int:
    """Print the counts of an argument file as JSON; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.token_counts")
    parser.add_argument("config", metavar="CONFIG.json", help="argument file; -: standard input")
    parser.add_argument("--task", choices=TASKS, default="finetune")
    arguments = parser.parse_args(argv)
    limit_resources()
    code = 0
    answer: dict[str, Any]
    try:
        reading = read_config(arguments.task, read_object(arguments.config))
        if not isinstance(reading.config, RecordsConfig):
            raise ConfigError(reading.problems)
        answer = {name: asdict(split) for name, split in count_tokens(reading.config).items()}
    except RegattaError as error:
        answer, code = {"problems": [problem.as_dict() for problem in error.problems]}, error.exit_code
    print(json.dumps(answer))
    return code


if __name__ == "__main__":
    sys.exit(main())
