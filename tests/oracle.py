"""The first judge: every kernel as plain float64 loops, written from the papers' equations.

It imports nothing of fastnplm and uses NumPy only to hold arrays. A function has the name of its
kernel and takes the kernel's inputs (no scratch, no threads); it returns a dict from the name of
each array the kernel writes to ``(values, terms)``.

``terms`` is what a tolerance is made of: the sum of the absolute values of the terms that a value
is the sum of, carried through what follows to first order. A kernel that takes every step in
arithmetic of relative error u errs by a small multiple of u * terms, however much cancels. Rules:

    sum of a * b            terms of b times |a|, summed
    f(x)                    |f(x)| + |f'(x)| * terms of x

Integers, and values that are only copied, have terms None: they must come out exactly.
"""

import math

import numpy as np

SLOTS = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adam": 2}


# --- contexts and embedding ---------------------------------------------------------------------


def form_contexts(tokens, positions, start_id, end_id, context):
    """Target tokens[p]; context: the words before it in its sentence, start_id before those."""
    stream = tokens.tolist()
    contexts = []
    for position in positions.tolist():
        words = []
        where = position - 1
        while len(words) < context and where >= 0 and stream[where] != end_id:
            words.insert(0, stream[where])
            where -= 1
        contexts.append([start_id] * (context - len(words)) + words)
    return {
        "contexts": (np.array(contexts, dtype=np.int64).reshape(-1, context), None),
        "targets": (np.array([stream[p] for p in positions.tolist()], dtype=np.int64), None),
    }


def gather_rows(ids, table):
    """rows[r] = table[ids[r]]."""
    rows = [table[i].tolist() for i in ids.tolist()]
    return {"rows": (_array(rows, (len(ids), table.shape[1])), None)}


def gather_contexts(tokens, positions, start_id, end_id, embedding, context):
    """x = concat(C(w_1), ..., C(w_N)) for the context of each position."""
    made = form_contexts(tokens, positions, start_id, end_id, context)
    made["inputs"] = (_concat(made["contexts"][0], embedding), None)
    return made


def scatter_update(ids, grads, rule, hyper, table, slots):
    """One step on each named row, with the sum of the gradients that name it."""
    return _scatter(ids.tolist(), _exact(grads), rule, hyper, table, slots)


def dense_update(grad, rule, hyper, parameter, slots):
    """One step on every element."""
    row = _exact(grad.reshape(1, -1))
    state = slots.reshape(len(slots), 1, parameter.size)
    out = _scatter([0], row, rule, hyper, parameter.reshape(1, -1), state)
    return {
        "parameter": tuple(a.reshape(parameter.shape) for a in out["table"]),
        "slots": tuple(a.reshape(slots.shape) for a in out["slots"]),
    }


def _scatter(ids, grads, rule, hyper, table, slots, name="table", slots_name="slots"):
    sums = {}
    for word, values, terms in zip(ids, *grads, strict=True):
        if word in sums:
            sums[word] = (_add(sums[word][0], values), _add(sums[word][1], terms))
        else:
            sums[word] = (values, terms)
    new, new_terms = table.astype(np.float64), np.zeros(table.shape)
    state, state_terms = slots.astype(np.float64), np.zeros(slots.shape)
    hyper = [float(value) for value in hyper]
    for word, (grad, grad_terms) in sums.items():
        old_state = state[:, word].T.tolist()
        steps = [
            one_step(rule, hyper, *element)
            for element in zip(new[word].tolist(), grad, grad_terms, old_state, strict=True)
        ]
        new[word] = [step[0] for step in steps]
        new_terms[word] = [step[1] for step in steps]
        for slot in range(len(slots)):
            state[slot, word] = [step[2][slot] for step in steps]
            state_terms[slot, word] = [step[3][slot] for step in steps]
    return {name: (new, new_terms), slots_name: (state, state_terms)}


