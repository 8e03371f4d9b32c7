"""The specification: every kernel of fastnplm in plain NumPy.

``native`` (compiled from csrc/) and ``jitted`` (Numba) have the same functions with the same
arguments and must give the same results up to rounding; tests/ compares their signatures and
their answers. Inputs come first, arrays that are written come last. Floating arrays are float32;
this module alone also takes float64 throughout (all floating arrays of a call alike).

Sizes: B examples, N context words, M embedding width, H width of the layer below the output,
V vocabulary, K noise words an example, S state slots of the optimiser's rule (contract.SLOTS).

An optimiser's rule is a name and six numbers, ``hyper`` = (learning_rate, decay, epsilon, beta1,
beta2, correction), float64. With g the summed gradient of an element, w the element:

    every rule   w *= 1 - decay                       (biases are never decayed)
    sgd          w -= learning_rate * g
    momentum     v = beta1 * v + g;  w -= learning_rate * v
    adagrad      v += g * g;         w -= learning_rate * g / (sqrt(v) + epsilon)
    rmsprop      v = beta2 * v + (1 - beta2) * g * g;  w -= learning_rate * g / (sqrt(v) + epsilon)
    adam         m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
                 w -= learning_rate * m / (sqrt(v) * correction + epsilon)

(for adam the caller folds 1 / (1 - beta1^t) into learning_rate and passes
correction = 1 / sqrt(1 - beta2^t)). ``slots`` holds v, or m and v, as its leading axis.
``scratch`` is a uint8 workspace owned by the caller, of at least the bytes that the kernel's
``*_scratch`` function names; its contents mean nothing between calls. ``threads`` never changes
a bit of the result.
"""

import functools

import numpy as np

from . import checks, contract

NAME = "reference"
TILE = 4096  # rows of the output weight handled at a time: bounds memory to B * TILE scores

_FLOATS = (np.float32, np.float64)
# What is not finite comes out as it is, and whoever reads the loss or the parameters reports it;
# NumPy's warning would stop some callers half-way through a step.
_SILENT = functools.partial(np.errstate, all="ignore")


def describe():
    """What these kernels run on, for ``fastnplm info``: a dict of strings."""
    return {"kernels": NAME, "instruction_set": "NumPy's own", "threading": "NumPy's BLAS"}


# --- contexts and embedding ---------------------------------------------------------------------


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
    checks.gather_rows(_FLOATS, ids, table, rows)
    np.take(table, ids, axis=0, out=rows)


def gather_contexts(
    tokens, positions, start_id, end_id, embedding, contexts, targets, inputs, threads=1
):
    """Form contexts from the stream and write their concatenated embeddings: one pass.

    As ``form_contexts``, then ``inputs[b] = concat(embedding[contexts[b]])``.
    embedding : (V, M); inputs : (B, N*M), written. Raises IndexError for a position or a token
    outside its range (``inputs`` is then unchanged).
    """
    checks.gather_contexts(_FLOATS, tokens, positions, embedding, contexts, targets, inputs)
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
    checks.scatter_update(_FLOATS, ids, grads, rule, hyper, table, slots)
    rows, which = np.unique(ids, return_inverse=True)
    summed = np.zeros((len(rows), table.shape[1]), dtype=table.dtype)
    with _SILENT():
        np.add.at(summed, which, grads)
    some = table[rows]
    some_slots = slots[:, rows]
    _apply(rule, hyper, summed, some, some_slots)
    table[rows] = some
    slots[:, rows] = some_slots


def dense_update(grad, rule, hyper, parameter, slots, threads=1):
    """One optimiser step on a whole parameter.

    grad : any shape; parameter : the same shape, updated; slots : (S, *shape), updated.
    """
    checks.dense_update(_FLOATS, grad, rule, hyper, parameter, slots)
    _apply(rule, hyper, grad, parameter, slots)


# --- the hidden layer ---------------------------------------------------------------------------


def bias_tanh(bias, hidden, threads=1):
    """``hidden = tanh(hidden + bias)`` in place. bias : (H,); hidden : (B, H), changed."""
    checks.bias_tanh(_FLOATS, bias, hidden)
    with _SILENT():
        hidden += bias
        np.tanh(hidden, out=hidden)


def tanh_backward(hidden, grad_bias, grad_hidden, threads=1):
    """Turn the gradient of tanh's result into that of its argument: ``grad *= 1 - hidden**2``.

    hidden : (B, H), what ``bias_tanh`` gave; grad_bias : (H,), written: the sum over examples;
    grad_hidden : (B, H), changed.
    """
    checks.tanh_backward(_FLOATS, hidden, grad_bias, grad_hidden)
    with _SILENT():
        grad_hidden *= 1 - hidden * hidden
        grad_hidden.sum(axis=0, out=grad_bias)


