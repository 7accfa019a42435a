"""Tokenizers as they lie beside a model: SentencePiece `tokenizer.model` or Hugging Face `tokenizer.json`.

The two libraries that define these formats do the work; this package reads what the files around them say
about special tokens and gives both the same face.
"""

from trainer.tokenizers.loading import load_tokenizer
from trainer.tokenizers.tokenizer import Tokenizer

__all__ = ["Tokenizer", "load_tokenizer"]
