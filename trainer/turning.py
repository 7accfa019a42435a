"""Turning matrices, which lie one way in memory and the other way in files."""

import numpy as np

# So many rows are taken at once. Rows often lie a power of two of bytes apart, and more of them than a
# processor's cache has ways push each other out of it; numpy by itself goes through all of them.
_ROWS = 8


def put_turned(target: np.ndarray, values: np.ndarray) -> None:
    """Do ``target[...] = values.T``, fast for matrices whose rows are contiguous."""
    if values.ndim != 2:
        target[...] = values.T
        return
    for row in range(0, len(values), _ROWS):
        target[:, row : row + _ROWS] = values[row : row + _ROWS].T
