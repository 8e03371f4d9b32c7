"""A kernel's answers against the specification's in float64, before it is timed."""

import copy

import numpy as np

from fastnplm.kernels import reference

from .check import ULPS, YARDSTICKS, WrongResultError, rms

_kept = {}  # answers of the specification, for the modules that follow


def check(case, name, module, threads=1):
    """Compare one call of ``module`` with the float64 reference; raises WrongResultError.

    The yardstick is the reference in the kernel's own precision.
    """
    if case.name not in _kept:
        _kept.clear()
        _kept[case.name] = _answers(_wide(case), reference), _answers(case, reference)
    truth, yardstick = _kept[case.name]
    found = _answers(case, module, threads)
    for argument in case.written:
        error = rms(found[argument], truth[argument])
        if found[argument].dtype.kind == "i":
            allowed = 0.0
        else:
            largest = np.float32(np.abs(truth[argument]).max())
            allowed = YARDSTICKS * rms(yardstick[argument], truth[argument])
            allowed = max(allowed, ULPS * float(np.spacing(largest)))
        if not error <= allowed:
            raise WrongResultError(
                f"{name} {case.name}: {argument} differs from float64 by {error:.3g} (root mean"
                f" square); allowed is {allowed:.3g}"
            )


def _answers(case, module, threads=1):
    """What one call writes, on copies of the case's arrays."""
    fresh = case.fresh()
    fresh.calls(module, threads)[0]()
    return {argument: fresh.arguments[argument] for argument in case.written}


def _wide(case):
    """The case with all its floating arrays in float64."""

    def widen(value):
        narrow = isinstance(value, np.ndarray) and value.dtype == np.float32
        return value.astype(np.float64) if narrow else value

    wide = copy.copy(case)
    # What a kernel only writes begins as whatever memory held, numbers or not.
    with np.errstate(invalid="ignore"):
        wide.arguments = {name: widen(value) for name, value in case.arguments.items()}
    if wide.precision == "bf16":
        wide.arguments["precision"] = "float32"
    return wide
