# cython: language_level=3
"""The compiled kernels: the functions of ``reference``, where they are documented, in C.

Each function checks its arrays, releases the GIL and makes one C call. Nothing is written before
every check has passed. Arrays are read through the buffer protocol, so no NumPy header is needed,
and are float32: float64 is for the reference kernels. The instruction set is chosen when the
kernels are first used: the best this processor has, or the one that FASTNPLM_ISA names.
"""

import os

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdlib cimport free, malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

import numpy as np

from ..errors import ArrayError, IdError, SettingsError
from . import contract

NAME = "native"

include "calls.pxi"


cdef level active_level
active_level.kernels = NULL


cdef const kernels *chosen() except NULL:
    """The kernels in use; the first call chooses them."""
    if active_level.kernels is NULL:
        _force(os.environ.get("FASTNPLM_ISA") or None)
    return active_level.kernels


def instruction_sets():
    """The names of the instruction sets built in that this processor has, the best last."""
    cdef level levels[8]
    cdef int count = dispatch_levels(levels)
    return [levels[at].name.decode() for at in range(count) if levels[at].supported]


def _force(name=None):
    """Use one instruction set from now on, for the whole process: for tests. None: the best."""
    global active_level
    cdef level levels[8]
    cdef int count = dispatch_levels(levels)
    cdef int at
    for at in range(count - 1, -1, -1):
        if levels[at].supported and (name is None or levels[at].name.decode() == name):
            active_level = levels[at]
            return
    having = ", ".join(instruction_sets()) or "none"
    raise SettingsError(
        f"FASTNPLM_ISA is {name!r}; this processor and build have {having}"
        if name is not None else
        "this processor has none of the instruction sets that the native kernels were built for;"
        " use kernels=\"numba\" or kernels=\"reference\""
    )


def describe():
    """What these kernels run on: a dict of strings."""
    chosen()
    return {
        "kernels": NAME,
        "instruction_set": active_level.name.decode(),
        "available": ", ".join(instruction_sets()),
        "threading": "OpenMP" if threads_available() else "one thread (built without OpenMP)",
        "bf16": "in hardware" if active_level.bf16 else "emulated",
    }


include "arrays.pxi"
include "embedding.pxi"
include "hidden.pxi"
include "softmax.pxi"
include "sampled.pxi"
