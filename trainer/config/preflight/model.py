"""The model folder: what it is, and whether its weights and tokenizer are all there. Reads no tensor."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.config.preflight.paths import Finder
from trainer.config.problems import Problem
from trainer.config.schema import FinetuneConfig
from trainer.config.values import show

MODEL = "model_name_or_path"
TOKENIZER = "tokenizer_name_or_path"
MODEL_TYPES = ("gemma", "bloom")
# Sizes that have no default, each with the names it may have in config.json.
NEEDED = {
    "bloom": (
        ("hidden_size", "n_embed", "n_embd"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
    )
}
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
#: Kinds of tokenizer, each by the files it consists of.
TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))
LARGEST_JSON = 100 * 1024 * 1024


def check_model(
    folder: Path, finder: Finder, config: FinetuneConfig
) -> tuple[list[Problem], list[Problem], dict[str, Any]]:
    """Problems, warnings and statistics (`model_type`, `tensors`, `bytes`) of a model folder."""
    problems: list[Problem] = []
    warnings: list[Problem] = []
    statistics: dict[str, Any] = {}
    try:
        content = _json_object(_file(folder, "config.json", finder))
        statistics["model_type"] = _model_type(content)
        warnings += _doubts(content, config)
    except (_FolderError, OSError) as error:
        problems.append(_problem((MODEL, "config.json"), error))
    try:
        statistics |= _weights(folder, finder)
    except (_FolderError, OSError) as error:
        problems.append(_problem((MODEL,), error))
    return problems, warnings, statistics


def _doubts(content: dict[str, Any], config: FinetuneConfig) -> Iterator[Problem]:
    """What is legal for a model with this config.json, but surely unwanted."""
    if content["model_type"] == "gemma" and config.fp16:
        msg = "Gemma's activations leave the range of float16, so fp16 training of it is fragile"
        yield Problem(("fp16",), msg, "Set bf16 to true in place of fp16.")
    longest = content.get("max_position_embeddings")
    if isinstance(longest, int) and 0 < longest < config.max_length:
        msg = f"max_length {config.max_length} > max_position_embeddings {longest} of the model, "
        msg += "which has not learned longer sequences"
        yield Problem(("max_length",), msg, f"Set max_length to at most {longest}.")


def check_tokenizer(
    folder: Path, finder: Finder, config: FinetuneConfig
) -> tuple[list[Problem], list[Problem]]:
    """Problems and warnings of the tokenizer files in `folder`."""
    try:
        kinds = [names for names in TOKENIZERS if all((folder / name).is_file() for name in names)]
        if not kinds:
            expected = " or ".join(" with ".join(names) for names in TOKENIZERS)
            raise _FolderError(
                f"{folder} has no tokenizer, expected {expected}",
                "Copy the tokenizer files of the model there.",
            )
        for name in (name for names in kinds for name in names):
            _file(folder, name, finder)
        templated = config.chat_template is None and _has_chat_template(folder)
    except (_FolderError, OSError) as error:
        return [_problem((TOKENIZER,), error)], []
    if templated:
        msg = "the tokenizer has a chat template; this version trains on the raw text of src and tgt"
        return [], [
            Problem(("chat_template",), msg, 'Set chat_template to "none" to say that this is meant.')
        ]
    return [], []


class _FolderError(Exception):
    """Something in the folder cannot be used."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def _problem(loc: tuple[str, ...], error: _FolderError | OSError) -> Problem:
    if isinstance(error, OSError):
        return Problem(loc, f"{error.filename}: {error.strerror}", "Make it readable.")
    return Problem(loc, str(error), error.hint)


def _file(folder: Path, name: str, finder: Finder) -> Path:
    """A regular, not empty file of the folder that does not lead outside the allowed folders."""
    path = folder / name
    if not path.is_file():
        raise _FolderError(f"{folder} has no file {name}", "Copy the whole model folder.")
    if not finder.allows(path):
        raise _FolderError(
            f"{name} is a link to a place outside the allowed folders", "Copy the file itself."
        )
    if path.stat().st_size == 0:
        raise _FolderError(f"{name} is empty", "Copy the file again.")
    return path


