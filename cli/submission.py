"""Read the file that `regatta submit` is given: an argument file, or the whole body of a POST /jobs."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.errors import INVALID, CliError

QUANTIZE_FLAGS = ("do_ptq", "do_gptq", "do_qat", "do_awq")
PREFERENCE_FILES = ("train_dataset_path", "dev_dataset_path")
KTO_ONLY = ("desirable_weight", "undesirable_weight")
MERGE_ARGUMENTS = frozenset(
    ("lora_path", "model_name_or_path", "output_dir", "dtype", "device", "safe_serialization")
)
EXPORT_ARGUMENTS = frozenset(("model_name_or_path", "output_dir", "device"))
DPO_ONLY = (
    "loss_type",
    "label_smoothing",
    "sft_loss_ratio",
    "pref_loss_ratio",
    "reference_free",
    "simpo_gamma",
    "dpop_lambda",
    "offset_alpha",
    "normalize_logps",
    "ref_model_update_steps",
)


@dataclass(frozen=True)
class Submission:
    """A body for POST /jobs, and how its task was found (empty when the file or the user named it)."""

    body: dict[str, Any]
    guessed_from: str


def read_submission(
    path: Path, task: str | None, overrides: Sequence[str], extras: Mapping[str, Any]
) -> Submission:
    """The job body for a file, with `key=value` overrides in its config and `extras` beside it.

    Raises:
        CliError: the file is not a readable JSON object, an override has no `=`, or nothing tells the task.
    """
    content = read_json_object(path)
    body: dict[str, Any] = dict(content) if isinstance(content.get("config"), dict) else {"config": content}
    body["config"] = body["config"] | parse_overrides(overrides)
    guessed_from = ""
    if task:
        body["task"] = task
    elif "task" not in body:
        body["task"], guessed_from = guess_task(body["config"], path)
    extras = given(**extras)
    for name in ("resources", "secrets"):
        if name in extras and isinstance(body.get(name), dict):
            extras[name] = body[name] | extras[name]
    return Submission(body | extras, guessed_from)


def secrets_of_environment(names: Sequence[str]) -> dict[str, str]:
    """The values of these variables. Raises: CliError for one that is not set."""
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        raise CliError(f"--secret: {', '.join(missing)} is not set in this environment.", INVALID)
    return {name: os.environ[name] for name in names}


def given(**values: Any) -> dict[str, Any]:
    """Those that are set: neither None nor an empty object."""
    return {name: value for name, value in values.items() if value not in (None, {})}


def guess_task(config: Mapping[str, Any], path: Path) -> tuple[str, str]:
    """The task an argument file is for, and the argument names that tell.

    Raises:
        CliError: no argument tells, or DPO and KTO cannot be told apart.
    """
    flags = [name for name in QUANTIZE_FLAGS if config.get(name)]
    if flags:
        return "quantize", ", ".join(flags)
    if any(name in config for name in PREFERENCE_FILES):
        return _preference_task(config, path)
    if "lora_path" in config and MERGE_ARGUMENTS.issuperset(config):
        return "merge", "lora_path without arguments of training"
    if "model_name_or_path" in config and EXPORT_ARGUMENTS.issuperset(config):
        return "export", "model_name_or_path without data"
    if "dataset_name_or_path" in config:
        return "finetune", "dataset_name_or_path"
    raise CliError(f"{path} does not tell its task. Give it, for example: --task finetune.", INVALID)


def _preference_task(config: Mapping[str, Any], path: Path) -> tuple[str, str]:
    for task, names in (("kto", KTO_ONLY), ("dpo", DPO_ONLY)):
        found = [name for name in names if name in config]
        if found:
            return task, ", ".join(found)
    # Nothing but the names of files and folders tells a plain KTO file from a DPO file.
    words = f"{path.name} {config.get('output_dir', '')}".lower()
    told = [task for task in ("dpo", "kto") if task in words]
    if len(told) == 1:
        return told[0], "the name of the file or of output_dir"
    raise CliError(
        f"{path} has preference data but does not tell DPO from KTO. Give --task dpo or --task kto.", INVALID
    )


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """`key=value` words as a dict; a value that is JSON is read as such, any other is text."""
    values: dict[str, Any] = {}
    for word in overrides:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise CliError(f"--set {word}: expected key=value, for example --set max_steps=100.", INVALID)
        try:
            values[name] = json.loads(text, parse_constant=_not_json)
        except ValueError:
            values[name] = text
    return values


def parse_labels(words: Sequence[str]) -> dict[str, str]:
    """`key=value` words as labels; both sides are text."""
    labels: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise CliError(f"--label {word}: expected key=value, for example --label team=search.", INVALID)
        labels[key] = value
    return labels


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; NaN, Infinity and a key given twice are refused, as the server would.

    Raises:
        CliError: the file cannot be read, or holds anything else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}.", INVALID) from error
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.", INVALID) from error
    try:
        content = json.loads(text, parse_constant=_not_json, object_pairs_hook=_no_key_twice)
    except ValueError as error:
        raise CliError(f"{path} is not valid JSON: {error}.", INVALID) from error
    if not isinstance(content, dict):
        raise CliError(f"{path} holds a JSON {type(content).__name__}, expected an object.", INVALID)
    return content


def _not_json(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return content