def one_step(rule, hyper, w, g, g_terms, state):
    """One optimiser step on one element: (w, its terms, state, its terms).

    sgd; momentum (Polyak 1964); Adagrad (Duchi et al. 2011); RMSProp (Tieleman and Hinton 2012);
    Adam (Kingma and Ba 2015, bias correction in learning_rate and correction); decoupled decay
    (Loshchilov and Hutter 2019), already multiplied by the learning rate.
    """
    learning_rate, decay, epsilon, beta1, beta2, correction = hyper
    w *= 1 - decay
    terms = abs(w)
    if rule == "sgd":
        return w - learning_rate * g, terms + learning_rate * g_terms, [], []
    if rule == "momentum":
        v = beta1 * state[0] + g
        v_terms = abs(beta1 * state[0]) + g_terms
        return w - learning_rate * v, terms + learning_rate * v_terms, [v], [v_terms]
    square_terms = g * g + 2 * abs(g) * g_terms
    if rule == "adagrad":
        v, v_terms = state[0] + g * g, state[0] + square_terms
        m, m_terms, correction = g, g_terms, 1.0
        new, new_terms = [v], [v_terms]
    elif rule == "rmsprop":
        v = beta2 * state[0] + (1 - beta2) * g * g
        v_terms = beta2 * state[0] + (1 - beta2) * square_terms
        m, m_terms, correction = g, g_terms, 1.0
        new, new_terms = [v], [v_terms]
    else:
        assert rule == "adam"
        m = beta1 * state[0] + (1 - beta1) * g
        m_terms = abs(beta1 * state[0]) + (1 - beta1) * g_terms
        v = beta2 * state[1] + (1 - beta2) * g * g
        v_terms = beta2 * state[1] + (1 - beta2) * square_terms
        new, new_terms = [m, v], [m_terms, v_terms]
    root = math.sqrt(v) if v >= 0 else math.nan
    below = root * correction + epsilon
    below_terms = below + (correction * v_terms / (2 * root) if root else 0.0)
    step = learning_rate * m / below
    step_terms = learning_rate * (m_terms / below + abs(m) * below_terms / (below * below))
    return w - step, terms + step_terms, new, new_terms


# --- the hidden layer ---------------------------------------------------------------------------


def bias_tanh(bias, hidden):
    """hidden = tanh(hidden + bias)."""
    scores, terms = _plus(hidden.tolist(), bias.tolist())
    return {"hidden": _tanh(scores, terms, hidden.shape)}


def tanh_backward(hidden, grad_hidden):
    """d tanh(a) / d a = 1 - tanh(a)^2; the bias's gradient is the sum over examples."""
    values, terms = _exact(grad_hidden)
    # 1 - h^2 is a difference of numbers up to 1: its terms are 1 + h^2
    new = [
        [g * (1 - h * h) for g, h in zip(*rows, strict=True)]
        for rows in zip(values, hidden.tolist(), strict=True)
    ]
    sizes = [
        [t * (1 + h * h) for t, h in zip(*rows, strict=True)]
        for rows in zip(terms, hidden.tolist(), strict=True)
    ]
    width = hidden.shape[1]
    grad_bias, bias_terms = [0.0] * width, [0.0] * width
    for row, row_terms in zip(new, sizes, strict=True):
        grad_bias, bias_terms = _add(grad_bias, row), _add(bias_terms, row_terms)
    return {
        "grad_hidden": (_array(new, hidden.shape), _array(sizes, hidden.shape)),
        "grad_bias": (_array(grad_bias, (width,)), _array(bias_terms, (width,))),
    }


def dropout(mask, scale, values):
    """values * mask * scale."""
    kept = [
        v * scale if m else 0.0
        for m, v in zip(mask.reshape(-1).tolist(), values.reshape(-1).tolist(), strict=True)
    ]
    out = _array(kept, values.shape)
    return {"values": (out, np.abs(out))}


def layer_forward(inputs, weight, bias, linear=False):
    """tanh(d + H x) (Bengio et al. 2003, equation 1); linear: d + H x."""
    scores, terms = _product(inputs.tolist(), weight.tolist(), bias.tolist())
    shape = len(inputs), len(weight)
    if linear:
        return {"hidden": (_array(scores, shape), _array(terms, shape))}
    return {"hidden": _tanh(scores, terms, shape)}


