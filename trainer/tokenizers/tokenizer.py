"""One tokenizer interface over both file formats."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer.files import atomic_file
from trainer.tokenizers.engines import Engine
from trainer.tokenizers.settings import TokenizerSettings


class Tokenizer:
    """Text to token ids and back.

    Attributes:
        bos_id, eos_id, pad_id, unk_id: ids of the special tokens; None where the tokenizer has none.
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
        self.vocab_size = engine.size
        self.padding_side = settings.padding_side
        self.chat_template = settings.chat_template

    def encode(self, text: str, add_special_tokens: bool = True, allow_special: bool = False) -> list[int]:
        """Token ids of a text.

        Args:
            text: any text.
            add_special_tokens: put BOS and EOS around it as far as this tokenizer does (`add_bos`,
                `add_eos`).
            allow_special: read special tokens inside the text as what they name. Off by default: a text from
                outside must not be able to end a turn. On for rendered chat templates.
        """
        ids = self._engine.encode(text, allow_special)
        if add_special_tokens and self.add_bos and self.bos_id is not None:
            ids = [self.bos_id, *ids]
        if add_special_tokens and self.add_eos and self.eos_id is not None:
            ids = [*ids, self.eos_id]
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids; ids that no token has give nothing."""
        return self._engine.decode(ids, skip_special_tokens)

    def token_to_id(self, token: str) -> int | None:
        """The id of one token such as "<start_of_turn>"; None when there is no such token."""
        return self._engine.token_to_id(token)

    def save(self, directory: str | Path) -> None:
        """Write the tokenizer's files, byte for byte as they were loaded."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in self._files.items():
            with atomic_file(directory / name) as file:
                file.write(content)
