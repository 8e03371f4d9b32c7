"""The specification's kernels of the sampled output layer: see ``reference``."""

import numpy as np

from . import checks, contract
from .reference_arithmetic import FLOATS, SILENT, sigmoid
from .reference_embedding import scatter_update


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
        FLOATS,
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
    with SILENT():
        scores = np.einsum("bh,bkh->bk", hidden, output_weight[words]) + output_bias[words]
        if len(offsets):
            scores -= offsets[words]
        signed = np.where(label == 1, -scores, scores).astype(np.float64)
        losses[:] = np.where(counted, np.logaddexp(0, signed), 0).sum(axis=1)
        grad = np.where(counted, (sigmoid(scores) - label) * weights[:, None], 0).astype(dtype)
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
