"""The two libraries behind one small interface: text to ids and back, without beginning or end tokens."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyright: ignore[reportAttributeAccessIssue]
from tokenizers import Tokenizer as JsonTokenizer

from trainer.tokenizers.settings import TokenizerSettings

Span = tuple[int, int]


class Engine(Protocol):
    """What a tokenizer library does for us.

    Attributes:
        size: number of ids.
        roles: special tokens that the model file itself names, such as "bos_token" → "<bos>".
        adds_bos, adds_eos: what the file does by itself when the files around it do not say.
        special_tokens: what is read as a special token inside a text when that is allowed.
    """

    size: int
    roles: Mapping[str, str]
    adds_bos: bool
    adds_eos: bool
    special_tokens: frozenset[str]

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, None when there is no such token."""
        ...

    def encode(self, text: str, allow_special: bool) -> list[int]:
        """Ids of a text; special tokens inside it are read as such only when allowed."""
        ...

    def encode_with_offsets(self, text: str, allow_special: bool) -> tuple[list[int], list[Span]]:
        """The ids of `encode` and the characters that each token covers."""
        ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text of ids; ids without a token give nothing."""
        ...


class SentencePieceEngine:
    """A SentencePiece model.

    The library reads user-defined pieces out of any text. Those that are special are made control pieces in
    memory, which it never does, so that a user's text cannot steer the model.
    """

    def __init__(self, model: bytes, settings: TokenizerSettings) -> None:
        self._processor = SentencePieceProcessor(model_proto=_guarded(model, settings.special_tokens))
        pieces = self._processor.get_piece_size()
        self.roles: Mapping[str, str] = self._own_roles()
        self.adds_bos, self.adds_eos = "bos_token" in self.roles, False
        control = {
            self._processor.id_to_piece(number)
            for number in range(pieces)
            if self._processor.is_control(number)
        }
        self._added = {token: number for token, number in settings.added_tokens.items() if number >= pieces}
        self.size = max([pieces, *(number + 1 for number in self._added.values())])
        named = control | settings.special_tokens | self._added.keys()
        self._ids = {token: number for token in named if (number := self.token_to_id(token)) is not None}
        self._tokens = {number: token for token, number in self._ids.items()}
        self._special = {self._ids[token] for token in (control | settings.special_tokens) & self._ids.keys()}
        self.special_tokens = frozenset(self._tokens[number] for number in self._special)
        self._splitter = _splitter(self._added.keys() - settings.special_tokens)
        self._special_splitter = _splitter(self._ids)

    def _own_roles(self) -> dict[str, str]:
        processor = self._processor
        ids = {
            "bos_token": processor.bos_id(),
            "eos_token": processor.eos_id(),
            "pad_token": processor.pad_id(),
            "unk_token": processor.unk_id(),
        }
        return {role: processor.id_to_piece(number) for role, number in ids.items() if number >= 0}

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, None when there is no such token."""
        if token in self._added:
            return self._added[token]
        number = self._processor.piece_to_id(token)
        return number if self._processor.id_to_piece(number) == token else None

    def encode(self, text: str, allow_special: bool) -> list[int]:
        """Ids of a text; special tokens inside it are read as such only when allowed."""
        splitter = self._special_splitter if allow_special else self._splitter
        if splitter is None:
            return self._processor.encode(text)
        ids: list[int] = []
        for place, part in enumerate(splitter.split(text)):
            if place % 2:
                ids.append(self._ids[part])
            elif part:
                ids.extend(self._processor.encode(part))
        return ids

    def encode_with_offsets(self, text: str, allow_special: bool) -> tuple[list[int], list[Span]]:
        """The ids of `encode` and the characters that each token covers."""
        splitter = self._special_splitter if allow_special else self._splitter
        ids: list[int] = []
        spans: list[Span] = []
        start = 0
        for place, part in enumerate(splitter.split(text) if splitter else [text]):
            if place % 2:
                ids.append(self._ids[part])
                spans.append((start, start + len(part)))
            elif part:
                found = self._processor.encode(part, return_type="offset_mapping")
                ids.extend(found["ids"])
                spans.extend((start + first, start + end) for first, end in _widened(found["offsets"]))
            start += len(part)
        return ids, spans

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text of ids; ids without a token give nothing."""
        parts: list[str] = []
        run: list[int] = []
        for number in ids:
            if number in self._tokens:
                parts.append(self._processor.decode(run))
                run = []
                if number not in self._special or not skip_special_tokens:
                    parts.append(self._tokens[number])
            elif 0 <= number < self._processor.get_piece_size():
                run.append(number)
        return "".join([*parts, self._processor.decode(run)])


class JsonEngine:
    """A tokenizer.json of the tokenizers library."""

    def __init__(self, text: str, settings: TokenizerSettings) -> None:
        self._plain, self._parsing = _json_tokenizer(text, settings), _json_tokenizer(text, settings)
        self._plain.encode_special_tokens = True
        added = self._plain.get_added_tokens_decoder().values()
        self.special_tokens = frozenset(token.content for token in added if token.special)
        self.size = self._plain.get_vocab_size(with_added_tokens=True)
        self.roles: Mapping[str, str] = {}
        around = self._plain.encode("", add_special_tokens=True).tokens
        self.adds_bos = settings.roles.get("bos_token") in around
        self.adds_eos = settings.roles.get("eos_token") in around

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, None when there is no such token."""
        return self._plain.token_to_id(token)

    def encode(self, text: str, allow_special: bool) -> list[int]:
        """Ids of a text; special tokens inside it are read as such only when allowed."""
        tokenizer = self._parsing if allow_special else self._plain
        return tokenizer.encode(text, add_special_tokens=False).ids

    def encode_with_offsets(self, text: str, allow_special: bool) -> tuple[list[int], list[Span]]:
        """The ids of `encode` and the characters that each token covers."""
        tokenizer = self._parsing if allow_special else self._plain
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text of ids; ids without a token give nothing."""
        return self._plain.decode(list(ids), skip_special_tokens=skip_special_tokens)


def _widened(spans: Sequence[Span]) -> list[Span]:
    """The library gives a character's place to the last of its bytes only; here all of them have it."""
    widened: list[Span] = []
    for first, end in reversed(spans):
        widened.append(widened[-1] if first == end and widened else (first, end))
    return widened[::-1]


def _guarded(model: bytes, special_tokens: Collection[str]) -> bytes:
    """The model with its special user-defined pieces turned into control pieces."""
    proto = ModelProto.FromString(model)
    for piece in proto.pieces:
        if piece.type == ModelProto.SentencePiece.USER_DEFINED and piece.piece in special_tokens:
            piece.type = ModelProto.SentencePiece.CONTROL
    return proto.SerializeToString()


def _json_tokenizer(text: str, settings: TokenizerSettings) -> JsonTokenizer:
    tokenizer = JsonTokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.add_special_tokens(sorted(settings.special_tokens & tokenizer.get_vocab().keys()))
    return tokenizer


def _splitter(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """Splits a text into text, token, text, token, …; the longest token wins."""
    words = sorted(tokens, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, words))})") if words else None
