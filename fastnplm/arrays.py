"""Arrays that begin on a cache line: the kernels' vectors then cross fewer lines."""

import numpy as np

LINE = 64  # bytes of a cache line, and of the widest vector


def zeros(shape, dtype):
    """An array of zeros (C order) whose first element lies at a multiple of 64 bytes.

    NumPy's own begin 16 bytes after one: every vector of 64 bytes is then read from two lines.
    """
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.zeros(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size].view(dtype).reshape(shape)
