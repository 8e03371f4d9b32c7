"""The loops of the Numba kernels: compiled at their first call, kept on disk where that is allowed.

Arrays come checked and C-contiguous. A loop runs down the examples in its innermost dimension, or
along a row, so that LLVM makes vectors of it; a sum over a row may be taken in another order
(``reassociated``), always the same one. Products of matrices are not here: they go to BLAS.
"""

import math

import numba
import numpy as np

ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
SGD, MOMENTUM, ADAGRAD, RMSPROP, ADAM = range(5)
DIGIT = 11  # bits of an id that one pass of the sort looks at

# exp and tanh after Moshier's Cephes library (expf, tanhf): e^x = 2^n * e^r, n = round(x / log 2),
# |r| <= log(2)/2; relative error of exp32 at most 1e-7, of tanh32 2e-7
_HIGHEST, _LOWEST = np.float32(88.3), np.float32(-87.3)
_PER_LOG2, _LOG2_HIGH, _LOG2_LOW = (
    np.float32(v) for v in (1.44269504088896341, 0.693359375, -2.12194440e-4)
)
_E0, _E1, _E2, _E3, _E4, _E5 = (
    np.float32(v)
    for v in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)
_T0, _T1, _T2, _T3, _T4 = (
    np.float32(v)
    for v in (
        -5.70498872745e-3,
        2.06390887954e-2,
        -5.37397155531e-2,
        1.33314422036e-1,
        -3.33332819422e-1,
    )
)
_ROUND = np.float32(3 * 2**22)  # adding and subtracting it rounds to a whole number
_NARROW = np.float32(0.625)  # where tanh's own polynomial ends
_BIAS, _MANTISSA = np.int32(127), np.int32(23)


def compiled(reassociated=False):
    """Numba's compiler as we use it; without a place for its cache it compiles in each process."""
    flags = {"contract", "reassoc"} if reassociated else {"contract"}

    def decorate(function):
        options = {"nogil": True, "error_model": "numpy", "fastmath": flags}
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # "no locator available": every folder is read-only
            return numba.njit(**options)(function)

    return decorate


