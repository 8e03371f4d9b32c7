"""The specification's kernels of the exact output layer: see ``reference``."""

import numpy as np

from . import checks, contract
from .reference_arithmetic import FLOATS, SILENT, apply_rule, rounding, unrounded

TILE = 4096  # rows of the output weight handled at a time: bounds memory to B * TILE scores


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
    checks.softmax_cross_entropy(FLOATS, targets, weights, bias, losses, logits)
    rows = np.arange(len(logits))
    with SILENT():
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
        FLOATS,
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
    rounded = rounding(precision)
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
    with SILENT():
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
            apply_rule(
                rule,
                hyper,
                rounded(grad).T @ hidden,
                output_weight[tile],
                weight_slots[:, tile],
            )
            apply_rule(rule, bias_hyper, grad.sum(axis=0), output_bias[tile], bias_slots[:, tile])


def softmax_forward(
    hidden, targets, output_weight, output_bias, log_normalizer, target_score, threads=1
):
    """log sum_j exp(score_bj) and score_b,target, keeping only a tile of the scores.

    The result of an example does not depend on the others of its batch.
    hidden : (B, H); targets : int32 (B,); output_weight : (V, H); output_bias : (V,);
    log_normalizer, target_score : float64 (B,), written.
    """
    checks.softmax_forward(
        FLOATS, hidden, targets, output_weight, output_bias, log_normalizer, target_score
    )
    log_normalizer[:], target_score[:] = _log_normalizer(
        hidden, targets, unrounded, output_weight, output_bias
    )


def softmax_top_k(hidden, output_weight, output_bias, ids, scores, threads=1):
    """The k best scores of each example, by falling score, ties by the smaller id.

    hidden : (B, H); output_weight : (V, H); output_bias : (V,); ids : int32 (B, k) and
    scores : (B, k), written; 1 <= k <= V. A NaN score counts as the lowest.
    """
    checks.softmax_top_k(FLOATS, hidden, output_weight, output_bias, ids, scores)
    for row in range(len(hidden)):
        all_scores = output_weight @ hidden[row] + output_bias
        order = np.argsort(-np.where(np.isnan(all_scores), -np.inf, all_scores), kind="stable")
        ids[row] = order[: ids.shape[1]]
        scores[row] = all_scores[ids[row]]


def _log_normalizer(hidden, targets, rounded, output_weight, output_bias):
    """log sum exp of the scores and the targets' scores, float64, tile by tile (online)."""
    batch = len(hidden)
    highest = np.full(batch, -np.inf)
    total = np.zeros(batch)
    target_score = np.zeros(batch)
    with SILENT():
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
