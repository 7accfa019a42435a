"""BLOOM's byte-level BPE from `vocab.json` and `merges.txt`, as PaddleNLP keeps it.

A text is cut into words by BLOOM's own pattern, the bytes of a word are written as printable characters, and
those are merged (Radford et al. 2019, section 2.2). The two files hold the merges; the rest is put in here.
"""

import json
from collections.abc import Mapping
from typing import Any

VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
#: Where the files do not say otherwise.
ROLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}

#: A word takes the space before it along, and ends before whitespace, brackets and the stops of the languages
#: that BLOOM was made for.
WORDS = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def byte_level_json(vocabulary: Mapping[str, int], merges: str, roles: Mapping[str, str]) -> str:
    """The content of a tokenizer.json that does the same.

    Args:
        vocabulary: token → id; tokens are written in the printable characters that stand for bytes.
        merges: content of merges.txt: one pair a line, the most frequent first, perhaps below a version line.
        roles: "unk_token" and the like → the token.
    """
    lines = [line for line in merges.splitlines() if line and not line.startswith("#version")]
    unknown = roles.get("unk_token")
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _special(token, vocabulary[token])
            for token in sorted(set(roles.values()) & vocabulary.keys(), key=lambda token: vocabulary[token])
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated", "invert": False},
                _byte_level(add_prefix_space=False, trim_offsets=True),
            ],
        },
        "post_processor": _byte_level(add_prefix_space=True, trim_offsets=False),
        "decoder": _byte_level(add_prefix_space=True, trim_offsets=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown if unknown in vocabulary else None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": dict(vocabulary),
            "merges": [line.split(" ") for line in lines],
        },
    }
    return json.dumps(content, ensure_ascii=False)


def _byte_level(add_prefix_space: bool, trim_offsets: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": trim_offsets,
        "use_regex": False,
    }


def _special(token: str, number: int) -> dict[str, Any]:
    habits = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": token, **habits, "special": True}
