"""The kernels in Numba, for people without a compiler: the functions of ``reference``.

Each function is documented there. It checks its arrays as ``reference`` does, then runs compiled
loops on tiles and rows (``jitted_loops``) and leaves products of matrices to NumPy's BLAS. Arrays
are float32. Numba is imported, and a loop compiled, by the first call that needs it. ``threads``
changes nothing: BLAS has its own, and a second pool beside them costs more than it gains.
"""

import numpy as np

from . import checks, contract
from .jitted_call import FLOAT, loops, pieces, pieces_bytes, step_of, two_slots
from .jitted_sampled import draw_noise, negative_step, negative_step_scratch
from .jitted_softmax import (
    softmax_cross_entropy,
    softmax_forward,
    softmax_step,
    softmax_step_scratch,
    softmax_top_k,
)
from .reference_arithmetic import SILENT

__all__ = [
    "bias_tanh",
    "dense_update",
    "describe",
    "draw_noise",
    "dropout",
    "form_contexts",
    "gather_contexts",
    "gather_rows",
    "layer_backward",
    "layer_forward",
    "negative_step",
    "negative_step_scratch",
    "scatter_update",
    "softmax_cross_entropy",
    "softmax_forward",
    "softmax_step",
    "softmax_step_scratch",
    "softmax_top_k",
    "tanh_backward",
    "words_backward",
    "words_forward",
    "words_scratch",
]

NAME = "numba"


def describe():
    """As ``reference.describe``."""
    import llvmlite.binding
    import numba

    return {
        "kernels": f"{NAME} {numba.__version__}",
        "instruction_set": llvmlite.binding.get_host_cpu_name(),
        "threading": "NumPy's BLAS",
    }


# --- contexts and embedding ---------------------------------------------------------------------


def form_contexts(tokens, positions, start_id, end_id, contexts, targets):
    """As ``reference.form_contexts``."""
    checks.form_contexts(tokens, positions, contexts, targets)
    loops().form_contexts(tokens, positions, start_id, end_id, contexts, targets)


def gather_rows(ids, table, rows, threads=1):
    """As ``reference.gather_rows``."""
    checks.gather_rows(FLOAT, ids, table, rows)
    loops().gather_rows(ids, table, rows)


def gather_contexts(
    tokens, positions, start_id, end_id, embedding, contexts, targets, inputs, threads=1
):
    """As ``reference.gather_contexts``."""
    checks.gather_contexts(FLOAT, tokens, positions, embedding, contexts, targets, inputs)
    loops().form_contexts(tokens, positions, start_id, end_id, contexts, targets)
    contract.ids("contexts", contexts, len(embedding), contexts.shape)
    contract.ids("targets", targets, len(embedding), targets.shape)
    rows = inputs.reshape(contexts.size, embedding.shape[1])
    loops().gather_rows(contexts.reshape(-1), embedding, rows)


def scatter_update(ids, grads, rule, hyper, table, slots, threads=1):
    """As ``reference.scatter_update``."""
    checks.scatter_update(FLOAT, ids, grads, rule, hyper, table, slots)
    loops().scatter_update(ids, grads, *step_of(rule, hyper), table, *two_slots(slots))


def dense_update(grad, rule, hyper, parameter, slots, threads=1):
    """As ``reference.dense_update``."""
    checks.dense_update(FLOAT, grad, rule, hyper, parameter, slots)
    first, second = two_slots(slots)
    code, numbers = step_of(rule, hyper)
    loops().take_step(
        code,
        numbers,
        grad.reshape(-1),
        parameter.reshape(-1),
        first.reshape(-1),
        second.reshape(-1),
    )


# --- the hidden layer ---------------------------------------------------------------------------


def bias_tanh(bias, hidden, threads=1):
    """As ``reference.bias_tanh``."""
    checks.bias_tanh(FLOAT, bias, hidden)
    loops().bias_tanh(bias, hidden)


def tanh_backward(hidden, grad_bias, grad_hidden, threads=1):
    """As ``reference.tanh_backward``."""
    checks.tanh_backward(FLOAT, hidden, grad_bias, grad_hidden)
    loops().tanh_backward(hidden, grad_bias, grad_hidden)


def dropout(mask, scale, values, threads=1):
    """As ``reference.dropout``."""
    checks.dropout(FLOAT, mask, values)
    loops().dropout(mask.reshape(-1), np.float32(scale), values.reshape(-1))


