"""The memory of tensors that lie on the host, for numpy to write to."""

import numpy as np
from paddle import Tensor


def writable(tensor: Tensor) -> np.ndarray | None:
    """An array that shares memory with a float32 tensor on the host; None for any other tensor."""
    if tensor.place.is_cpu_place() and str(tensor.dtype) == "paddle.float32":
        return np.from_dlpack(tensor.detach())
    return None
