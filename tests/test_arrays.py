"""Arrays for the kernels begin on a cache line."""

import numpy as np
import pytest

from fastnplm import arrays


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 3), (1000, 101), (2, 5, 9), ()])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_zeros_begin_on_a_cache_line(shape, dtype):
    made = arrays.zeros(shape, dtype)
    assert made.shape == shape
    assert made.dtype == dtype
    assert made.flags.c_contiguous
    assert made.flags.writeable
    if made.size:  # an empty one has no first element
        assert made.ctypes.data % 64 == 0
    assert not made.any()
    made[...] = 1  # the whole of it is there
    assert made.sum() == np.prod(shape)
