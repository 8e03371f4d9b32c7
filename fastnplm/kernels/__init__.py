"""The kernel modules: ``reference`` (NumPy, the specification), ``jitted`` (Numba), ``native``.

A kernel module is chosen with ``load`` and handed on; nothing here keeps a current choice.
"""

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import warnings

from ..errors import SettingsError

NAMES = ("auto", "native", "numba", "reference")

# How long a waiting thread spins before it sleeps: long enough for the gaps between the parts of a
# step (some 0.1 ms), short enough to give way when the processors have other work. libgomp's
# own 300,000 rounds are about 5 ms; a step then took 4 to 16 times as long beside two busy
# processes (docs/kernels.md). The second name is that of clang's runtime, in milliseconds.
_PATIENCE = {"GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "1"}
_CHOSEN = ("OMP_WAIT_POLICY", *_PATIENCE)


def load(name="auto"):
    """The kernel module of that name.

    ``auto`` takes the compiled kernels, else Numba's if numba is installed, else NumPy's, with
    one warning that says so. A module that cannot be had raises SettingsError with the reason.
    """
    if name not in NAMES:
        raise SettingsError(f"kernels is {name!r}; expected one of {', '.join(NAMES)}")
    if name in ("auto", "native"):
        try:
            return _native()
        except ModuleNotFoundError:
            if name == "native":
                raise SettingsError(
                    "the native kernels are not built; reinstall fastnplm where a C compiler is,"
                    " or pass kernels=numba or kernels=reference"
                ) from None
    if name == "numba" or (name == "auto" and importlib.util.find_spec("numba")):
        if importlib.util.find_spec("numba") is None:
            raise SettingsError("numba is not installed; pip install 'fastnplm[numba]'")
        return importlib.import_module(".jitted", __name__)
    if name == "auto":
        _warn_of_numpy()
    return importlib.import_module(".reference", __name__)


@functools.cache
def _warn_of_numpy():
    """Once a process: whoever loads the kernels again has been told."""
    warnings.warn(
        "fastnplm runs on its NumPy kernels (no compiled kernels, no numba): expect it to be"
        " several times slower; install a C compiler and reinstall, or pip install numba",
        RuntimeWarning,
        stacklevel=3,
    )


def _native():
    """The compiled kernels; OpenMP reads its settings when they are first loaded."""
    name = f"{__name__}.native"
    if name in sys.modules:
        return sys.modules[name]
    with _patience():
        return importlib.import_module(name)


@contextlib.contextmanager
def _patience():
    """The environment with ``_PATIENCE`` in it, unless the user has chosen."""
    if any(variable in os.environ for variable in _CHOSEN):
        yield
        return
    os.environ.update(_PATIENCE)
    try:
        yield
    finally:
        for variable in _PATIENCE:
            del os.environ[variable]
