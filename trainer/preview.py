"""What a job would train on: the first records as tokens, with what is learned and what is masked. Of task
quantize: what it is calibrated on.

``python -m trainer.preview CONFIG.json [--task TASK] [--examples N]`` prints the preview as JSON; ``-`` reads
the argument file from standard input. What is wrong with arguments or data is printed as
``{"problems": [...]}``, with exit code 2 or 3. Nothing but the tokenizer is loaded: no model, no Paddle.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import load_tokenizer
from trainer.config import ConfigError, RegattaError, read_config, strict_json
from trainer.config.data_files import calibration_split
from trainer.config.schema import QuantizeConfig, RecordsConfig, SftConfig
from trainer.config.tasks import TASKS_WITH_RECORDS
from trainer.data.dataset import why_nothing_is_learned
from trainer.data.encoding import build_encoder, ending_warning
from trainer.data.files import read_records
from trainer.data.sft import IGNORE, Example
from trainer.preference_preview import preference_preview

if TYPE_CHECKING:
    from trainer.tokenizers import Tokenizer

#: What the process may use: a chat template is a program of the user's.
MOST_CPU_SECONDS = 60
MOST_MEMORY = 4 << 30
#: How many tokens of an example are shown.
MOST_TOKENS = 4096


def preview(config: RecordsConfig, examples: int) -> dict[str, Any]:
    """The first records of the training data (of the dev data, when nothing is trained).

    Args:
        config: its paths are absolute, or relative to the working directory. Of quantize the first records to
            calibrate with are shown: the tokens that go into the model, of which none is learned.
        examples: how many.

    Returns:
        split; template (its file, None for raw text); warnings; examples, each with location, tokens (id,
        text, learned, and response in dpo and kto; at most `MOST_TOKENS`), length, label_tokens, cut,
        lost_turns, and left_out (why the record is not trained on, else None).

    Raises:
        ConfigError, DataError: the template, the tokenizer or a record cannot be used.
    """
    if not isinstance(config, SftConfig):
        return preference_preview(config, examples, MOST_TOKENS)
    tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path)
    encoder = build_encoder(config, tokenizer)
    calibrating = isinstance(config, QuantizeConfig)
    split = _split(config)
    warning = ending_warning(config, tokenizer)
    shown = []
    for record in islice(read_records(Path(config.dataset_name_or_path), split), examples):
        example = encoder.example(record)
        left_out = None if example.label_tokens else why_nothing_is_learned(example, config.max_length)
        pairs = _inputs(example) if calibrating else _learned(example)
        shown.append(
            {
                "location": record.location,
                "tokens": list(_tokens(pairs, tokenizer)),
                "length": len(pairs),
                "label_tokens": sum(learned for _, learned in pairs),
                "cut": example.cut,
                "lost_turns": example.lost_turns,
                "left_out": left_out,
            }
        )
    warnings = [warning.as_dict()] if warning else []
    return {"split": split, "template": encoder.template, "warnings": warnings, "examples": shown}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the preview of an argument file as JSON; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.preview")
    parser.add_argument("config", metavar="CONFIG.json", help="argument file; -: standard input")
    parser.add_argument("--task", choices=TASKS_WITH_RECORDS, default="finetune")
    parser.add_argument("--examples", type=int, default=2, metavar="N")
    arguments = parser.parse_args(argv)
    limit_resources()
    try:
        reading = read_config(arguments.task, read_object(arguments.config))
        if not isinstance(reading.config, RecordsConfig):
            raise ConfigError(reading.problems)
        answer, code = preview(reading.config, arguments.examples), 0
    except RegattaError as error:
        answer, code = {"problems": [problem.as_dict() for problem in error.problems]}, error.exit_code
    print(json.dumps(answer))
    return code


def limit_resources() -> None:
    """Allow this process only so much time and memory, for what it runs may be a program of the user's."""
    _limit(resource.RLIMIT_CPU, MOST_CPU_SECONDS)
    _limit(resource.RLIMIT_AS, MOST_MEMORY)


def read_object(path: str) -> Any:
    """The JSON in a file, or with "-" in standard input. Raises: ConfigError."""
    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return strict_json.loads(content)
    except strict_json.NotJsonError as error:
        raise ConfigError(f"the argument file is not JSON: {error}") from None


def _limit(kind: int, most: int) -> None:
    """Allow this process `most` of something, or what little it is allowed already."""
    _, allowed = resource.getrlimit(kind)
    limit = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(kind, (limit, limit))


def _split(config: SftConfig) -> str:
    """The split that the job begins with."""
    if isinstance(config, QuantizeConfig):
        return calibration_split(Path(config.dataset_name_or_path))
    return "train" if config.do_train else "dev"


def _learned(example: Example) -> list[tuple[int, bool]]:
    """The tokens of an example, each with whether it is learned; the last one is only a label."""
    labels = example.labels.tolist()
    if not labels:
        return []
    ids = [*example.input_ids.tolist(), labels[-1]]
    return list(zip(ids, [False, *(label != IGNORE for label in labels)], strict=True))


def _inputs(example: Example) -> list[tuple[int, bool]]:
    """The tokens of an example that go into the model, as `_learned` gives them."""
    return [(token, False) for token in example.input_ids.tolist()]


def _tokens(pairs: list[tuple[int, bool]], tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Tokens with their texts, of very many the first and the last ones."""
    if len(pairs) > MOST_TOKENS:
        pairs = pairs[: MOST_TOKENS // 2] + pairs[-MOST_TOKENS // 2 :]
    for token, learned in pairs:
        if token != IGNORE:
            text = tokenizer.decode([token], skip_special_tokens=False)
            yield {"id": token, "text": text, "learned": learned}


if __name__ == "__main__":
    sys.exit(main())
