"""Write tests/golden/gemma_tokenizer: one small tokenizer in both file formats, and the ids transformers
gives.

The SentencePiece model comes from `trainer.tools.tiny_model`; transformers turns it into a tokenizer.json.
"""

# pyright: reportMissingImports=false

import json
import shutil
import sys
from pathlib import Path

from transformers import AutoTokenizer

HERE = Path(__file__).parent / "gemma_tokenizer"
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from trainer.tools.tiny_model import DEFAULT_TEXT, write_tokenizer  # noqa: E402

TEXTS = [
    "",
    " ",
    "The harbour wakes before the town does.",
    " leading and trailing ",
    "runs  of   spaces        and\ttabs\t\t",
    "line\nbreaks\n\n\nand\r\nreturns",
    "numbers 1911, 12:34 and 3.14159",
    "combining e\u0301 and precomposed \u00e9",
    "emoji \U0001f642 and a family \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "CJK 你好、世界。 and かな and 한국어",
    "control \x00\x01\x7f characters",
    "private \ue000 and replacement \ufffd",
    "no-break\u00a0space and ideographic\u3000space",
    "already \u2581 marked \u2581\u2581",
    "right to left: שלום مرحبا",
    "<s> </s> <0x41> [INST]",
]
SPECIAL_TEXTS = [
    "<bos><start_of_turn>user\nWhere is the boat?<end_of_turn>\n<start_of_turn>model\n",
    "a<eos>b <pad> c<mask>d<unk>",
    "<start_of_turn><start_of_turn",
]


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    write_tokenizer(HERE, DEFAULT_TEXT.read_text(encoding="utf-8").splitlines(), 512)
    tokenizer = AutoTokenizer.from_pretrained(HERE)
    tokenizer.backend_tokenizer.save(str(HERE / "tokenizer.json"))
    cases = {
        "plain": {text: tokenizer(text).input_ids for text in TEXTS},
        "special": {text: tokenizer(text, add_special_tokens=False).input_ids for text in SPECIAL_TEXTS},
    }
    (HERE / "ids.json").write_text(json.dumps(cases, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
