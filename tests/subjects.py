"""The kernel modules that are judged against the specification, one for each instruction set."""

import contextlib
import importlib
import importlib.util

import pytest


def _jitted():
    return contextlib.nullcontext(importlib.import_module("fastnplm.kernels.jitted"))


def _subjects():
    yield pytest.param(
        _jitted,
        id="numba",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("numba") is None, reason="numba is not installed"
        ),
    )


SUBJECTS: list = []  # until there is a second module