def layer_backward(inputs, hidden, weight, grad_hidden, linear=False):
    """The gradients of layer_forward (Bengio et al. 2003, section 3.2, backward phase)."""
    out = tanh_backward(np.zeros_like(hidden) if linear else hidden, grad_hidden)
    grads = tuple(array.tolist() for array in out["grad_hidden"])
    out["grad_weight"] = _outer_sums(grads, inputs.tolist(), weight.shape)
    out["grad_inputs"] = _mix_rows(grads, weight.tolist(), inputs.shape)
    return out


def words_forward(contexts, embedding, weight, bias):
    """layer_forward of the concatenated embeddings."""
    return layer_forward(_concat(contexts, embedding), weight, bias)


def words_backward(contexts, hidden, weight, rule, hyper, grad_hidden, embedding, slots):
    """layer_backward, then a step on each embedding row with the sum over its occurrences."""
    out = layer_backward(_concat(contexts, embedding), hidden, weight, grad_hidden)
    shape = (contexts.size, embedding.shape[1])
    grads = tuple(array.reshape(shape).tolist() for array in out.pop("grad_inputs"))
    flat = contexts.reshape(-1).tolist()
    out.update(_scatter(flat, grads, rule, hyper, embedding, slots, "embedding"))
    return out


def _concat(contexts, embedding):
    rows = [[v for word in words for v in embedding[word].tolist()] for words in contexts.tolist()]
    return _array(rows, (len(contexts), contexts.shape[1] * embedding.shape[1]))


def _tanh(scores, terms, shape):
    values = [[math.tanh(a) for a in row] for row in scores]
    sizes = [
        [abs(h) + (1 - h * h) * t for h, t in zip(*rows, strict=True)]
        for rows in zip(values, terms, strict=True)
    ]
    return _array(values, shape), _array(sizes, shape)


# --- the output layer: exact softmax ------------------------------------------------------------


def softmax_cross_entropy(targets, weights, bias, logits):
    """Loss -log p(target) and its gradient p - onehot, p = softmax(logits + bias)."""
    scores, terms = _plus(logits.tolist(), bias.tolist())
    losses, grads = _softmax(scores, terms, targets.tolist(), weights.tolist())
    return {"losses": losses, "logits": tuple(_array(g, logits.shape) for g in grads)}


def softmax_step(
    hidden, targets, weights, rule, hyper, output_weight, output_bias, weight_slots, bias_slots
):
    """Scores b + U h, loss, gradient of h, and one step on U and b (the latter not decayed)."""
    old, rows = output_weight.tolist(), hidden.tolist()
    scores, terms = _product(rows, old, output_bias.tolist())
    losses, grads = _softmax(scores, terms, targets.tolist(), weights.tolist())
    out = {"losses": losses, "grad_hidden": _mix_rows(grads, old, hidden.shape)}
    # with every example ignored there is nothing to learn from, and no row takes a step
    words = list(range(len(old))) if weights.any() else []
    weight_grads = tuple(
        a[: len(words)].tolist() for a in _outer_sums(grads, rows, output_weight.shape)
    )
    bias_grads = tuple(
        [[sum(column)] for column in zip(*g, strict=True)][: len(words)] for g in grads
    )
    return out | _output_step(
        words, weight_grads, bias_grads, rule, hyper,
        output_weight, output_bias, weight_slots, bias_slots,
    )  # fmt: skip


def softmax_forward(hidden, targets, output_weight, output_bias):
    """log sum_j exp(score_j), and the target's score."""
    scores, terms = _product(hidden.tolist(), output_weight.tolist(), output_bias.tolist())
    pairs = [_log_sum_exp(*rows) for rows in zip(scores, terms, strict=True)]
    words = targets.tolist()
    return {
        "log_normalizer": (np.array([v for v, _ in pairs]), np.array([t for _, t in pairs])),
        "target_score": (
            np.array([row[t] for row, t in zip(scores, words, strict=True)]),
            np.array([row[t] for row, t in zip(terms, words, strict=True)]),
        ),
    }