def dropout(mask, scale, values, threads=1):
    """``values *= mask * scale`` in place. mask : uint8, 0 or 1, the shape of ``values``.

    With scale = 1 / (share kept) the expectation is unchanged ("inverted" dropout, Srivastava et
    al. 2014). A dropped element becomes 0 whatever it was.
    """
    checks.dropout(_FLOATS, mask, values)
    with _SILENT():
        values *= values.dtype.type(scale)
    values[mask == 0] = 0


def layer_forward(inputs, weight, bias, hidden, linear=False, threads=1):
    """``hidden = tanh(inputs @ weight.T + bias)``, without tanh if ``linear``.

    inputs : (B, D); weight : (H, D); bias : (H,); hidden : (B, H), written.
    """
    checks.layer_forward(_FLOATS, inputs, weight, bias, hidden)
    with _SILENT():
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
        _FLOATS, inputs, hidden, weight, grad_hidden, grad_weight, grad_bias, grad_inputs
    )
    if linear:
        with _SILENT():
            grad_hidden.sum(axis=0, out=grad_bias)
    else:
        tanh_backward(hidden, grad_bias, grad_hidden)
    with _SILENT():
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
    checks.words_forward(_FLOATS, contexts, embedding, weight, bias, scratch, hidden, precision, 0)
    rounded = _rounding(precision)
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
        _FLOATS,
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
    rounded = _rounding(precision)
    batch, context = contexts.shape
    dim = embedding.shape[1]
    inputs = np.empty((batch, context * dim), dtype=embedding.dtype)
    flat = contexts.reshape(-1)
    gather_rows(flat, embedding, inputs.reshape(batch * context, dim))
    grad_inputs = np.empty_like(inputs)
    tanh_backward(hidden, grad_bias, grad_hidden)
    grad = rounded(grad_hidden)
    with _SILENT():
        np.matmul(grad.T, rounded(inputs), out=grad_weight)
        np.matmul(grad, rounded(weight), out=grad_inputs)
    scatter_update(flat, grad_inputs.reshape(len(flat), dim), rule, hyper, embedding, slots)


# --- the output layer: exact softmax ------------------------------------------------------------


def softmax_cross_entropy(targets, weights, bias, losses, logits, threads=1):
    """Add the bias, take the loss, overwrite the scores by their gradient: the readable kernel.

    loss_b = log sum_j exp(score_bj) - score_b,target, in nats, and
    gradient_bj = weights_b * (softmax(score_b)_j - [j = target_b]) (Bengio et al. 2003, section 3).
    An example of weight 0 is ignored: loss 0, gradient exactly 0.

    targets : int32 (B,), each in [0, V); weights : (B,), usually 1/B; bias : (V,);
    losses : float64 (B,), written (not multiplied by the weights);
    logits : (B, V), the products without bias, changed into the gradient.
    Raises IndexError for a bad target; nothing has then changed.
    """
    checks.softmax_cross_entropy(_FLOATS, targets, weights, bias, losses, logits)
    rows = np.arange(len(logits))
    with _SILENT():
        logits += bias
        highest = logits.max(axis=1, initial=-np.inf)
        target_score = logits[rows, targets] - highest
        logits -= highest[:, None]
        np.exp(logits, out=logits)
        total = logits.sum(axis=1)
        losses[:] = np.log(total, dtype=np.float64) - target_score
        logits /= total[:, None]
        logits[rows, targets] -= 1
        logits *= weights[:, None]
    ignored = weights == 0
    losses[ignored] = 0
    logits[ignored] = 0


def softmax_step_scratch(batch, hidden, vocabulary, precision="float32", keep=True, threads=1):
    """Bytes of scratch for ``softmax_step``: the form that keeps the scores, or the smallest."""
    return 0


