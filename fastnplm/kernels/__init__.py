"""The kernel modules: ``reference`` (NumPy, the specification), ``jitted`` (Numba), ``native``.

A kernel module is chosen with ``load`` and handed on; nothing here keeps a current choice.
"""

import importlib
import importlib.util
import warnings

from ..errors import SettingsError

NAMES = ("auto", "native", "numba", "reference")


def load(name="auto"):
    """The kernel module of that name.

    ``auto`` takes the compiled kernels, else Numba's if numba is installed, else NumPy's, with
    one warning that says so. A module that cannot be had raises SettingsError with the reason.
    """
    if name not in NAMES:
        raise SettingsError(f"kernels is {name!r}; expected one of {', '.join(NAMES)}")
    if name in ("auto", "native"):
        try:
            return importlib.import_module(".native", __name__)
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
        warnings.warn(
            "fastnplm runs on its NumPy kernels (no compiled kernels, no numba): expect it to be"
            " several times slower; install a C compiler and reinstall, or pip install numba",
            RuntimeWarning,
            stacklevel=2,
        )
    return importlib.import_module(".reference", __name__)
