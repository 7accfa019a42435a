"""The models that may be named: the table of known ones, and the folders below the model roots.

A list looks at a bounded number of folders, and at no weights.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.problems import not_found
from api.schemas.models import Availability, Model, ModelDetails
from trainer.config.adapters import ADAPTER_CONFIG
from trainer.config.known_models import KNOWN_MODELS, KnownModel
from trainer.config.preflight import Roots
from trainer.config.preflight.folder import LARGEST_JSON, FolderError
from trainer.config.preflight.hub import HubName, Part, cache_folder, cached_folder
from trainer.config.preflight.model import CONFIG_FILE, MODEL_TYPES, has_tokenizer
from trainer.config.preflight.paths import Finder
from trainer.config.preflight.weights import read_weights
from trainer.config.quantized_models import QUANTIZATION

MOST_FOLDERS = 1000
"""How many folders below the roots a list looks at."""
DEPTH = 2
"""As deep as `owner/name`."""
SIZES = {
    "hidden_size": ("hidden_size", "n_embed", "n_embd"),
    "layers": ("num_hidden_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head"),
    "vocabulary": ("vocab_size",),
    "longest": ("max_position_embeddings", "seq_length"),
}


@dataclass(frozen=True)
class Local:
    """A folder below a root that holds a model or an adapter; `name` is how a config names it."""

    name: str
    folder: Path
    content: dict[str, Any]

    @property
    def adapter(self) -> bool:
        return (self.folder / ADAPTER_CONFIG).is_file()


def list_models(roots: Roots) -> tuple[list[Model], bool]:
    """All models by name, and whether there are more folders than were looked at."""
    found, whole = local_models(roots)
    local = {each.name: each for each in found}
    names = sorted(local.keys() | KNOWN_MODELS.keys())
    return [_model(name, local.get(name), roots) for name in names], not whole


def model_details(roots: Roots, name: str) -> ModelDetails:
    """One model with its sizes and files. Raises ApiError (404)."""
    folder = _folder_of(roots, name)
    known = KNOWN_MODELS.get(name)
    if folder is None and known is None:
        raise not_found("model", name, "/models")
    content = _content(folder) if folder else None
    local = Local(name, folder, content) if folder and content is not None else None
    summary = _model(name, local, roots)
    shape = content or (dict(known.sizes) if known else {})
    weights = None
    if folder and content is not None and not (local and local.adapter):
        finder = Finder("model", (*roots.models, cache_folder()))
        try:
            weights = read_weights(folder, finder)
        except (FolderError, OSError) as error:
            return ModelDetails(**summary.model_dump(), sizes=_sizes(shape), problem=str(error))
    return ModelDetails(
        **summary.model_dump(),
        sizes=_sizes(shape),
        bytes=weights.bytes if weights else None,
        tensors=weights.tensors if weights else None,
        has_tokenizer=has_tokenizer(folder) if folder else None,
    )


def local_models(roots: Roots) -> tuple[list[Local], bool]:
    """The models below the roots, and whether all folders were looked at."""
    found: dict[str, Local] = {}
    left = MOST_FOLDERS
    for root in roots.models:
        for folder in _folders(root):
            if left == 0:
                return list(found.values()), False
            left -= 1
            content = _content(folder)
            name = folder.relative_to(root).as_posix()
            if content is not None and name not in found:
                found[name] = Local(name, folder, content)
    return list(found.values()), True


def _folders(root: Path) -> Iterator[Path]:
    """The folders below, not deeper than `DEPTH`; links are left alone."""
    pending = [(root, 0)]
    while pending:
        parent, depth = pending.pop(0)
        try:
            with os.scandir(parent) as entries:
                folders = sorted(
                    entry.path
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
                )
        except OSError:
            continue
        for path in folders:
            yield Path(path)
            if depth + 1 < DEPTH:
                pending.append((Path(path), depth + 1))


def _content(folder: Path) -> dict[str, Any] | None:
    """What config.json (of an adapter adapter_config.json) says; None for a folder of another kind."""
    for name in (CONFIG_FILE, ADAPTER_CONFIG):
        path = folder / name
        try:
            if not path.is_file() or path.is_symlink() or path.stat().st_size > LARGEST_JSON:
                continue
            content = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(content, dict) and (name == ADAPTER_CONFIG or content.get("model_type") in MODEL_TYPES):
            return content
    return None


def _folder_of(roots: Roots, name: str) -> Path | None:
    found = Finder("model", roots.models).folder("model", name)
    if isinstance(found, Path):
        return found
    hub_name = HubName.parse(name)
    return cached_folder(hub_name, Part.MODEL) if hub_name else None


def _model(name: str, local: Local | None, roots: Roots) -> Model:
    known = KNOWN_MODELS.get(name)
    content = local.content if local else {}
    model_type = content.get("model_type") if local else known.model_type if known else None
    return Model(
        name=name,
        model_type=model_type if isinstance(model_type, str) else None,
        parameters=known.parameters if known else None,
        known=known is not None,
        available=_availability(name, local, known, roots),
        adapter=bool(local and local.adapter),
        quantized=QUANTIZATION in content,
        links={"self": f"/models/{name}"},
    )


def _availability(name: str, local: Local | None, known: KnownModel | None, roots: Roots) -> Availability:
    if local is not None:
        return Availability.local
    if known is not None and (cache_folder() / f"models--{name.replace('/', '--')}" / "snapshots").is_dir():
        return Availability.cached
    return Availability.fetchable if known is not None and roots.hub else Availability.absent


def _sizes(content: dict[str, Any]) -> dict[str, int]:
    sizes = {}
    for size, names in SIZES.items():
        value = next((content[name] for name in names if name in content), None)
        if isinstance(value, int) and not isinstance(value, bool):
            sizes[size] = value
    return sizes
