"""Write tests/golden/bloom_tokenizer: a small byte-level BPE with BLOOM's habits, as tokenizer.json and as
vocab.json with merges.txt, and the ids transformers gives.
"""

# pyright: reportMissingImports=false

import json
import shutil
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

HERE = Path(__file__).parent / "bloom_tokenizer"
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.golden.texts import TEXTS  # noqa: E402

TEXT = ROOT / "trainer" / "tools" / "text" / "harbour.txt"
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
SPECIAL_TEXTS = ["<s>a boat</s> <pad>", "Human: <s> é</s>🙂", "<unk></s", " <s> "]
WORDS = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    train().save(str(HERE / "tokenizer.json"))
    config = {
        "add_prefix_space": False,
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "padding_side": "left",
        "tokenizer_class": "BloomTokenizerFast",
        "unk_token": "<unk>",
    }
    write("tokenizer_config.json", json.dumps(config, indent=1))
    roles = {key: value for key, value in config.items() if key.endswith("_token")}
    write("special_tokens_map.json", json.dumps(roles, indent=1))
    tokenizer = AutoTokenizer.from_pretrained(HERE)
    special = [*SPECIAL_TEXTS, *(text for text in TEXTS if any(token in text for token in SPECIAL))]
    cases = {
        "plain": {text: tokenizer(text).input_ids for text in TEXTS if text not in special},
        "special": {text: tokenizer(text).input_ids for text in special},
    }
    write("ids.json", json.dumps(cases, indent=1))
    model = json.loads((HERE / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    write("vocab.json", json.dumps(model["vocab"], ensure_ascii=False))
    write("merges.txt", "\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]))


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated", invert=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    lines = TEXT.read_text(encoding="utf-8").splitlines(keepends=True)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def write(name: str, text: str) -> None:
    (HERE / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
