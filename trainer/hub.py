"""Fetching models from the Hugging Face hub.

The hub's own library does the work, with its cache and its settings: `HF_TOKEN`, `HF_ENDPOINT` for mirrors,
`HF_HUB_OFFLINE`, `HF_HOME`. Only weights as safetensors, tokenizers and configs are fetched, never pickles.
"""

from __future__ import annotations

import io
import logging
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainer.config import TaskConfig
from trainer.config.preflight.hub import HubName, Part, cached_folder
from trainer.config.problems import ConfigError, DataError, Problem

log = logging.getLogger(__name__)

#: Seconds between two lines about a long fetch.
_REPORT_EVERY = 10.0
_FIELDS = {"model_name_or_path": Part.MODEL, "tokenizer_name_or_path": Part.TOKENIZER}


def model_folder(name_or_path: str | Path, part: Part = Part.MODEL) -> Path:
    """The folder of a model: the one that is named, else that of a hub name in the cache, else a fetched one.

    Raises:
        DataError: it is neither a folder nor the name of a model that can be fetched.
    """
    path = Path(name_or_path)
    name = HubName.parse(str(name_or_path))
    if name is None or path.exists():
        return path
    return cached_folder(name, part) or fetch(name, part)


def with_fetched_models(config: TaskConfig) -> TaskConfig:
    """The config with folders in place of hub names.

    Raises:
        ConfigError: a model cannot be fetched.
    """
    found: dict[str, str] = {}
    folders: dict[str, str] = {}  # the model comes first and brings its tokenizer along
    for field, part in _FIELDS.items():
        given = getattr(config, field, None)
        if not given or HubName.parse(given) is None:
            continue
        if given not in folders:
            folders[given] = _fetched(field, given, part)
        found[field] = folders[given]
    if (template := getattr(config, "chat_template", None)) in folders:
        found["chat_template"] = folders[template]
    return config.model_copy(update=found) if found else config


def _fetched(field: str, given: str, part: Part) -> str:
    try:
        return str(model_folder(given, part))
    except DataError as error:
        problems = [Problem((field,), f"{given} {problem.msg}", problem.hint) for problem in error.problems]
        raise ConfigError(problems) from None


def fetch(name: HubName, part: Part = Part.MODEL) -> Path:
    """Fetch a model into the cache, or what of it is not there yet, and return its folder.

    Raises:
        DataError: the hub does not answer, or does not give it; the message has no secrets.
    """
    from huggingface_hub import errors, snapshot_download

    log.info("fetching %s from %s", name, _endpoint())
    try:
        folder = Path(
            snapshot_download(
                name.repository,
                revision=name.revision,
                allow_patterns=list(part.value),
                ignore_patterns="*/*",
                tqdm_class=_logged_progress(),
            )
        )
    except errors.GatedRepoError:
        raise _refused(name, "may be fetched only after its terms were accepted", _TOKEN_HINT) from None
    except errors.RepositoryNotFoundError:
        msg = f"is not a model at {_endpoint()}, or one that is not public"
        raise _refused(name, msg, f"Check the name. {_TOKEN_HINT}") from None
    except errors.RevisionNotFoundError:
        raise _refused(
            name, "has no such revision", "Name a branch, a tag or a commit behind the @."
        ) from None
    except errors.LocalEntryNotFoundError as error:
        raise _away(name, error) from None
    except OSError as error:
        if error.errno is not None:
            raise  # the disk, not the hub
        raise _away(name, error) from None
    if part is Part.MODEL and not any(folder.glob("model*.safetensors")):
        hint = "Choose a model with safetensors, or convert it where you trust it and name its folder."
        raise _refused(name, "has no weights as safetensors; pickled weights are not fetched", hint)
    log.info("%s is in %s", name, folder)
    return folder


_TOKEN_HINT = "Set HF_TOKEN to a token of an account that may read it."  # noqa: S105


def _away(name: HubName, error: Exception) -> DataError:
    from huggingface_hub.constants import HF_HUB_OFFLINE

    hint = "Fetch it where there is a connection and copy its folder here, or name a mirror in HF_ENDPOINT."
    if HF_HUB_OFFLINE:
        hint = "Unset HF_HUB_OFFLINE, or put the model into the cache or a folder."
        return _refused(name, "is not whole in the cache, and HF_HUB_OFFLINE forbids to fetch it", hint)
    cause = error.__cause__ or error
    status = getattr(getattr(cause, "response", None), "status_code", None)
    answer = f"answered with HTTP status {status}" if status else f"did not answer ({type(cause).__name__})"
    return _refused(name, f"cannot be fetched: {_endpoint()} {answer}", hint)


def _refused(name: HubName, msg: str, hint: str) -> DataError:
    return DataError(Problem((str(name),), msg, hint))


def _endpoint() -> str:
    """The hub's address, without a user or a password in it."""
    from huggingface_hub.constants import ENDPOINT

    parts = urlsplit(ENDPOINT)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _logged_progress() -> type[Any]:
    """A progress bar for the hub's library that writes log lines, for logs that are files."""
    from huggingface_hub.utils import tqdm

    class LoggedProgress(tqdm):
        def __init__(self, *args: Any, name: str | None = None, **kwargs: Any) -> None:
            self._counts_bytes = name == "huggingface_hub.snapshot_download"
            self._reported = time.monotonic()
            super().__init__(*args, **{**kwargs, "disable": False, "file": io.StringIO()})

        def display(self, *_args: Any, **_kwargs: Any) -> None:
            now = time.monotonic()
            if self._counts_bytes and self.n and now - self._reported >= _REPORT_EVERY:
                self._reported = now
                log.info("fetched %.2f of %.2f GB", self.n / 1e9, (self.total or 0) / 1e9)

    return LoggedProgress
