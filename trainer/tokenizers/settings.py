"""What the JSON files beside a tokenizer say about its special tokens."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.config.problems import DataError, Problem

CONFIG_FILE = "tokenizer_config.json"
SPECIAL_FILE = "special_tokens_map.json"
ADDED_FILE = "added_tokens.json"
TEMPLATE_FILE = "chat_template.jinja"

_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class TokenizerSettings:
    """Special tokens and habits of a tokenizer; None where the files do not say.

    Attributes:
        roles: "bos_token", "eos_token", "pad_token", "unk_token" → the token.
        added_tokens: tokens with ids given in these files, some of them beyond the vocabulary of the model
            file.
        special_tokens: tokens that steer the model and are no text: never decoded, never read out of a user's
            text.
        add_bos, add_eos: whether `encode` puts BOS in front and EOS behind.
        padding_side: "left" or "right".
        chat_template: Jinja source of the chat format.
        kind: name of the class that other tools load it with, such as "BloomTokenizer".
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    added_tokens: Mapping[str, int] = field(default_factory=dict)
    special_tokens: frozenset[str] = frozenset()
    add_bos: bool | None = None
    add_eos: bool | None = None
    padding_side: str = "left"
    chat_template: str | None = None
    kind: str | None = None


def read_settings(directory: Path) -> TokenizerSettings:
    """Read tokenizer_config.json, special_tokens_map.json, added_tokens.json and the chat template; any may
    be absent.

    Raises:
        DataError: a file is there and cannot be read.
    """
    config = _read(directory / CONFIG_FILE)
    special_map = _read(directory / SPECIAL_FILE)
    roles = {
        role: token for role in _ROLES if (token := _text(config.get(role)) or _text(special_map.get(role)))
    }
    added = {token: int(number) for token, number in _read(directory / ADDED_FILE).items()}
    special = set(roles.values())
    special.update(text for source in (config, special_map) if (text := _text(source.get("mask_token"))))
    for number, entry in config.get("added_tokens_decoder", {}).items():
        added[entry["content"]] = int(number)
        if entry.get("special"):
            special.add(entry["content"])
    for source in (config, special_map):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            special.update(_texts(source.get(key)))
    return TokenizerSettings(
        roles=roles,
        added_tokens=added,
        special_tokens=frozenset(special),
        add_bos=config.get("add_bos_token"),
        add_eos=config.get("add_eos_token"),
        padding_side=config.get("padding_side") or "left",
        chat_template=_chat_template(directory, config),
        kind=config.get("tokenizer_class"),
    )


def _chat_template(directory: Path, config: Mapping[str, Any]) -> str | None:
    """The template file, else the entry of the config; among several named ones the default."""
    file = directory / TEMPLATE_FILE
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        return named.get("default")
    return template


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(_problem(path, f"cannot be read ({error})")) from error
    if not isinstance(content, dict):
        raise DataError(_problem(path, "is not a JSON object"))
    return content


def _text(token: Any) -> str | None:
    """A token is written as text or as an object with its text and habits."""
    return token.get("content") if isinstance(token, dict) else token


def _texts(tokens: Any) -> list[str]:
    values = tokens.values() if isinstance(tokens, dict) else tokens or ()
    return [text for token in values if (text := _text(token))]


def _problem(path: Path, msg: str) -> Problem:
    return Problem((str(path),), msg, "Fetch the tokenizer again.")
