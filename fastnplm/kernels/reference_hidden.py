"""The specification's kernels of the hidden layers: see ``reference``."""

import numpy as np

from . import checks
from .reference_arithmetic import FLOATS, SILENT, rounding
from .reference_embedding import gather_rows, scatter_update


def bias_tanh(bias, hidden, threads=1):
    """``hidden = tanh(hidden + bias)`` in place. bias : (H,); hidden : (B, H), changed."""
    checks.bias_tanh(FLOATS, bias, hidden)
    with SILENT():
        hidden += bias
        np.tanh(hidden, out=hidden)


def tanh_backward(hidden, grad_bias, grad_hidden, threads=1):
    """Turn the gradient of tanh's result into that of its argument: ``grad *= 1 - hidden**2``.

    hidden : (B, H), what ``bias_tanh`` gave; grad_bias : (H,), written: the sum over examples;
    grad_hidden : (B, H), changed.
    """
    checks.tanh_backward(FLOATS, hidden, grad_bias, grad_hidden)
    with SILENT():
        grad_hidden *= 1 - hidden * hidden
        grad_hidden.sum(axis=0, out=grad_bias)


def dropout(mask, scale, values, threads=1):
    """``values *= mask * scale`` in place. mask : uint8, 0 or 1, the shape of ``values``.

    With scale = 1 / (share kept) the expectation is unchanged ("inverted" dropout, Srivastava et
    al. 2014). A dropped element becomes 0 whatever it was.
    """
    checks.dropout(FLOATS, mask, values)
    with SILENT():
        values *= values.dtype.type(scale)
    values[mask == 0] = 0


def layer_forward(inputs, weight, bias, hidden, linear=False, threads=1):
    """``hidden = tanh(inputs @ weight.T + bias)``, without tanh if ``linear``.

    inputs : (B, D); weight : (H, D); bias : (H,); hidden : (B, H), written.
    """
    checks.layer_forward(FLOATS, inputs, weight, bias, hidden)
    with SILENT():
        np.matmul(inputs, weight.T, out=hidden)
        if linear:
            hidden += bias
    if not linear:
        bias_tanh(bias, hidden)


def layer_backward(
    inputs, hidden, weight, grad_hidden, grad_weight, grad_bias, grad_inputs, linear=False,
    threads=1,
):  # fmt: skip
    """The gradients of ``layer_forward``.

    grad_hidden : (B, H), changed into the gradient of tanh's argument (if ``linear`` left alone,
    and ``hidden`` is not read);
    grad_weight : (H, D), grad_bias : (H,), grad_inputs : (B, D), written.
    """
    checks.layer_backward(
        FLOATS, inputs, hidden, weight, grad_hidden, grad_weight, grad_bias, grad_inputs
    )
    if linear:
        with SILENT():
            grad_hidden.sum(axis=0, out=grad_bias)
    else:
        tanh_backward(hidden, grad_bias, grad_hidden)
    with SILENT():
        np.matmul(grad_hidden.T, inputs, out=grad_weight)
        np.matmul(grad_hidden, weight, out=grad_inputs)


def words_scratch(batch, context, dim, hidden, precision="float32", threads=1):
    """Bytes of scratch that ``words_forward`` and ``words_backward`` need."""
    return 0


def words_forward(
    contexts, embedding, weight, bias, scratch, hidden, precision="float32", threads=1
):
    """The hidden layer from word ids: ``tanh(weight @ concat(embedding[context]) + bias)``.

    A kernel may project each distinct word of a context position once and sum the projections:
    the same sum in another order.

    contexts : int32 (B, N), each in [0, V); embedding : (V, M); weight : (H, N*M);
    bias : (H,); hidden : (B, H), written; precision : "float32", or "bf16": embedding and weight
    are rounded to bfloat16 for the product, which is summed in float32.
    Raises IndexError for a bad id.
    """
    checks.words_forward(FLOATS, contexts, embedding, weight, bias, scratch, hidden, precision, 0)
    rounded = rounding(precision)
    batch, context = contexts.shape
    dim = embedding.shape[1]
    inputs = np.empty((batch, context * dim), dtype=embedding.dtype)
    gather_rows(contexts.reshape(-1), embedding, inputs.reshape(batch * context, dim))
    layer_forward(rounded(inputs), rounded(weight), bias, hidden)


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
    """Backward through ``words_forward``; the embedding's touched rows take their step.

    Duplicates (a word several times in a context or a batch) are summed first. ``weight`` is not
    updated: its gradient is written, for ``dense_update``.

    grad_hidden : (B, H), changed into the gradient of tanh's argument; grad_weight : (H, N*M) and
    grad_bias : (H,), written; embedding : (V, M) and slots : (S, V, M), updated.
    precision : with "bf16" the gradient of tanh's argument (summed over the examples of a word or
    not), embedding and weight are rounded for the products; grad_bias and the step are not.
    Raises IndexError for a bad id; nothing has then changed.
    """
    checks.words_backward(
        FLOATS,
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
        0,
    )
    rounded = rounding(precision)
    batch, context = contexts.shape
    dim = embedding.shape[1]
    inputs = np.empty((batch, context * dim), dtype=embedding.dtype)
    flat = contexts.reshape(-1)
    gather_rows(flat, embedding, inputs.reshape(batch * context, dim))
    grad_inputs = np.empty_like(inputs)
    tanh_backward(hidden, grad_bias, grad_hidden)
    grad = rounded(grad_hidden)
    with SILENT():
        np.matmul(grad.T, rounded(inputs), out=grad_weight)
        np.matmul(grad, rounded(weight), out=grad_inputs)
    scatter_update(flat, grad_inputs.reshape(len(flat), dim), rule, hyper, embedding, slots)