def softmax_step(
    hidden,
    targets,
    weights,
    rule,
    hyper,
    precision,
    scratch,
    losses,
    grad_hidden,
    output_weight,
    output_bias,
    weight_slots,
    bias_slots,
    threads=1,
):
    """One step of the output layer: loss, gradient of ``hidden``, and the updated weights.

    The same as: scores = hidden @ output_weight.T; ``softmax_cross_entropy``; grad_hidden =
    gradient @ output_weight (the old one); then the rule on gradient.T @ hidden and on the
    gradient's column sums. Never more than a tile of the scores (here), or at most ``scratch``
    (compiled): with scratch for keep=True the scores are kept, else they are computed twice.
    When every weight is 0 there is nothing to learn from, and no parameter or state changes.

    hidden : (B, H); targets : int32 (B,); weights : (B,); precision : "float32" or "bf16"
    (products of operands rounded to bfloat16, sums and master weights float32);
    losses : float64 (B,), written; grad_hidden : (B, H), written; output_weight : (V, H),
    output_bias : (V,), weight_slots : (S, V, H), bias_slots : (S, V), updated.
    Raises IndexError for a bad target; nothing has then changed.
    """
    checks.softmax_step(
        _FLOATS,
        hidden,
        targets,
        weights,
        rule,
        hyper,
        precision,
        scratch,
        losses,
        grad_hidden,
        output_weight,
        output_bias,
        weight_slots,
        bias_slots,
        0,
    )
    vocabulary, dtype = len(output_weight), output_weight.dtype
    rounded = _rounding(precision)
    hidden = rounded(hidden)
    log_normalizer, target_score = _log_normalizer(
        hidden, targets, rounded, output_weight, output_bias
    )
    ignored = weights == 0
    losses[:] = np.where(ignored, 0, log_normalizer - target_score)
    grad_hidden[:] = 0
    if ignored.all():
        return
    bias_hyper = hyper.copy()
    bias_hyper[contract.HYPER.index("decay")] = 0
    with _SILENT():
        for low in range(0, vocabulary, TILE):
            tile = slice(low, min(low + TILE, vocabulary))
            old = rounded(output_weight[tile])
            grad = np.exp(hidden @ old.T + output_bias[tile] - log_normalizer[:, None])
            grad = grad.astype(dtype, copy=False)
            mine = np.flatnonzero((targets >= tile.start) & (targets < tile.stop))
            grad[mine, targets[mine] - low] -= 1
            grad *= weights[:, None]
            grad[ignored] = 0
            grad_hidden += rounded(grad) @ old
            _apply(
                rule,
                hyper,
                rounded(grad).T @ hidden,
                output_weight[tile],
                weight_slots[:, tile],
            )
            _apply(rule, bias_hyper, grad.sum(axis=0), output_bias[tile], bias_slots[:, tile])


def softmax_forward(
    hidden, targets, output_weight, output_bias, log_normalizer, target_score, threads=1
):
    """log sum_j exp(score_bj) and score_b,target, keeping only a tile of the scores.

    The result of an example does not depend on the others of its batch.
    hidden : (B, H); targets : int32 (B,); output_weight : (V, H); output_bias : (V,);
    log_normalizer, target_score : float64 (B,), written.
    """
    checks.softmax_forward(
        _FLOATS, hidden, targets, output_weight, output_bias, log_normalizer, target_score
    )
    log_normalizer[:], target_score[:] = _log_normalizer(
        hidden, targets, _same, output_weight, output_bias
    )


def softmax_top_k(hidden, output_weight, output_bias, ids, scores, threads=1):
    """The k best scores of each example, by falling score, ties by the smaller id.

    hidden : (B, H); output_weight : (V, H); output_bias : (V,); ids : int32 (B, k) and
    scores : (B, k), written; 1 <= k <= V. A NaN score counts as the lowest.
    """
    checks.softmax_top_k(_FLOATS, hidden, output_weight, output_bias, ids, scores)
    for row in range(len(hidden)):
        all_scores = output_weight @ hidden[row] + output_bias
        order = np.argsort(-np.where(np.isnan(all_scores), -np.inf, all_scores), kind="stable")
        ids[row] = order[: ids.shape[1]]
        scores[row] = all_scores[ids[row]]


# --- the output layer: sampled losses -----------------------------------------------------------


def draw_noise(bits, threshold, alias, noise, threads=1):
    """Draw a word for each 64 random bits from an alias table (Walker 1977): all kernels alike.

    With t = the upper 96 bits of bits * V (so t / 2^32 is uniform on [0, V)): column i = t >> 32,
    and the word is i if the low half of t is under threshold[i], else alias[i].

    bits : uint64 (R,); threshold : uint32 (V,); alias : int32 (V,), each in [0, V);
    noise : int32 (R,), written.
    """
    checks.draw_noise(bits, threshold, alias, noise)
    half = np.uint64(32)
    low_mask = np.uint64(0xFFFFFFFF)
    count = np.uint64(len(threshold))
    point = (bits >> half) * count + (((bits & low_mask) * count) >> half)
    column = (point >> half).astype(np.int64)
    noise[:] = np.where((point & low_mask) < threshold[column], column, alias[column])


