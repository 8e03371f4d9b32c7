"""The kernel modules that are judged against the specification, one for each instruction set.

A subject is called for a context in which its module is ready: ``with subject() as module``.
"""

import contextlib
import importlib
import importlib.util

import pytest

HAS_NUMBA = importlib.util.find_spec("numba") is not None
HAS_NATIVE = importlib.util.find_spec("fastnplm.kernels.native") is not None
MODULES = []
SUBJECTS = []


def _missing(name, reason):
    return pytest.param(None, id=name, marks=pytest.mark.skip(reason=reason))


@contextlib.contextmanager
def _forced(native, instruction_set):
    """``native`` on one instruction set, for as long as the context lasts."""
    native._force(instruction_set)
    try:
        assert native.describe()["instruction_set"] == instruction_set
        yield native
    finally:
        native._force()


if HAS_NUMBA:
    jitted = importlib.import_module("fastnplm.kernels.jitted")
    MODULES.append(jitted)
    SUBJECTS.append(pytest.param(lambda: contextlib.nullcontext(jitted), id="numba"))
else:
    SUBJECTS.append(_missing("numba", "numba is not installed"))

if HAS_NATIVE:
    native = importlib.import_module("fastnplm.kernels.native")
    MODULES.append(native)
    SUBJECTS += [
        pytest.param(lambda name=name: _forced(native, name), id=f"native-{name}")
        for name in native.instruction_sets()
    ]
else:
    SUBJECTS.append(_missing("native", "the native kernels are not built"))
