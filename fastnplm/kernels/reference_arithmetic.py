"""The arithmetic that several kernels of the specification share."""

import functools

import numpy as np

FLOATS = (np.float32, np.float64)
# What is not finite comes out as it is, and whoever reads the loss or the parameters reports it;
# NumPy's warning would stop some callers half-way through a step.
SILENT = functools.partial(np.errstate, all="ignore")


def apply_rule(rule, hyper, grad, parameter, slots):
    """The optimiser's rule on ``parameter`` and ``slots`` (views, changed in place)."""
    kind = parameter.dtype.type
    learning_rate, decay, epsilon, beta1, beta2, correction = (kind(value) for value in hyper)
    rest1, rest2 = kind(1 - hyper[3]), kind(1 - hyper[4])  # rounded after the difference
    with SILENT():
        if decay:
            parameter *= kind(1) - decay
        if rule == "sgd":
            parameter -= learning_rate * grad
        elif rule == "momentum":
            slots[0] *= beta1
            slots[0] += grad
            parameter -= learning_rate * slots[0]
        elif rule == "adagrad":
            slots[0] += grad * grad
            parameter -= learning_rate * grad / (np.sqrt(slots[0]) + epsilon)
        elif rule == "rmsprop":
            slots[0] *= beta2
            slots[0] += rest2 * grad * grad
            parameter -= learning_rate * grad / (np.sqrt(slots[0]) + epsilon)
        elif rule == "adam":
            slots[0] *= beta1
            slots[0] += rest1 * grad
            slots[1] *= beta2
            slots[1] += rest2 * grad * grad
            parameter -= learning_rate * slots[0] / (np.sqrt(slots[1]) * correction + epsilon)


def round_bf16(values):
    """float32 values rounded to bfloat16 (nearest, ties to even), as float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    carry = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    kept = (bits + carry) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), values, kept.view(np.float32))


def rounding(precision):
    """What happens to the operands of a product."""
    return round_bf16 if precision == "bf16" else unrounded


def unrounded(values):
    return values


def sigmoid(values):
    """1 / (1 + exp(-values)) without overflow on either side."""
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1 / (1 + small), small / (1 + small))
