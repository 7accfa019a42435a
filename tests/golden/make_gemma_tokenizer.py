"""Write tests/golden/gemma_tokenizer and gemma_pieces: small tokenizers in both file formats, and the ids
transformers gives.

The first SentencePiece model comes from `trainer.tools.tiny_model`. The second has pieces of its own for runs
of spaces, tabs and newlines and for markup, as the published Gemma has. transformers turns both into a
tokenizer.json.
"""

# pyright: reportMissingImports=false

import json
import shutil
import sys
from io import BytesIO
from pathlib import Path

from sentencepiece import SentencePieceTrainer
from tokenizers import AddedToken
from transformers import AutoTokenizer

GOLDEN = Path(__file__).parent
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.golden.texts import TEXTS  # noqa: E402
from trainer.tools.tiny_model import DEFAULT_TEXT  # noqa: E402
from trainer.tools.tiny_sentencepiece import write_sentencepiece  # noqa: E402

SPECIAL_TEXTS = [
    "<bos><start_of_turn>user\nWhere is the boat?<end_of_turn>\n<start_of_turn>model\n",
    "a<eos>b <pad> c<mask>d<unk>",
    "<start_of_turn><start_of_turn",
    " <bos> <end_of_turn>\n\n <eos>é🙂",
]
PIECES = [
    *("\n" * count for count in range(1, 5)),
    *("\t" * count for count in range(1, 4)),
    *("\u2581" * count for count in range(2, 9)),
    "<table>",
    "<b>",
    "</b>",
]


def main() -> None:
    lines = DEFAULT_TEXT.read_text(encoding="utf-8").splitlines()
    plain = empty(GOLDEN / "gemma_tokenizer")
    write_sentencepiece(plain, lines, 512)
    finish(plain)
    pieces = empty(GOLDEN / "gemma_pieces")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(plain / name, pieces / name)
    train_with_pieces(pieces, lines)
    # Runs of spaces are merged; as tokens of their own they would be looked for under their other spelling.
    finish(pieces, [piece for piece in PIECES if "\u2581" not in piece])


def empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def train_with_pieces(folder: Path, lines: list[str]) -> None:
    model = BytesIO()  # a file name would be kept in the model
    SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in lines if line.strip()]),
        model_writer=model,
        model_type="bpe",
        vocab_size=512,
        hard_vocab_limit=False,
        character_coverage=1.0,
        byte_fallback=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        normalization_rule_name="identity",
        split_digits=True,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        unk_piece="<unk>",
        control_symbols=["<mask>", "<start_of_turn>", "<end_of_turn>"],
        user_defined_symbols=PIECES,
        num_threads=1,
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())


def finish(folder: Path, pieces: list[str] | None = None) -> None:
    """Add tokenizer.json and ids.json; `pieces` become tokens that are found in any text."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    added = [AddedToken(piece, normalized=False, special=False) for piece in pieces or []]
    tokenizer.backend_tokenizer.add_tokens(added)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    cases = {
        "plain": {text: tokenizer(text).input_ids for text in TEXTS},
        "special": {text: tokenizer(text, add_special_tokens=False).input_ids for text in SPECIAL_TEXTS},
    }
    (folder / "ids.json").write_text(json.dumps(cases, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
