"""One tokenizer interface over all file formats."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from trainer.config.problems import DataError, Problem
from trainer.files import atomic_file
from trainer.tokenizers.engines import Engine
from trainer.tokenizers.settings import TokenizerSettings


@dataclass(frozen=True)
class Encoding:
    """A text as tokens.

    Attributes:
        ids: token ids.
        offsets: where each token lies in the text, in characters, from and to. Tokens that share a character
            have the same place; tokens that are not in the text (BOS, EOS) have (0, 0).
    """

    ids: list[int]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True)
class EncodedBatch:
    """Texts as one padded array.

    Attributes:
        input_ids: int64 `[texts, longest]`.
        attention_mask: int64 `[texts, longest]`, 1 = token, 0 = padding.
        encodings: the tokens of each text, without padding.
    """

    input_ids: np.ndarray
    attention_mask: np.ndarray
    encodings: list[Encoding]


class Tokenizer:
    """Text to token ids and back.

    Attributes:
        bos_id, eos_id, pad_id, unk_id: ids of the special tokens; None where the tokenizer has none.
        special_tokens: tokens that are read as such inside a text when `allow_special` says so.
        vocab_size: number of ids. The model's embedding may have more rows.
        padding_side: the side that batches are padded on, "left" or "right".
        add_bos, add_eos: what `encode` adds by default.
        chat_template: Jinja source of the chat format; None where there is none.
    """

    def __init__(self, engine: Engine, settings: TokenizerSettings, files: Mapping[str, bytes]) -> None:
        """Join a library's tokenizer with its settings; `files` is what `save` writes: name → content."""
        self._engine = engine
        self._files = dict(files)
        roles = {**engine.roles, **settings.roles}
        self.bos_id, self.eos_id, self.pad_id, self.unk_id = (
            engine.token_to_id(roles[role]) if role in roles else None
            for role in ("bos_token", "eos_token", "pad_token", "unk_token")
        )
        add_bos = engine.adds_bos if settings.add_bos is None else settings.add_bos
        add_eos = engine.adds_eos if settings.add_eos is None else settings.add_eos
        self.add_bos = add_bos and self.bos_id is not None
        self.add_eos = add_eos and self.eos_id is not None
        self.special_tokens = engine.special_tokens
        self.vocab_size = engine.size
        self.padding_side = settings.padding_side
        self.chat_template = settings.chat_template

    def __call__(
        self,
        texts: Sequence[str],
        *,
        max_length: int | None = None,
        truncation_side: str = "right",
        padding_side: str | None = None,
        add_special_tokens: bool = True,
        allow_special: bool = False,
    ) -> EncodedBatch:
        """Encode texts into one array, padded to the longest.

        Args:
            max_length: most tokens of a text, BOS and EOS included; None: all of them.
            truncation_side: where a longer text loses tokens, "left" or "right"; BOS and EOS stay.
            padding_side: "left" or "right"; None: the tokenizer's own.
            add_special_tokens, allow_special: as `encode` has them.

        Raises:
            DataError: a text cannot be encoded, or padding is needed and there is no padding token.
            ValueError: an argument is out of range.
        """
        padding_side = padding_side or self.padding_side
        for name, side in (("truncation_side", truncation_side), ("padding_side", padding_side)):
            if side not in ("left", "right"):
                raise ValueError(f"{name}: got {side!r}, expected 'left' or 'right'")
        encodings = [
            self._truncated(text, max_length, truncation_side, add_special_tokens, allow_special)
            for text in texts
        ]
        lengths = [len(encoding.ids) for encoding in encodings]
        longest = max(lengths, default=0)
        if self.pad_id is None and any(length < longest for length in lengths):
            msg = "has no padding token, and the texts differ in length"
            hint = 'Name one of its tokens as "pad_token" in tokenizer_config.json.'
            raise DataError(Problem(("tokenizer",), msg, hint))
        input_ids = np.full((len(encodings), longest), self.pad_id or 0, np.int64)
        attention_mask = np.zeros_like(input_ids)
        for row, encoding in enumerate(encodings):
            length = len(encoding.ids)
            columns = slice(longest - length, longest) if padding_side == "left" else slice(0, length)
            input_ids[row, columns] = encoding.ids
            attention_mask[row, columns] = 1
        return EncodedBatch(input_ids, attention_mask, encodings)

    def encode(self, text: str, add_special_tokens: bool = True, allow_special: bool = False) -> list[int]:
        """Token ids of a text.

        Args:
            text: any text of Unicode characters.
            add_special_tokens: put BOS and EOS around it as far as this tokenizer does (`add_bos`,
                `add_eos`).
            allow_special: read special tokens inside the text as what they name. Off by default: a text from
                outside must not be able to end a turn. On for rendered chat templates.

        Raises:
            DataError: the text holds half a character (a lone surrogate), which no tokenizer knows.
        """
        _refuse_surrogates(text)
        ids = self._engine.encode(text, allow_special)
        before, after = self._around() if add_special_tokens else ([], [])
        return [*before, *ids, *after]

    def encode_with_offsets(
        self, text: str, add_special_tokens: bool = True, allow_special: bool = False
    ) -> Encoding:
        """The ids of `encode`, and where each token lies in the text."""
        _refuse_surrogates(text)
        ids, offsets = self._engine.encode_with_offsets(text, allow_special)
        before, after = self._around() if add_special_tokens else ([], [])
        around = [(0, 0)] * len(before), [(0, 0)] * len(after)
        return Encoding([*before, *ids, *after], [*around[0], *offsets, *around[1]])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids; ids that no token has give nothing."""
        return self._engine.decode(ids, skip_special_tokens)

    def token_to_id(self, token: str) -> int | None:
        """The id of one token such as "<start_of_turn>"; None when there is no such token."""
        return self._engine.token_to_id(token)

    def use_chat_template(self, name: str, content: str) -> None:
        """Let `save` write this template, as the file `name`, in place of those that were loaded."""
        for file in ("chat_template.jinja", "chat_template.json"):
            self._files.pop(file, None)
        self._files[name] = content.encode()

    def fingerprint(self) -> str:
        """A text that is the same only for tokenizers that give the same ids."""
        digest = hashlib.sha256()
        for name, content in sorted(self._files.items()):
            digest.update(f"{name} {len(content)} ".encode())
            digest.update(content)
        libraries = (f"{name} {version(name)}" for name in ("tokenizers", "sentencepiece"))
        return ", ".join((digest.hexdigest(), *libraries))

    def save(self, directory: str | Path) -> None:
        """Write the tokenizer's files, byte for byte as they were loaded."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in self._files.items():
            with atomic_file(directory / name) as file:
                file.write(content)

    def _around(self) -> tuple[list[int], list[int]]:
        """Ids that are put before and behind a text."""
        before = [self.bos_id] if self.add_bos and self.bos_id is not None else []
        after = [self.eos_id] if self.add_eos and self.eos_id is not None else []
        return before, after

    def _truncated(
        self, text: str, max_length: int | None, side: str, add_special_tokens: bool, allow_special: bool
    ) -> Encoding:
        whole = self.encode_with_offsets(text, add_special_tokens, allow_special)
        if max_length is None or len(whole.ids) <= max_length:
            return whole
        before, after = self._around() if add_special_tokens else ([], [])
        room = max_length - len(before) - len(after)
        if room < 0:
            least = len(before) + len(after)
            raise ValueError(f"max_length: got {max_length}, expected at least {least} for BOS and EOS")
        first, end = len(before), len(whole.ids) - len(after)
        cut = slice(first + room, end) if side == "right" else slice(first, end - room)
        ids, offsets = list(whole.ids), list(whole.offsets)
        del ids[cut], offsets[cut]
        return Encoding(ids, offsets)


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = error.start
        msg = f"character {place + 1} is {text[place]!r}, half of a surrogate pair, which is no character"
        hint = "Repair the text where it was cut, or put U+FFFD there."
        raise DataError(Problem(("text",), msg, hint)) from None
