"""Small whole numbers in 32-bit words, the first number in the lowest bits, as files store them."""

from __future__ import annotations

import numpy as np

_WORD = np.dtype("<i4")
_WORD_BITS = 32


def word_count(count: int, bits: int) -> int:
    """Words that hold `count` numbers."""
    return -(-count * bits // _WORD_BITS)


def pack_words(values: np.ndarray, bits: int) -> np.ndarray:
    """Numbers as words, each raised by 2^(bits - 1) to be positive; the last word is filled with zero bits.

    Args:
        values: int8 `[rows, count]`, within the limits of `bits`, which is 4 or 8.

    Returns:
        int32 `[rows, word_count]`.
    """
    rows, count = values.shape
    raised = np.zeros((rows, word_count(count, bits) * _WORD_BITS // bits), np.uint8)
    raised[:, :count] = values.astype(np.int16) + (1 << (bits - 1))
    if bits == 4:
        raised = raised[:, 0::2] | raised[:, 1::2] << 4
    return np.ascontiguousarray(raised).view(_WORD)


def unpack_words(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The reverse of `pack_words`: int8 `[rows, count]`."""
    raised = np.ascontiguousarray(words, _WORD).view(np.uint8)
    if bits == 4:
        raised = np.stack([raised & 0xF, raised >> 4], axis=-1).reshape(len(raised), -1)
    return (raised[:, :count].astype(np.int16) - (1 << (bits - 1))).astype(np.int8)
