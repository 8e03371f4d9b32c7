"""The specification's kernels of contexts, embedding and updates: see ``reference``."""

import numpy as np

from . import checks, contract
from .reference_arithmetic import FLOATS, SILENT, apply_rule


def form_contexts(tokens, positions, start_id, end_id, contexts, targets):
    """Write the context and the target of each position of the token stream.

    The target is ``tokens[p]``; its context the N tokens before it, oldest first, with
    ``start_id`` from the sentence's start on: a context never reaches past ``end_id``.

    Parameters
    ----------
    tokens : uint16 or int32 (T,), sentences ended by ``end_id``
    positions : int64 (B,), each in [0, T)
    start_id, end_id : int
    contexts : int32 (B, N), written
    targets : int32 (B,), written

    Raises
    ------
    IndexError
        If a position lies outside [0, T).
    """
    checks.form_contexts(tokens, positions, contexts, targets)
    targets[:] = tokens[positions]
    inside = np.ones(len(positions), dtype=bool)
    for back in range(1, contexts.shape[1] + 1):
        where = positions - back
        word = tokens[np.maximum(where, 0)]
        inside &= (where >= 0) & (word != end_id)
        contexts[:, -back] = np.where(inside, word, start_id)


def gather_rows(ids, table, rows, threads=1):
    """``rows[r] = table[ids[r]]``.

    ids : int32 (R,), each in [0, V); table : (V, M); rows : (R, M), written.
    Raises IndexError for an id outside [0, V); ``rows`` is then unchanged.
    """
    checks.gather_rows(FLOATS, ids, table, rows)
    np.take(table, ids, axis=0, out=rows)


def gather_contexts(
    tokens, positions, start_id, end_id, embedding, contexts, targets, inputs, threads=1
):
    """Form contexts from the stream and write their concatenated embeddings: one pass.

    As ``form_contexts``, then ``inputs[b] = concat(embedding[contexts[b]])``.
    embedding : (V, M); inputs : (B, N*M), written. Raises IndexError for a position or a token
    outside its range (``inputs`` is then unchanged).
    """
    checks.gather_contexts(FLOATS, tokens, positions, embedding, contexts, targets, inputs)
    batch, context = contexts.shape
    form_contexts(tokens, positions, start_id, end_id, contexts, targets)
    contract.ids("contexts", contexts, len(embedding), (batch, context))
    contract.ids("targets", targets, len(embedding), (batch,))
    rows = inputs.reshape(batch * context, embedding.shape[1])
    gather_rows(contexts.reshape(-1), embedding, rows)


def scatter_update(ids, grads, rule, hyper, table, slots, threads=1):
    """One optimiser step on the rows of ``table`` named by ``ids``; no other row is touched.

    A row named several times receives the sum of its gradients and one step (Bengio et al. 2003,
    section 2: words outside the window need no visit). State of untouched rows stays as it is.

    ids : int32 (R,), each in [0, V); grads : (R, M); table : (V, M), updated;
    slots : (S, V, M), updated. Raises IndexError for a bad id; nothing has then changed.
    """
    checks.scatter_update(FLOATS, ids, grads, rule, hyper, table, slots)
    rows, which = np.unique(ids, return_inverse=True)
    summed = np.zeros((len(rows), table.shape[1]), dtype=table.dtype)
    with SILENT():
        np.add.at(summed, which, grads)
    some = table[rows]
    some_slots = slots[:, rows]
    apply_rule(rule, hyper, summed, some, some_slots)
    table[rows] = some
    slots[:, rows] = some_slots


def dense_update(grad, rule, hyper, parameter, slots, threads=1):
    """One optimiser step on a whole parameter.

    grad : any shape; parameter : the same shape, updated; slots : (S, *shape), updated.
    """
    checks.dense_update(FLOATS, grad, rule, hyper, parameter, slots)
    apply_rule(rule, hyper, grad, parameter, slots)
