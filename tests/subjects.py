"""The kernel modules that are judged against the specification, one for each instruction set."""

import contextlib
import importlib
import importlib.util

import pytest

HAS_NUMBA = importlib.util.find_spec("numba") is not None
MODULES = []
SUBJECTS = []

if HAS_NUMBA:
    jitted = importlib.import_module("fastnplm.kernels.jitted")
    MODULES.append(jitted)
    SUBJECTS.append(pytest.param(lambda: contextlib.nullcontext(jitted), id="numba"))
else:
    skip = pytest.mark.skip(reason="numba is not installed")
    SUBJECTS.append(pytest.param(None, id="numba", marks=skip))
