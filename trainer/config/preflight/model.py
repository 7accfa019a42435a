"""The model folder: what it is, and whether its weights and tokenizer are all there. Reads no tensor."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from trainer.config.preflight.folder import (
    FolderError,
    check_if_there,
    json_object,
    plain_file,
    problem_of,
    small_file,
)
from trainer.config.preflight.paths import Finder
from trainer.config.preflight.quantized import quantized_problems
from trainer.config.preflight.unchanged import folder_while_unchanged
from trainer.config.preflight.weights import Weights, read_weights
from trainer.config.problems import Problem
from trainer.config.quantized_models import QUANTIZATION
from trainer.config.schema import ExportConfig, QuantizeConfig, RecordsConfig, SftConfig
from trainer.config.splitting import Shape, copied_keys, misfits
from trainer.config.topology import ONE_PROCESS, Topology
from trainer.config.values import show

T = TypeVar("T")

MODEL = "model_name_or_path"
TOKENIZER = "tokenizer_name_or_path"
CONFIG_FILE = "config.json"
MODEL_TYPES = ("gemma", "bloom")
# Sizes that have no default, each with the names it may have in config.json.
NEEDED = {
    "bloom": (
        ("hidden_size", "n_embed", "n_embd"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
    )
}
#: Kinds of tokenizer, each by the files it consists of.
TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))
# Read by trainers when they are there, and copied beside what they save.
MODEL_SIDE_FILES = ("generation_config.json",)
TOKENIZER_SIDE_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
LAYERS = ("num_hidden_layers", "n_layer")
WIDTH = ("hidden_size", "n_embed", "n_embd")
VOCABULARY = ("vocab_size",)


def check_model(
    folder: Path,
    finder: Finder,
    config: RecordsConfig | ExportConfig | None,
    topology: Topology = ONE_PROCESS,
) -> tuple[list[Problem], list[Problem], dict[str, Any]]:
    """Problems, warnings and statistics (`model_type`, `tensors`, `bytes`) of a model folder.

    Warnings are about training as `config` says; None: the model is not trained. `topology` says how it is
    split.
    """
    problems: list[Problem] = []
    warnings: list[Problem] = []
    statistics: dict[str, Any] = {}
    content: dict[str, Any] = {}
    files = folder_while_unchanged(("model", finder), folder, partial(_Files.look, folder, finder))
    try:
        content = _given(files.content)
        statistics["model_type"] = _model_type(content)
        if isinstance(config, RecordsConfig):
            warnings += _doubts(content, config)
        if isinstance(config, QuantizeConfig) and QUANTIZATION in content:
            msg = f"{folder} is quantized already, expected a model with floating-point weights"
            problems.append(Problem((MODEL,), msg, "Name the model that it was made of."))
        elif not isinstance(config, ExportConfig):
            problems += quantized_problems(content, config, topology)
        if shape := Shape.of(content):
            problems += misfits(shape, topology)
            warnings += copied_keys(shape, topology)
    except (FolderError, OSError) as error:
        problems.append(problem_of((MODEL, CONFIG_FILE), error))
    try:
        weights = _given(files.weights)
        statistics |= {"tensors": weights.tensors, "bytes": weights.bytes}
        problems += _misfits(content, weights)
    except (FolderError, OSError) as error:
        problems.append(problem_of((MODEL,), error))
    return problems, warnings, statistics


@dataclass(frozen=True)
class _Files:
    """What the files of a model folder hold, or why they cannot be used: the object in config.json, and the
    weights.
    """

    content: dict[str, Any] | FolderError | OSError
    weights: Weights | FolderError | OSError

    @classmethod
    def look(cls, folder: Path, finder: Finder) -> "_Files":
        return cls(
            _or_error(partial(_content, folder, finder)), _or_error(partial(read_weights, folder, finder))
        )


def _content(folder: Path, finder: Finder) -> dict[str, Any]:
    check_if_there(folder, MODEL_SIDE_FILES, finder)
    return json_object(plain_file(folder, CONFIG_FILE, finder))


def _or_error(read: Callable[[], T]) -> T | FolderError | OSError:
    try:
        return read()
    except (FolderError, OSError) as error:
        return error


def _given(found: T | FolderError | OSError) -> T:
    if isinstance(found, FolderError | OSError):
        raise found.with_traceback(None)  # it may be raised again and again
    return found


def _doubts(content: dict[str, Any], config: RecordsConfig) -> Iterator[Problem]:
    """What is legal for a model with this config.json, but surely unwanted."""
    if content["model_type"] == "gemma" and config.fp16 and not isinstance(config, QuantizeConfig):
        msg = "Gemma's activations leave the range of float16, so fp16 training of it is fragile"
        yield Problem(("fp16",), msg, "Set bf16 to true in place of fp16.")
    longest = content.get("max_position_embeddings")
    name = "max_length" if isinstance(config, SftConfig) else "max_seq_len"
    wanted = getattr(config, name)
    if isinstance(longest, int) and 0 < longest < wanted:
        msg = f"{name} {wanted} > max_position_embeddings {longest} of the model, "
        msg += "which has not learned longer sequences"
        yield Problem((name,), msg, f"Set {name} to at most {longest}.")


def has_tokenizer(folder: Path) -> bool:
    """Whether tokenizer files of some kind lie in a folder."""
    return any(all((folder / name).is_file() for name in names) for names in TOKENIZERS)


def check_tokenizer(folder: Path, finder: Finder) -> list[Problem]:
    """Problems of the tokenizer files in `folder`."""
    look = partial(_tokenizer_problems, folder, finder)
    return folder_while_unchanged(("tokenizer", finder), folder, look)


def _tokenizer_problems(folder: Path, finder: Finder) -> list[Problem]:
    try:
        kinds = [names for names in TOKENIZERS if all((folder / name).is_file() for name in names)]
        if not kinds:
            expected = " or ".join(" with ".join(names) for names in TOKENIZERS)
            raise FolderError(
                f"{folder} has no tokenizer, expected {expected}",
                "Copy the tokenizer files of the model there.",
            )
        check_if_there(folder, TOKENIZER_SIDE_FILES, finder)
        for name in (name for names in kinds for name in names):
            small_file(plain_file(folder, name, finder))
    except (FolderError, OSError) as error:
        return [problem_of((TOKENIZER,), error)]
    return []


def _model_type(content: dict[str, Any]) -> str:
    model_type = content.get("model_type")
    if model_type not in MODEL_TYPES:
        raise FolderError(
            f"model_type: got {show(model_type)}, expected {' or '.join(MODEL_TYPES)}",
            "This version trains Gemma and BLOOM models.",
        )
    missing = [names[0] for names in NEEDED.get(model_type, ()) if not content.keys() & set(names)]
    if missing:
        msg = f"config.json lacks {', '.join(missing)}, and there is no size that could be meant"
        raise FolderError(msg, "Copy the config.json that belongs to the weights.")
    return model_type


def _misfits(content: dict[str, Any], weights: Weights) -> Iterator[Problem]:
    """Sizes in config.json that are none, or for which the weights are too few: a model of such sizes would
    be built before anybody missed its tensors.
    """
    hint = "Copy the config.json that belongs to the weights."
    sizes: dict[str, int] = {}
    for names in (LAYERS, WIDTH, VOCABULARY):
        name = next((name for name in names if name in content), names[0])
        size = content.get(name, 0)
        if name in content and (type(size) is not int or size < 1):
            msg = f"{name}: got {show(size)}, expected a whole number of at least 1"
            yield Problem((MODEL, CONFIG_FILE), msg, hint)
        else:
            sizes[names[0]] = size
    if (layers := sizes.get("num_hidden_layers", 0)) > weights.tensors:
        msg = f"it says {show(layers)} layers, but the weights have {weights.tensors} tensors"
        yield Problem((MODEL, CONFIG_FILE), msg, hint)
    vocabulary, width = sizes.get("vocab_size", 0), sizes.get("hidden_size", 0)
    if vocabulary * width > weights.numbers:
        msg = f"it says vocab_size {show(vocabulary)} and hidden_size {show(width)}, "
        msg += f"but the weights hold {weights.numbers} numbers"
        yield Problem((MODEL, CONFIG_FILE), msg, hint)