@compiled()
def exp32(x):
    """e^x; 0 below the normal numbers, NaN for NaN."""
    y = _HIGHEST if x > _HIGHEST else x
    y = _LOWEST if y < _LOWEST else y
    n = (y * _PER_LOG2 + _ROUND) - _ROUND
    r = (y - n * _LOG2_HIGH) - n * _LOG2_LOW
    p = ((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + _E5
    p = p * r * r + r + ONE
    power = np.int32((np.int32(n) + _BIAS) << _MANTISSA).view(np.float32)
    return ZERO if x < _LOWEST else p * power


@compiled()
def tanh32(x):
    """tanh x."""
    square = x * x
    p = (((_T0 * square + _T1) * square + _T2) * square + _T3) * square + _T4
    near = x + x * square * p
    far = ONE - TWO / (exp32(TWO * abs(x)) + ONE)
    return (far if x > ZERO else -far) if abs(x) > _NARROW else near


# --- ids and rows -------------------------------------------------------------------------------


@compiled()
def form_contexts(tokens, positions, start_id, end_id, contexts, targets):
    for b in range(len(positions)):
        position = positions[b]
        targets[b] = tokens[position]
        inside = True
        for back in range(1, contexts.shape[1] + 1):
            where = position - back
            inside = inside and where >= 0 and tokens[where] != end_id
            contexts[b, contexts.shape[1] - back] = tokens[where] if inside else start_id


@compiled()
def gather_rows(ids, table, rows):
    for r in range(len(ids)):
        word = ids[r]
        for i in range(table.shape[1]):
            rows[r, i] = table[word, i]


@compiled()
def order_of(ids):
    """The stable order that sorts non-negative ids: by digits, the lowest first."""
    count = len(ids)
    order, moved = np.arange(count), np.empty(count, np.int64)
    highest = ids.max() if count else 0
    starts = np.empty((1 << DIGIT) + 1, np.int64)
    shift = 0
    while highest >> shift:
        starts[:] = 0
        for r in range(count):
            starts[((ids[r] >> shift) & ((1 << DIGIT) - 1)) + 1] += 1
        for digit in range(1 << DIGIT):
            starts[digit + 1] += starts[digit]
        for r in range(count):
            digit = (ids[order[r]] >> shift) & ((1 << DIGIT) - 1)
            moved[starts[digit]] = order[r]
            starts[digit] += 1
        order, moved = moved, order
        shift += DIGIT
    return order


@compiled()
def take_step(rule, numbers, grad, w, first, second):
    """The optimiser's rule on a run of elements; ``numbers`` are ``jitted._numbers``'."""
    rate, keep, epsilon, beta1, beta2, correction, rest1, rest2 = numbers
    if rule == SGD:
        for i in range(len(w)):
            w[i] = w[i] * keep - rate * grad[i]
    elif rule == MOMENTUM:
        for i in range(len(w)):
            v = first[i] * beta1 + grad[i]
            first[i] = v
            w[i] = w[i] * keep - rate * v
    elif rule == ADAGRAD:
        for i in range(len(w)):
            v = first[i] + grad[i] * grad[i]
            first[i] = v
            w[i] = w[i] * keep - rate * grad[i] / (np.sqrt(v) + epsilon)
    elif rule == RMSPROP:
        for i in range(len(w)):
            v = first[i] * beta2 + rest2 * grad[i] * grad[i]
            first[i] = v
            w[i] = w[i] * keep - rate * grad[i] / (np.sqrt(v) + epsilon)
    else:
        for i in range(len(w)):
            m = first[i] * beta1 + rest1 * grad[i]
            v = second[i] * beta2 + rest2 * grad[i] * grad[i]
            first[i], second[i] = m, v
            w[i] = w[i] * keep - rate * m / (np.sqrt(v) * correction + epsilon)


@compiled()
def scatter_update(ids, grads, rule, numbers, table, first, second):
    order = order_of(ids)
    total = np.empty(table.shape[1], np.float32)
    begin = 0
    while begin < len(order):
        word = ids[order[begin]]
        total[:] = ZERO
        end = begin
        while end < len(order) and ids[order[end]] == word:
            row = order[end]
            for i in range(len(total)):
                total[i] += grads[row, i]
            end += 1
        take_step(rule, numbers, total, table[word], first[word], second[word])
        begin = end


# --- the hidden layer ---------------------------------------------------------------------------


@compiled()
def bias_tanh(bias, hidden):
    for b in range(hidden.shape[0]):
        for i in range(hidden.shape[1]):
            hidden[b, i] = tanh32(hidden[b, i] + bias[i])


@compiled()
def tanh_backward(hidden, grad_bias, grad_hidden):
    grad_bias[:] = ZERO
    for b in range(hidden.shape[0]):
        for i in range(hidden.shape[1]):
            grad = grad_hidden[b, i] * (ONE - hidden[b, i] * hidden[b, i])
            grad_hidden[b, i] = grad
            grad_bias[i] += grad


@compiled()
def dropout(mask, scale, values):
    for i in range(len(values)):
        values[i] = values[i] * scale if mask[i] else ZERO


# --- softmax ------------------------------------------------------------------------------------


@compiled()
def round_bf16(values, out):
    """To bfloat16, nearest, ties to even; NaN stays."""
    bits, near = values.view(np.uint32), out.view(np.uint32)
    for i in range(len(values)):
        carried = bits[i] + np.uint32(0x7FFF) + ((bits[i] >> np.uint32(16)) & np.uint32(1))
        rounded = np.uint32(carried & np.uint32(0xFFFF0000))
        near[i] = rounded if values[i] == values[i] else bits[i]


@compiled()
def exp_tile(scores, bias, targets, low, tile_highest, highest, total, target_score):
    """Turn a tile of scores (words, examples) into exp(score + bias - the tile's highest).

    The running maximum, sum and target score of each example take the tile in. Where every word
    of the tile is impossible (its highest is minus infinity) there is nothing to shift by.
    """
    words, batch = scores.shape
    for b in range(batch):
        tile_highest[b] = -np.inf
        if low <= targets[b] < low + words:
            target_score[b] = scores[targets[b] - low, b] + bias[targets[b] - low]
    for j in range(words):
        for b in range(batch):
            s = scores[j, b] + bias[j]
            tile_highest[b] = s if s > tile_highest[b] else tile_highest[b]
    part, shift = np.zeros(batch, np.float32), np.empty(batch, np.float32)
    tile_total = np.zeros(batch, np.float64)
    for b in range(batch):
        shift[b] = tile_highest[b] if tile_highest[b] > -np.inf else ZERO
    for j in range(words):
        for b in range(batch):
            e = exp32(scores[j, b] + bias[j] - shift[b])
            scores[j, b] = e
            part[b] += e
        if j % 64 == 63 or j == words - 1:  # short float32 sums, a long float64 one
            for b in range(batch):
                tile_total[b] += part[b]
                part[b] = ZERO
    for b in range(batch):
        if tile_highest[b] == -np.inf:
            total[b] += tile_total[b]  # 0, or NaN
        else:
            new = max(highest[b], np.float64(shift[b]))
            total[b] *= math.exp(highest[b] - new)
            total[b] += tile_total[b] * math.exp(shift[b] - new)
            highest[b] = new


@compiled(reassociated=True)
def gradient_of_kept(exps, tile_highest, log_normalizer, targets, weights, low, grad_bias):
    """Turn a tile of exponentials into the gradient of its scores, and sum it over examples."""
    words, batch = exps.shape
    scale = np.empty(batch, np.float32)
    for b in range(batch):
        scale[b] = weights[b] * np.float32(math.exp(tile_highest[b] - log_normalizer[b]))
        if weights[b] == ZERO:
            scale[b] = ZERO
            exps[:, b] = ZERO
    for j in range(words):
        total = ZERO
        for b in range(batch):
            g = exps[j, b] * scale[b]
            exps[j, b] = g
            total += g
        grad_bias[j] = total
    subtract_targets(exps, targets, weights, low, grad_bias)


@compiled(reassociated=True)
def gradient_of_scores(scores, bias, log_normalizer, targets, weights, low, grad_bias):
    """The same from a tile of scores computed again."""
    words, batch = scores.shape
    shift = log_normalizer.astype(np.float32)
    for b in range(batch):
        if weights[b] == ZERO:
            shift[b] = ZERO
            scores[:, b] = ZERO
    for j in range(words):
        total = ZERO
        for b in range(batch):
            g = exp32(scores[j, b] + bias[j] - shift[b]) * weights[b]
            g = ZERO if weights[b] == ZERO else g
            scores[j, b] = g
            total += g
        grad_bias[j] = total
    subtract_targets(scores, targets, weights, low, grad_bias)


@compiled()
def subtract_targets(grads, targets, weights, low, grad_bias):
    for b in range(len(targets)):
        if low <= targets[b] < low + len(grads):
            grads[targets[b] - low, b] -= weights[b]
            grad_bias[targets[b] - low] -= weights[b]


@compiled(reassociated=True)
def exp_rows(shift, scores, totals):
    """scores = exp(scores - shift), row by row, and the sums of the rows."""
    for b in range(scores.shape[0]):
        total = ZERO
        for j in range(scores.shape[1]):
            e = exp32(scores[b, j] - shift[b])
            scores[b, j] = e
            total += e
        totals[b] = total


@compiled()
def best_of(scores, ids, best):
    """The highest scores, ties by the smaller id, NaN as minus infinity: by insertion."""
    count = 0
    for j in range(len(scores)):
        s = scores[j] if scores[j] == scores[j] else np.float32(-np.inf)
        if count == len(ids) and s <= best[count - 1]:
            continue
        place = count if count < len(ids) else count - 1
        while place > 0 and best[place - 1] < s:
            best[place], ids[place] = best[place - 1], ids[place - 1]
            place -= 1
        best[place], ids[place] = s, j
        count = min(count + 1, len(ids))
    for place in range(len(ids)):
        best[place] = scores[ids[place]]


# --- sampled losses -----------------------------------------------------------------------------


@compiled()
def draw_noise(bits, threshold, alias, noise):
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    size = np.uint64(len(threshold))
    for r in range(len(bits)):
        point = (bits[r] >> half) * size + (((bits[r] & low) * size) >> half)
        column = np.int64(point >> half)
        kept = (point & low) < np.uint64(threshold[column])
        noise[r] = np.int32(column) if kept else alias[column]


@compiled(reassociated=True)
def dot(left, right):
    total = ZERO
    for i in range(len(left)):
        total += left[i] * right[i]
    return total


@compiled()
def negative_forward(
    hidden, targets, weights, noise, block, skip_target, offsets,
    output_weight, output_bias, words, coefficients, losses, grad_hidden,
):  # fmt: skip
    """Losses, the gradient of ``hidden`` and of each score; word -1 where nothing is counted."""
    for b in range(len(hidden)):
        losses[b] = 0.0
        grad_hidden[b, :] = ZERO
        for k in range(words.shape[1]):
            word = targets[b] if k == 0 else noise[b // block, k - 1]
            words[b, k] = -1
            if weights[b] == ZERO or (skip_target and k > 0 and word == targets[b]):
                continue
            words[b, k] = word
            z = dot(hidden[b], output_weight[word]) + output_bias[word]
            if len(offsets):
                z -= offsets[word]
            sign = np.float64(-z if k == 0 else z)
            losses[b] += max(sign, 0.0) + math.log1p(math.exp(-abs(sign))) if sign == sign else sign
            small = np.float32(math.exp(-abs(np.float64(z))))
            sigmoid = (ONE if z >= ZERO else small) / (ONE + small)
            c = (sigmoid - (ONE if k == 0 else ZERO)) * weights[b]
            coefficients[b, k] = c
            for i in range(hidden.shape[1]):
                grad_hidden[b, i] += c * output_weight[word, i]


@compiled()
def negative_update(
    hidden, words, coefficients, rule, numbers, undecayed,
    output_weight, output_bias, weight_first, weight_second, bias_first, bias_second,
):  # fmt: skip
    """Sum the gradients of each word named, in order, and take one step on its row and bias."""
    flat, all_coefficients = words.reshape(-1), coefficients.reshape(-1)
    order = order_of(flat + np.int32(1))
    total, bias_total = np.empty(hidden.shape[1], np.float32), np.empty(1, np.float32)
    begin = 0
    while begin < len(order):
        word = flat[order[begin]]
        total[:] = ZERO
        bias_total[0] = ZERO
        end = begin
        while end < len(order) and flat[order[end]] == word:
            if word >= 0:
                c, row = all_coefficients[order[end]], order[end] // words.shape[1]
                bias_total[0] += c
                for i in range(len(total)):
                    total[i] += c * hidden[row, i]
            end += 1
        if word >= 0:
            take_step(
                rule, numbers, total, output_weight[word], weight_first[word], weight_second[word]
            )
            one = slice(word, word + 1)
            take_step(
                rule, undecayed, bias_total, output_bias[one], bias_first[one], bias_second[one]
            )
        begin = end
