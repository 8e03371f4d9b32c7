"""The exact softmax in Numba: tiles of scores, words by examples, between products in BLAS.

A tile holds ``[words, examples]``, so that the compiled loops run down the examples without a sum
across lanes, and so that all three products read rows as they lie.
"""

import numpy as np

from . import checks
from .jitted_call import FLOAT, loops, pieces, pieces_bytes, step_of, two_slots
from .reference_arithmetic import SILENT

TILE_BYTES = 1 << 20  # of scores: what a core's second-level cache holds
PANEL = 64  # examples that softmax_forward takes together, whatever the batch


def softmax_cross_entropy(targets, weights, bias, losses, logits, threads=1):
    """As ``reference.softmax_cross_entropy``."""
    checks.softmax_cross_entropy(FLOAT, targets, weights, bias, losses, logits)
    if not len(targets):
        return
    rows, totals = np.arange(len(targets)), np.empty(len(targets), dtype=np.float32)
    with SILENT():
        logits += bias
        highest = logits.max(axis=1)
        target_score = logits[rows, targets] - highest
        loops().exp_rows(highest, logits, totals)
        losses[:] = np.log(totals, dtype=np.float64) - target_score
        logits *= (weights / totals)[:, None]
        logits[rows, targets] -= weights
    ignored = weights == 0
    losses[ignored] = 0
    logits[ignored] = 0


def softmax_step_scratch(batch, hidden, vocabulary, precision="float32", keep=True, threads=1):
    """As ``reference.softmax_step_scratch``."""
    return pieces_bytes(*_shapes(batch, hidden, vocabulary, precision, keep))


def _shapes(batch, hidden, vocabulary, precision, keep):
    """Scores, gradient of a tile of weights, gradient of hidden; for bf16 the rounded operands."""
    tile = _tile(batch, vocabulary)
    shapes = [(vocabulary if keep else tile, batch), (tile, hidden), (batch, hidden)]
    if precision == "bf16":
        shapes += [(tile, hidden), (batch, hidden)]
    return shapes