def layer_forward(inputs, weight, bias, hidden, linear=False, threads=1):
    """As ``reference.layer_forward``."""
    checks.layer_forward(FLOAT, inputs, weight, bias, hidden)
    with SILENT():
        np.matmul(inputs, weight.T, out=hidden)
        if linear:
            hidden += bias
    if not linear:
        loops().bias_tanh(bias, hidden)


def layer_backward(
    inputs, hidden, weight, grad_hidden, grad_weight, grad_bias, grad_inputs, linear=False,
    threads=1,
):  # fmt: skip
    """As ``reference.layer_backward``."""
    checks.layer_backward(
        FLOAT, inputs, hidden, weight, grad_hidden, grad_weight, grad_bias, grad_inputs
    )
    if linear:
        with SILENT():
            grad_hidden.sum(axis=0, out=grad_bias)
    else:
        loops().tanh_backward(hidden, grad_bias, grad_hidden)
    with SILENT():
        np.matmul(grad_hidden.T, inputs, out=grad_weight)
        np.matmul(grad_hidden, weight, out=grad_inputs)


def words_scratch(batch, context, dim, hidden, precision="float32", threads=1):
    """As ``reference.words_scratch``."""
    return pieces_bytes(*_words_shapes(batch, context * dim, hidden, precision))


def _words_shapes(batch, width, hidden, precision):
    """Inputs and their gradient; for bf16 the rounded weight and gradient of tanh's argument."""
    shapes = [(batch, width), (batch, width)]
    return [*shapes, (hidden, width), (batch, hidden)] if precision == "bf16" else shapes


def words_forward(
    contexts, embedding, weight, bias, scratch, hidden, precision="float32", threads=1
):
    """As ``reference.words_forward``."""
    size = _words_bytes(contexts, embedding, weight, precision)
    checks.words_forward(FLOAT, contexts, embedding, weight, bias, scratch, hidden, precision, size)
    shapes = _words_shapes(len(contexts), weight.shape[1], len(weight), precision)
    inputs, _, *rounded = pieces(scratch, *shapes)
    rows = inputs.reshape(contexts.size, embedding.shape[1])
    loops().gather_rows(contexts.reshape(-1), embedding, rows)
    if rounded:
        loops().round_bf16(inputs.reshape(-1), inputs.reshape(-1))
        loops().round_bf16(weight.reshape(-1), rounded[0].reshape(-1))
        weight = rounded[0]
    with SILENT():
        np.matmul(inputs, weight.T, out=hidden)
    loops().bias_tanh(bias, hidden)


def words_backward(
    contexts,
    hidden,
    weight,
    rule,
    hyper,
    scratch,
    grad_hidden,
    grad_weight,
    grad_bias,
    embedding,
    slots,
    precision="float32",
    threads=1,
):
    """As ``reference.words_backward``."""
    checks.words_backward(
        FLOAT,
        contexts,
        hidden,
        weight,
        rule,
        hyper,
        scratch,
        grad_hidden,
        grad_weight,
        grad_bias,
        embedding,
        slots,
        precision,
        _words_bytes(contexts, embedding, weight, precision),
    )
    by_word = (contexts.size, embedding.shape[1])
    shapes = _words_shapes(len(contexts), weight.shape[1], len(weight), precision)
    inputs, grad_inputs, *rounded = pieces(scratch, *shapes)
    words = contexts.reshape(-1)
    loops().gather_rows(words, embedding, inputs.reshape(by_word))
    loops().tanh_backward(hidden, grad_bias, grad_hidden)
    grad = grad_hidden
    if rounded:
        loops().round_bf16(inputs.reshape(-1), inputs.reshape(-1))
        for values, near in zip((weight, grad_hidden), rounded, strict=True):
            loops().round_bf16(values.reshape(-1), near.reshape(-1))
        weight, grad = rounded
    with SILENT():
        np.matmul(grad.T, inputs, out=grad_weight)
        np.matmul(grad, weight, out=grad_inputs)
    grads = grad_inputs.reshape(by_word)
    loops().scatter_update(words, grads, *step_of(rule, hyper), embedding, *two_slots(slots))


def _words_bytes(contexts, embedding, weight, precision):
    """What ``words_scratch`` answers for these; 0 for what the checks will refuse."""
    if any(getattr(array, "ndim", 0) != 2 for array in (contexts, embedding, weight)):
        return 0
    return words_scratch(*contexts.shape, embedding.shape[1], len(weight), precision)