def scores_of(hidden, output_weight, output_bias):
    """All scores, and their terms: what softmax_top_k chooses from."""
    scores, terms = _product(hidden.tolist(), output_weight.tolist(), output_bias.tolist())
    shape = (len(hidden), len(output_weight))
    return _array(scores, shape), _array(terms, shape)


def _log_sum_exp(scores, terms):
    highest = max(scores)
    if any(s != s for s in scores) or math.isinf(highest):
        return math.nan, math.nan
    total, spread = 0.0, 0.0
    for s, t in zip(scores, terms, strict=True):
        e = math.exp(s - highest)
        total += e
        spread += e * (t + (highest - s) if e else 0.0)
    value = highest + math.log(total)
    return value, 1 + abs(value) + spread / total


def _softmax(scores, terms, targets, weights):
    losses, loss_terms, grads, grad_terms = [], [], [], []
    for row, row_terms, target, weight in zip(scores, terms, targets, weights, strict=True):
        if weight == 0:
            p, sizes, log_z, z_terms = [0.0] * len(row), [0.0] * len(row), row[target], 0.0
            losses.append(0.0)
            loss_terms.append(0.0)
        else:
            log_z, z_terms = _log_sum_exp(row, row_terms)
            p = [math.exp(s - log_z) for s in row]
            sizes = [q * (1 + t + z_terms) if q else 0.0 for q, t in zip(p, row_terms, strict=True)]
            p[target] -= 1
            sizes[target] += 1
            losses.append(log_z - row[target])
            loss_terms.append(z_terms + row_terms[target])
        grads.append([weight * q for q in p])
        grad_terms.append([abs(weight) * size for size in sizes])
    return (np.array(losses), np.array(loss_terms)), (grads, grad_terms)


# --- the output layer: sampled losses -----------------------------------------------------------


def draw_noise(bits, threshold, alias):
    """Walker's alias method (1977) on the point bits * V / 2^64 of the interval [0, V)."""
    words = []
    for value in bits.tolist():
        column, rest = divmod((value * len(threshold)) >> 32, 1 << 32)
        words.append(column if rest < int(threshold[column]) else int(alias[column]))
    return {"noise": (np.array(words, dtype=np.int64), None)}