def _tile(batch, vocabulary):
    """Words of a tile: never a function of the threads or of the room there is."""
    return min(max(TILE_BYTES // (4 * max(batch, 1)) // 16 * 16, 64), 1024, max(vocabulary, 1))


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
    """As ``reference.softmax_step``."""
    sizes = (0, 0)
    if getattr(hidden, "ndim", 0) == 2 and getattr(output_weight, "ndim", 0) == 2:
        shape = (*hidden.shape, len(output_weight), precision)
        sizes = [softmax_step_scratch(*shape, keep) for keep in (False, True)]
    checks.softmax_step(
        FLOAT,
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
        sizes[0],
    )
    grad_hidden[:] = 0
    losses[:] = 0
    if not weights.any():
        return
    keep = len(scratch) >= sizes[1]
    scores, grad_weight, down, *rounded = pieces(scratch, *_shapes(*shape, keep))
    if rounded:
        loops().round_bf16(hidden.reshape(-1), rounded[1].reshape(-1))
        hidden = rounded[1]
    with SILENT():
        tile_highest, log_normalizer, target_score = _scores(
            hidden, targets, output_weight, output_bias, scores, keep, rounded
        )
        np.subtract(log_normalizer, target_score, out=losses, where=weights != 0)
        state, bias_state = two_slots(weight_slots), two_slots(bias_slots)
        code, numbers = step_of(rule, hyper)
        undecayed = step_of(rule, hyper, decayed=False)[1]
        grad_bias = np.empty(len(grad_weight), dtype=np.float32)
        for index, tile in enumerate(_tiles(len(hidden), len(output_weight))):
            old, bias = output_weight[tile], output_bias[tile]
            words = len(old)
            part, grads = grad_bias[:words], scores[tile] if keep else scores[:words]
            about = (log_normalizer, targets, weights, tile.start, part)
            if keep:
                used = _rounded(old, rounded)
                loops().gradient_of_kept(grads, tile_highest[index], *about)
            else:
                used = _product(old, hidden, grads, rounded)
                loops().gradient_of_scores(grads, bias, *about)
            if rounded:
                loops().round_bf16(grads.reshape(-1), grads.reshape(-1))
            np.matmul(grads.T, used, out=down)
            grad_hidden += down
            step = grad_weight[:words]
            np.matmul(grads, hidden, out=step)
            of_tile = [slot[tile].reshape(-1) for slot in state]
            loops().take_step(code, numbers, step.reshape(-1), old.reshape(-1), *of_tile)
            of_tile = [slot[tile] for slot in bias_state]
            loops().take_step(code, undecayed, part, bias, *of_tile)


def _tiles(batch, vocabulary):
    tile = _tile(batch, vocabulary)
    for low in range(0, vocabulary, tile):
        yield slice(low, min(low + tile, vocabulary))


def _rounded(weight, rounded):
    """A tile of the weight as the products read it."""
    if not rounded:
        return weight
    near = rounded[0][: len(weight)]
    loops().round_bf16(weight.reshape(-1), near.reshape(-1))
    return near


def _product(weight, hidden, scores, rounded):
    """The scores of a tile without bias, and the tile as read."""
    used = _rounded(weight, rounded)
    np.matmul(used, hidden.T, out=scores)
    return used


def _scores(hidden, targets, output_weight, output_bias, scores, keep, rounded=()):
    """All scores tile by tile: (highest of each tile, log-normalisers, targets' scores).

    With ``keep`` exp(score - the tile's highest) stays in ``scores``, else each tile overwrites
    the one before.
    """
    batch = len(hidden)
    tiles = list(_tiles(batch, len(output_weight)))
    tile_highest = np.empty((len(tiles) if keep else 1, batch), dtype=np.float32)
    highest, total, target_score = np.full(batch, -np.inf), np.zeros(batch), np.zeros(batch)
    for index, tile in enumerate(tiles):
        here = scores[tile] if keep else scores[: tile.stop - tile.start]
        _product(output_weight[tile], hidden, here, rounded)
        loops().exp_tile(
            here,
            output_bias[tile],
            targets,
            tile.start,
            tile_highest[index if keep else 0],
            highest,
            total,
            target_score,
        )
    return tile_highest, highest + np.log(total), target_score


def softmax_forward(
    hidden, targets, output_weight, output_bias, log_normalizer, target_score, threads=1
):
    """As ``reference.softmax_forward``; always panels of the same number of examples."""
    checks.softmax_forward(
        FLOAT, hidden, targets, output_weight, output_bias, log_normalizer, target_score
    )
    panel = np.zeros((PANEL, hidden.shape[1]), dtype=np.float32)
    panel_targets = np.zeros(PANEL, dtype=np.int32)
    scores = np.empty((_tile(PANEL, len(output_weight)), PANEL), dtype=np.float32)
    with SILENT():
        for low in range(0, len(hidden), PANEL):
            count = min(PANEL, len(hidden) - low)
            some = slice(low, low + count)
            panel[:count], panel_targets[:count] = hidden[some], targets[some]
            _, logs, mine = _scores(panel, panel_targets, output_weight, output_bias, scores, False)
            log_normalizer[some], target_score[some] = logs[:count], mine[:count]


def softmax_top_k(hidden, output_weight, output_bias, ids, scores, threads=1):
    """As ``reference.softmax_top_k``."""
    checks.softmax_top_k(FLOAT, hidden, output_weight, output_bias, ids, scores)
    count = ids.shape[1]
    for row in range(len(hidden)):
        with SILENT():
            every = output_weight @ hidden[row] + output_bias
        if count <= 256:
            loops().best_of(every, ids[row], scores[row])
        else:
            low = np.where(np.isnan(every), -np.inf, every)
            ids[row] = np.argsort(-low, kind="stable")[:count]
            scores[row] = every[ids[row]]