def negative_step_scratch(batch, block, negatives, hidden, threads=1):
    """Bytes of scratch that ``negative_step`` needs."""
    return 0


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
    """One step of a sampled output layer (negative sampling or NCE); only touched rows change.

    Example b is told apart from the noise words k of row b // block of ``noise``. With
    z_j = score_j - offsets[j]: loss_b = -log sigmoid(z_target) - sum_k log sigmoid(-z_k)
    (Mikolov et al. 2013, eq. 4; with offsets = log(K q): Gutmann and Hyvarinen 2010, Mnih and Teh
    2012). All scores are taken before any row changes; the gradients of a row named several times
    are summed, then the row takes one step. A noise word equal to the target is kept, unless
    ``skip_target``.

    hidden : (B, H); targets : int32 (B,); weights : (B,), 0 ignores an example;
    noise : int32 (ceil(B / block), K), K may be 0; block : int >= 1; skip_target : bool;
    offsets : (V,), or (0,) for none; losses : float64 (B,), written; grad_hidden : (B, H),
    written; output_weight : (V, H), output_bias : (V,), weight_slots : (S, V, H),
    bias_slots : (S, V), updated. Raises IndexError for a bad id; nothing has then changed.
    """
    checks.negative_step(
        _FLOATS,
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
        0,
    )
    batch, dtype = len(hidden), output_weight.dtype
    words = np.concatenate([targets[:, None], noise[np.arange(batch) // block]], axis=1)
    label = np.zeros(words.shape, dtype=dtype)
    label[:, 0] = 1
    counted = np.ones(words.shape, dtype=bool)
    if skip_target:
        counted[:, 1:] = words[:, 1:] != targets[:, None]
    counted &= (weights != 0)[:, None]
    with _SILENT():
        scores = np.einsum("bh,bkh->bk", hidden, output_weight[words]) + output_bias[words]
        if len(offsets):
            scores -= offsets[words]
        signed = np.where(label == 1, -scores, scores).astype(np.float64)
        losses[:] = np.where(counted, np.logaddexp(0, signed), 0).sum(axis=1)
        grad = np.where(counted, (_sigmoid(scores) - label) * weights[:, None], 0).astype(dtype)
    grad_hidden[:] = np.einsum("bk,bkh->bh", grad, output_weight[words])
    if counted.any():
        touched = words[counted]
        example = np.nonzero(counted)[0]
        rows = grad[counted][:, None] * hidden[example]
        scatter_update(touched, rows, rule, hyper, output_weight, weight_slots)
        bias_hyper = hyper.copy()
        bias_hyper[contract.HYPER.index("decay")] = 0
        scatter_update(
            touched,
            np.ascontiguousarray(grad[counted][:, None]),
            rule,
            bias_hyper,
            output_bias[:, None],
            bias_slots[:, :, None],
        )


# --- the arithmetic they share ------------------------------------------------------------------


def _apply(rule, hyper, grad, parameter, slots):
    """The optimiser's rule on ``parameter`` and ``slots`` (views, changed in place)."""
    kind = parameter.dtype.type
    learning_rate, decay, epsilon, beta1, beta2, correction = (kind(value) for value in hyper)
    rest1, rest2 = kind(1 - hyper[3]), kind(1 - hyper[4])  # rounded after the difference
    with _SILENT():
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


def _log_normalizer(hidden, targets, rounded, output_weight, output_bias):
    """log sum exp of the scores and the targets' scores, float64, tile by tile (online)."""
    batch = len(hidden)
    highest = np.full(batch, -np.inf)
    total = np.zeros(batch)
    target_score = np.zeros(batch)
    with _SILENT():
        for low in range(0, len(output_weight), TILE):
            tile = slice(low, low + TILE)
            scores = hidden @ rounded(output_weight[tile]).T + output_bias[tile]
            mine = np.flatnonzero((targets >= low) & (targets < low + TILE))
            target_score[mine] = scores[mine, targets[mine] - low]
            new_highest = np.maximum(highest, scores.max(axis=1))
            # while every score so far is minus infinity, there is nothing to shift by
            shift = np.where(np.isneginf(new_highest), 0, new_highest)
            total = total * np.exp(highest - shift)
            total += np.exp(scores - shift[:, None]).sum(axis=1, dtype=np.float64)
            highest = new_highest
        return highest + np.log(total), target_score


def _round_bf16(values):
    """float32 values rounded to bfloat16 (nearest, ties to even), as float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    carry = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    kept = (bits + carry) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), values, kept.view(np.float32))


def _rounding(precision):
    """What happens to the operands of a product."""
    return _round_bf16 if precision == "bf16" else _same


def _same(values):
    return values


def _sigmoid(values):
    """1 / (1 + exp(-values)) without overflow on either side."""
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1 / (1 + small), small / (1 + small))
