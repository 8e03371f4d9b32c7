"""What every kernel checks before it writes anything; shared by the Python kernel modules.

The rule is one and strict: arrays are C-contiguous, aligned, in native byte order and of the
dtype the docstring names (inputs may be read-only); ids are int32 and inside their range; an
array that is written overlaps no other. Anything else raises, and nothing has changed.
"""

import numpy as np

from ..errors import ArrayError, IdError, SettingsError

SLOTS = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adam": 2}
HYPER = ("learning_rate", "decay", "epsilon", "beta1", "beta2", "correction")
PRECISIONS = ("float32", "bf16")


def array(name, value, dtype, shape, written=False):
    """Refuse ``value`` unless it is a plain array of ``dtype`` and ``shape``.

    None as the shape allows any, None as an entry of it any size.
    """
    dtypes = dtype if isinstance(dtype, tuple) else (dtype,)
    if not isinstance(value, np.ndarray):
        raise ArrayError(f"{name} is a {type(value).__name__}; expected a numpy array")
    if value.dtype not in dtypes or not value.dtype.isnative:
        wanted = " or ".join(np.dtype(d).name for d in dtypes)
        raise ArrayError(f"{name} has dtype {value.dtype}; expected {wanted}")
    if shape is not None and (
        value.ndim != len(shape)
        or any(want not in (None, have) for have, want in zip(value.shape, shape, strict=True))
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ArrayError(f"{name} has shape {value.shape}; expected ({wanted})")
    if not value.flags.c_contiguous or not value.flags.aligned:
        raise ArrayError(f"{name} is not C-contiguous and aligned; pass np.ascontiguousarray of it")
    if written and not value.flags.writeable:
        raise ArrayError(f"{name} is read-only, but this kernel writes to it; pass a copy")
    return value


def ids(name, value, limit, shape):
    """Refuse ids that are not int32 in [0, limit): names the first bad value and its position."""
    array(name, value, np.int32, shape)
    if value.size and (value.min() < 0 or value.max() >= limit):
        flat = value.reshape(-1)
        where = int(np.flatnonzero((flat < 0) | (flat >= limit))[0])
        raise IdError(f"{name} holds {flat[where]} at position {where}; ids are in [0, {limit})")
    return value


def rule(name, hyper):
    """The number of state slots of an optimiser's rule; refuses an unknown rule or bad values."""
    if name not in SLOTS:
        raise SettingsError(f"rule is {name!r}; expected one of {', '.join(SLOTS)}")
    array("hyper", hyper, np.float64, (len(HYPER),))
    return SLOTS[name]


def positions(name, value, limit):
    """Refuse stream positions outside [0, limit)."""
    if value.size and (value.min() < 0 or value.max() >= limit):
        where = int(np.flatnonzero((value < 0) | (value >= limit))[0])
        raise IdError(f"{name} holds {value[where]} at position {where}; expected [0, {limit})")


def precision(value, dtype):
    """Refuse a precision that no kernel knows, and bfloat16 products of float64 arrays."""
    if value not in PRECISIONS:
        raise SettingsError(f"precision is {value!r}; expected one of {', '.join(PRECISIONS)}")
    if value == "bf16" and dtype != np.float32:
        raise SettingsError(f"precision is 'bf16' and the arrays are {dtype}; expected float32")


def scratch(value, size):
    """Refuse a workspace of fewer bytes than the kernel's ``*_scratch`` function names."""
    array("scratch", value, np.uint8, (None,), written=True)
    if len(value) < size:
        raise ArrayError(f"scratch has {len(value)} bytes; this call needs {size}")


def top(count, limit):
    """Refuse a number of best words outside [1, limit]."""
    if not 1 <= count <= limit:
        raise ArrayError(f"ids asks for the {count} best of {limit} words; expected 1 to {limit}")


def block(value):
    """Refuse a noise block of fewer than one example."""
    if not value >= 1:  # nor if it is not a number
        raise SettingsError(f"block is {value}; expected at least 1 example")


def empty_table():
    """Refuse to draw from a table of no words."""
    raise ArrayError("threshold is empty; there is no word to draw")


def apart(written, others):
    """Refuse written arrays that share memory with one another or with an input."""
    named = list(written.items()) + list(others.items())
    for index, (name, value) in enumerate(written.items()):
        for other_name, other in named[index + 1 :]:
            if np.may_share_memory(value, other):
                raise ArrayError(f"{name} overlaps {other_name}; pass arrays of their own")
