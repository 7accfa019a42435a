"""Models by their names on the Hugging Face hub: what can be said about them without a connection."""

import json
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trainer.config.known_models import KNOWN_MODELS
from trainer.config.splitting import Shape

# An owner and a name, and perhaps the branch, tag or commit that is meant; never a path, never a reference.
_NAME = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(@(?P<revision>\w[\w./-]{0,127}))?",
    re.ASCII,
)
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "chat_template.jinja",
    "config.json",
)
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


class Part(Enum):
    """What of a repository is wanted: the files of `value` (patterns of `fnmatch`). Never pickles."""

    MODEL = (*_TOKENIZER_FILES, "generation_config.json", "model*.safetensors", _INDEX)
    TOKENIZER = _TOKENIZER_FILES


@dataclass(frozen=True)
class HubName:
    """A model on the hub, written `owner/name` or `owner/name@revision`.

    Attributes:
        repository: `owner/name`.
        revision: branch, tag or commit; None: the main branch.
    """

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> "HubName | None":
        """The name that a text is; None when it has not the form of one."""
        match = _NAME.fullmatch(text)
        if match is None or ".." in text or "--" in match["repository"] or text.endswith(".git"):
            return None
        return cls(match["repository"], match["revision"])

    @property
    def known(self) -> bool:
        """Whether it is a model of the built-in table."""
        return self.repository in KNOWN_MODELS

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}" if self.revision else self.repository


def shape_by_name(text: str) -> Shape | None:
    """The shape of a model of the built-in table, which is known before it is fetched."""
    name = HubName.parse(text)
    known = KNOWN_MODELS.get(name.repository) if name else None
    return Shape.of({"model_type": known.model_type, **known.sizes}) if known else None


def cache_folder() -> Path:
    """Where the hub's library keeps what was fetched (`HF_HUB_CACHE`, `HF_HOME`)."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE).expanduser().resolve()


def cached_folder(name: HubName, part: Part) -> Path | None:
    """The folder of a model in the cache, when everything that is wanted of it is there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = snapshot_download(
            name.repository,
            revision=name.revision,
            allow_patterns=list(part.value),
            ignore_patterns="*/*",
            local_files_only=True,
        )
    except LocalEntryNotFoundError:
        return None
    folder = Path(found)
    return folder if _is_whole(folder, part) else None


def name_of_cached(folder: Path) -> str | None:
    """The hub name of a folder of the cache, its commit included; None for any other folder."""
    try:
        repository, snapshots, commit = folder.relative_to(cache_folder()).parts
    except ValueError:
        return None
    kind, *owner_and_name = repository.split("--")
    if kind != "models" or snapshots != "snapshots" or len(owner_and_name) != 2:
        return None
    return f"{'/'.join(owner_and_name)}@{commit}"


def _is_whole(folder: Path, part: Part) -> bool:
    """Other tools fetch single files into the cache, so a folder there need not be a whole model."""
    names = {path.name for path in folder.iterdir() if path.is_file()}
    if part is Part.TOKENIZER:
        return bool(names & {"tokenizer.json", "tokenizer.model", "vocab.json"})
    if "config.json" not in names:
        return False
    if _INDEX not in names:
        return _SINGLE in names
    try:
        return set(json.loads((folder / _INDEX).read_bytes())["weight_map"].values()) <= names
    except (ValueError, KeyError, AttributeError, TypeError):
        return True  # the check of the model says what is wrong with the index
