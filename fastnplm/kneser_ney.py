"""Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1999), as KenLM computes it.

For an n-gram of k words, context h and word w:

    p_k(w | h) = (a(h w) - D_k(a(h w))) / sum_v a(h v)  +  gamma(h) p_{k-1}(w | h without first)
    gamma(h)   = (D_k(1) N_1(h) + D_k(2) N_2(h) + D_k(3) N_3+(h)) / sum_v a(h v)

a is the raw count for the highest order and for n-grams that begin with ``<s>``, else the number
of different words seen before the n-gram. N_i(h) counts the words v with a(h v) = i. Single words
are interpolated with the uniform distribution over all words but ``<s>``. Heafield et al.,
*Scalable Modified Kneser-Ney Language Model Estimation*, ACL 2013.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastnplm.backoff import BackOff
from fastnplm.counts import Counts

__all__ = ["FALLBACK_DISCOUNTS", "adjusted_counts", "discounts", "kneser_ney"]

FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
"""For counts 1, 2 and 3 or more where the closed form has no answer: KenLM's own values."""


def kneser_ney(counts: Counts) -> BackOff:
    """Estimate the model of the counts' order; every distribution sums to one."""
    suffixes = counts.suffixes()
    adjusted = adjusted_counts(counts, suffixes)
    log_probability, log_backoff = [], []
    # Order 0: the uniform distribution over everything that can be predicted.
    lower = np.array([1.0 / (counts.vocabulary_size - 1)])
    for k in range(1, counts.order + 1):
        often = adjusted[k - 1]
        contexts = counts.parents(k) if k > 1 else np.zeros(len(often), dtype=np.int64)
        number_of_contexts = len(counts.keys[k - 2]) if k > 1 else 1
        amounts = np.array([0.0, *discounts(often)])
        taken = amounts[np.minimum(often, 3)]
        total = np.bincount(contexts, weights=often, minlength=number_of_contexts)
        # A context that nothing follows (</s>) leaves everything to the lower order.
        gamma = np.ones(number_of_contexts)
        seen = total > 0
        freed = np.bincount(contexts, weights=taken, minlength=number_of_contexts)
        gamma[seen] = freed[seen] / total[seen]
        total[~seen] = 1.0
        shorter = lower[suffixes[k - 1]] if k > 1 else lower
        probability = (often - taken) / total[contexts] + gamma[contexts] * shorter
        if k == 1:
            probability[counts.start_id] = 0.0
        else:
            log_backoff.append(np.log(gamma))
        with np.errstate(divide="ignore"):
            log_probability.append(np.log(probability))
        lower = probability
    return BackOff.of(counts, log_probability, log_backoff)


def adjusted_counts(
    counts: Counts, suffixes: list[NDArray[np.int64]] | None = None
) -> list[NDArray[np.int64]]:
    """The counts that Kneser-Ney discounts, one int64 array an order; 0 for the word ``<s>``."""
    suffixes = counts.suffixes() if suffixes is None else suffixes
    starts = counts.starts()
    adjusted = []
    for k in range(1, counts.order):
        extensions = np.bincount(suffixes[k], minlength=len(counts.keys[k - 1]))
        adjusted.append(np.where(starts[k - 1], counts.counts[k - 1], extensions))
    adjusted.append(counts.counts[-1].copy())
    adjusted[0][counts.start_id] = 0
    return adjusted


def discounts(adjusted: NDArray[np.int64]) -> tuple[float, float, float]:
    """Discounts for the counts 1, 2 and 3 or more of one order, from its counts of counts.

    The closed form (Chen and Goodman 1999, equation 26): D(i) = i - (i + 1) Y n_{i+1} / n_i with
    Y = n_1 / (n_1 + 2 n_2). Where n_1, n_2 or n_3 is zero (small or artificial text), or a
    discount comes out at or below zero, the order takes ``FALLBACK_DISCOUNTS``, as
    ``lmplz --discount_fallback`` does; a discount never exceeds the count it is taken from.
    """
    n = [int(np.count_nonzero(adjusted == i)) for i in range(5)]
    if 0 in n[1:4]:
        return FALLBACK_DISCOUNTS
    y = n[1] / (n[1] + 2 * n[2])
    one, two, three = (i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))
    if min(one, two, three) <= 0:
        return FALLBACK_DISCOUNTS
    return one, two, three
