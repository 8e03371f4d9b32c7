"""The sampled losses in Numba: scores word by word, then one step for each word named."""

import numpy as np

from . import checks
from .jitted_call import FLOAT, loops, pieces, pieces_bytes, step_of, two_slots


def draw_noise(bits, threshold, alias, noise, threads=1):
    """As ``reference.draw_noise``."""
    checks.draw_noise(bits, threshold, alias, noise)
    loops().draw_noise(bits, threshold, alias, noise)


def negative_step_scratch(batch, block, negatives, hidden, threads=1):
    """As ``reference.negative_step_scratch``."""
    return pieces_bytes((batch, negatives + 1), (batch, negatives + 1))


def negative_step(
    hidden,
    targets,
    weights,
    noise,
    block,
    skip_target,
    offsets,
    rule,
    hyper,
    scratch,
    losses,
    grad_hidden,
    output_weight,
    output_bias,
    weight_slots,
    bias_slots,
    threads=1,
):
    """As ``reference.negative_step``."""
    size = 0
    if getattr(hidden, "ndim", 0) == 2 and getattr(noise, "ndim", 0) == 2:
        size = negative_step_scratch(len(hidden), block, noise.shape[1], hidden.shape[1])
    checks.negative_step(
        FLOAT,
        hidden,
        targets,
        weights,
        noise,
        block,
        offsets,
        rule,
        hyper,
        scratch,
        losses,
        grad_hidden,
        output_weight,
        output_bias,
        weight_slots,
        bias_slots,
        size,
    )
    shape = (len(hidden), noise.shape[1] + 1)
    words, coefficients = pieces(scratch, shape, shape)
    words = words.view(np.int32)
    loops().negative_forward(
        hidden,
        targets,
        weights,
        noise,
        block,
        bool(skip_target),
        offsets,
        output_weight,
        output_bias,
        words,
        coefficients,
        losses,
        grad_hidden,
    )
    code, numbers = step_of(rule, hyper)
    loops().negative_update(
        hidden,
        words,
        coefficients,
        code,
        numbers,
        step_of(rule, hyper, decayed=False)[1],
        output_weight,
        output_bias,
        *two_slots(weight_slots),
        *two_slots(bias_slots),
    )