def negative_step(
    hidden, targets, weights, noise, block, skip_target, offsets, rule, hyper,
    output_weight, output_bias, weight_slots, bias_slots,
):  # fmt: skip
    """-log s(z_target) - sum_k log s(-z_k), s the logistic function, z = score - offset.

    Mikolov et al. 2013, equation 4; Gutmann and Hyvarinen 2010 with offset = log(K q).
    """
    losses, loss_terms, grad_hidden, hidden_terms = [], [], [], []
    touched, rows, rows_terms, biases, biases_terms = [], [], [], [], []
    width = hidden.shape[1]
    for b, h in enumerate(hidden.tolist()):
        loss, size, down, down_terms = 0.0, 0.0, [0.0] * width, [0.0] * width
        target, weight = int(targets[b]), float(weights[b])
        words = [(target, 1.0)]
        for word in noise[b // block].tolist():
            if not (skip_target and word == target):
                words.append((word, 0.0))
        for word, label in words if weight != 0 else []:
            unit = output_weight[word].tolist()
            products = [x * y for x, y in zip(h, unit, strict=True)]
            bias = float(output_bias[word])
            offset = float(offsets[word]) if len(offsets) else 0.0
            z = sum(products) + bias - offset
            terms = sum(map(abs, products)) + abs(bias) + abs(offset)
            sign, s = (-z if label else z), _logistic(z)
            loss += _softplus(sign)
            size += _softplus(sign) + _logistic(sign) * terms
            c = weight * (s - label)
            c_terms = abs(weight) * (s + label + s * _logistic(-z) * terms)
            down = _add(down, [c * v for v in unit])
            down_terms = _add(down_terms, [c_terms * abs(v) for v in unit])
            touched.append(word)
            rows.append([c * v for v in h])
            rows_terms.append([c_terms * abs(v) for v in h])
            biases.append([c])
            biases_terms.append([c_terms])
        losses.append(loss)
        loss_terms.append(size)
        grad_hidden.append(down)
        hidden_terms.append(down_terms)
    out = {
        "losses": (np.array(losses), np.array(loss_terms)),
        "grad_hidden": (_array(grad_hidden, hidden.shape), _array(hidden_terms, hidden.shape)),
    }
    return out | _output_step(
        touched, (rows, rows_terms), (biases, biases_terms), rule, hyper,
        output_weight, output_bias, weight_slots, bias_slots,
    )  # fmt: skip


def _output_step(
    words, weight_grads, bias_grads, rule, hyper,
    output_weight, output_bias, weight_slots, bias_slots,
):  # fmt: skip
    out = _scatter(
        words, weight_grads, rule, hyper, output_weight, weight_slots,
        "output_weight", "weight_slots",
    )  # fmt: skip
    undecayed = [0.0 if i == 1 else value for i, value in enumerate(hyper)]
    bias = _scatter(
        words, bias_grads, rule, undecayed, output_bias[:, None], bias_slots[:, :, None]
    )
    out["output_bias"] = tuple(array[:, 0] for array in bias["table"])
    out["bias_slots"] = tuple(array[:, :, 0] for array in bias["slots"])
    return out


def _logistic(z):
    if z >= 0:
        return 1 / (1 + math.exp(-z))
    return math.exp(z) / (1 + math.exp(z)) if z == z else math.nan


def _softplus(z):
    """log(1 + e^z)."""
    return max(z, 0.0) + math.log1p(math.exp(-abs(z))) if z == z else math.nan


# --- sums of products ---------------------------------------------------------------------------


def _exact(array):
    """A value that is given has itself as its only term."""
    return array.tolist(), np.abs(array).tolist()


def _array(rows, shape):
    return np.array(rows, dtype=np.float64).reshape(shape)


def _add(left, right):
    return [x + y for x, y in zip(left, right, strict=True)]


def _plus(rows, bias):
    """rows + bias, and its terms."""
    sizes = [abs(b) for b in bias]
    return (
        [_add(row, bias) for row in rows],
        [_add([abs(x) for x in row], sizes) for row in rows],
    )


def _product(rows, weight, bias):
    """scores[r][j] = bias[j] + sum_i rows[r][i] * weight[j][i], and their terms."""
    scores, terms = [], []
    for row in rows:
        score_row, terms_row = [], []
        for unit, b in zip(weight, bias, strict=True):
            products = [x * y for x, y in zip(row, unit, strict=True)]
            score_row.append(b + sum(products))
            terms_row.append(abs(b) + sum(map(abs, products)))
        scores.append(score_row)
        terms.append(terms_row)
    return scores, terms


def _outer_sums(grads, rows, shape):
    """grad[j][i] = sum_r grads[r][j] * rows[r][i], and its terms."""
    columns = [list(c) for c in zip(*rows, strict=True)] or [[] for _ in range(shape[1])]
    sizes = [[abs(x) for x in column] for column in columns]
    out = []
    for values, by in ((grads[0], columns), (grads[1], sizes)):
        mine = [list(c) for c in zip(*values, strict=True)] or [[] for _ in range(shape[0])]
        out.append(_array([[_dot(g, column) for column in by] for g in mine], shape))
    return tuple(out)


def _mix_rows(grads, weight, shape):
    """down[r][i] = sum_j grads[r][j] * weight[j][i], and its terms."""
    columns = [list(c) for c in zip(*weight, strict=True)]
    sizes = [[abs(x) for x in column] for column in columns]
    out = []
    for values, by in ((grads[0], columns), (grads[1], sizes)):
        out.append(_array([[_dot(g, column) for column in by] for g in values], shape))
    return tuple(out)


def _dot(left, right):
    return sum([x * y for x, y in zip(left, right, strict=True)])
