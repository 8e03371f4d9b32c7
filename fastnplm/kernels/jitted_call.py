"""What stands between a checked call and its compiled loop: the rule's numbers, and scratch."""

import functools
import importlib
import math

import numpy as np

FLOAT = (np.float32,)
LINE = 64  # bytes; each piece of scratch begins on a line
_RULES = ("sgd", "momentum", "adagrad", "rmsprop", "adam")  # the order of the loops' constants


@functools.cache
def loops():
    """The compiled loops; the first call imports Numba."""
    return importlib.import_module(".jitted_loops", __package__)


def step_of(rule, hyper, decayed=True):
    """(code, numbers): learning rate, 1 - decay, epsilon, beta1, beta2, correction, 1 - betas."""
    learning_rate, decay, epsilon, beta1, beta2, correction = hyper.tolist()
    keep = 1 - decay if decayed else 1.0
    numbers = (learning_rate, keep, epsilon, beta1, beta2, correction, 1 - beta1, 1 - beta2)
    return _RULES.index(rule), np.array(numbers, dtype=np.float32)


def two_slots(slots):
    """The state as two arrays; one that the rule lacks stands for by an unused one."""
    count = len(slots)
    if count == 2:
        return slots[0], slots[1]
    spare = np.empty((0,) * (slots.ndim - 1), dtype=np.float32)
    return (slots[0], spare) if count else (spare, spare)


def pieces_bytes(*shapes):
    """Bytes of scratch for float32 arrays of these shapes."""
    return LINE + sum(_bytes(shape) for shape in shapes)


def pieces(scratch, *shapes):
    """float32 arrays of these shapes in ``scratch``."""
    start = -scratch.ctypes.data % LINE
    for shape in shapes:
        size = 4 * math.prod(shape)
        yield scratch[start : start + size].view(np.float32).reshape(shape)
        start += _bytes(shape)


def _bytes(shape):
    return -(-4 * math.prod(shape) // LINE) * LINE
