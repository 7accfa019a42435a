"""The chat template: it is there, inside the allowed folders, and is Jinja that the sandbox takes."""

from functools import partial
from pathlib import Path

from trainer.config.chat_templates import FIELD, FILES, chat_template
from trainer.config.preflight.paths import Finder
from trainer.config.preflight.unchanged import folder_while_unchanged
from trainer.config.problems import ConfigError, Problem


def check_chat_template(given: str | None, tokenizer_folder: Path, finder: Finder) -> list[Problem]:
    """Problems of the template that a job uses.

    Args:
        given: an existing file or folder; None: the tokenizer's own, if it has one.
        tokenizer_folder: where that is looked for.
        finder: tells which files may be read.
    """
    place = Path(given) if given else tokenizer_folder
    look = partial(_problems, given, tokenizer_folder, place, finder)
    if given is not None and not place.is_dir():
        return look()
    return folder_while_unchanged((FIELD, given, finder), place, look)


def _problems(given: str | None, tokenizer_folder: Path, place: Path, finder: Finder) -> list[Problem]:
    for path in [place / name for name in FILES] if place.is_dir() else [place]:
        if path.is_file() and not finder.allows(path):
            msg = f"{path.name} is a link to a place outside the allowed folders"
            return [Problem((FIELD,), msg, "Copy the file itself.")]
    try:
        chat_template(given, tokenizer_folder)
    except ConfigError as error:
        return list(error.problems)
    return []
