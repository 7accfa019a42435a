"""Tokenizers as they lie beside a model: SentencePiece `tokenizer.model`, Hugging Face `tokenizer.json`, or
the `vocab.json` and `merges.txt` of BLOOM's byte-level BPE.

The two libraries that define these formats do the work; this package reads what the files around them say
about special tokens and gives all the same face.
"""

from trainer.tokenizers.loading import load_tokenizer
from trainer.tokenizers.tokenizer import EncodedBatch, Encoding, Tokenizer

__all__ = ["EncodedBatch", "Encoding", "Tokenizer", "load_tokenizer"]