def _json_object(path: Path) -> dict[str, Any]:
    if path.stat().st_size > LARGEST_JSON:
        raise _FolderError(f"{path.name} is larger than 100 MiB, expected a small JSON file")
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _FolderError(f"{path.name} is not JSON: {error}", "Copy the file again.") from None
    if not isinstance(value, dict):
        raise _FolderError(f"{path.name} holds {show(value)}, expected a JSON object", "Copy the file again.")
    return value


def _model_type(content: dict[str, Any]) -> str:
    model_type = content.get("model_type")
    if model_type not in MODEL_TYPES:
        raise _FolderError(
            f"model_type: got {show(model_type)}, expected {' or '.join(MODEL_TYPES)}",
            "This version trains Gemma and BLOOM models.",
        )
    missing = [names[0] for names in NEEDED.get(model_type, ()) if not content.keys() & set(names)]
    if missing:
        msg = f"config.json lacks {', '.join(missing)}, and there is no size that could be meant"
        raise _FolderError(msg, "Copy the config.json that belongs to the weights.")
    return model_type


def _weights(folder: Path, finder: Finder) -> dict[str, int]:
    """Number and bytes of the tensors; every file and every tensor of the index is there and complete."""
    if (folder / INDEX).is_file():
        weight_map = _json_object(_file(folder, INDEX, finder)).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise _FolderError(f"{INDEX} has no weight_map", "Copy the file again.")
    elif (folder / SINGLE).is_file():
        weight_map = dict.fromkeys(_header(_file(folder, SINGLE, finder)), SINGLE)
    else:
        raise _no_weights(folder)
    headers = {
        name: _header(_shard(folder, name, finder)) for name in sorted(set(map(str, weight_map.values())))
    }
    for tensor, name in weight_map.items():
        if tensor not in headers[str(name)]:
            raise _FolderError(f"{name} lacks the tensor {show(tensor)} that {INDEX} names", "Copy it again.")
    return {"tensors": len(weight_map), "bytes": sum(_tensor_bytes(header) for header in headers.values())}


def _shard(folder: Path, name: str, finder: Finder) -> Path:
    if "/" in name or name in ("", ".", ".."):
        raise _FolderError(f"{INDEX} names {show(name)}, expected a file of the same folder", "Correct it.")
    if not (folder / name).is_file():
        raise _FolderError(f"the shard {name} that {INDEX} names is missing", "Copy the whole model folder.")
    return _file(folder, name, finder)


def _no_weights(folder: Path) -> _FolderError:
    others = [
        path.name for pattern in ("*.bin", "*.pdparams", "*.pt") for path in sorted(folder.glob(pattern))
    ]
    if others:
        msg = f"{folder} has {others[0]} but no {SINGLE}; pickled weights are not read"
        return _FolderError(msg, "Convert the weights to safetensors.")
    return _FolderError(
        f"{folder} has no weights, expected {SINGLE} or shards with {INDEX}", "Copy the whole model folder."
    )


def _header(path: Path) -> dict[str, Any]:
    """The tensors that a safetensors file declares: {name: {"dtype", "shape", "data_offsets"}}."""
    broken = _FolderError(f"{path.name} is not a whole safetensors file", "Copy the file again.")
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(size - 8, LARGEST_JSON):
            raise broken
        try:
            header = json.loads(stream.read(length))
            tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            end = max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
            raise broken from None
    if 8 + length + end != size:
        raise broken
    return tensors


def _tensor_bytes(header: dict[str, Any]) -> int:
    return sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values())


def _has_chat_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in ("chat_template.json", "chat_template.jinja")):
        return True
    path = folder / "tokenizer_config.json"
    try:
        return path.is_file() and bool(_json_object(path).get("chat_template"))
    except _FolderError:
        return False
