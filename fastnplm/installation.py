"""What this installation runs on, for ``fastnplm info`` and reports of trouble."""

import platform
import warnings

import numpy as np

from . import kernels, threads
from .errors import SettingsError
from .version import __version__


def describe():
    """Version, kernels and the machine, as a dict of strings and numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the kernels in use are what is told here
        chosen = kernels.load("auto")
    found = {"fastnplm": __version__, "python": platform.python_version(), "numpy": np.__version__}
    found |= chosen.describe()
    found["kernels_available"] = ", ".join(_available())
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    found["blas"] = " ".join(str(blas.get(name, "")) for name in ("name", "version")).strip()
    found["threads"] = threads.default_threads()
    found["machine"] = f"{platform.system()} {platform.machine()}"
    return found


def _available():
    names = []
    for name in ("native", "numba", "reference"):
        try:
            kernels.load(name)
        except SettingsError:
            continue
        names.append(name)
    return names
