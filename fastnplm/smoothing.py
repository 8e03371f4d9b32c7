"""The two classic ways of smoothing that textbooks begin with: add-one and Katz.

They are here for teaching and comparison; ``kneser_ney`` is better at every order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastnplm.backoff import BackOff
from fastnplm.counts import Counts

__all__ = ["add_one", "good_turing", "katz"]

Floats = NDArray[np.float64]
SEEN_OFTEN = 5
"""Katz (1987) trusts counts above this one as they are."""


def add_one(counts: Counts) -> BackOff:
    """Laplace's rule: p(w | h) = (c(h w) + 1) / (c(h) + V - 1), h the whole context.

    V - 1 is the number of words that can be predicted: all but ``<s>``. After a context that was
    never seen every word is equally likely, and so it is after a context that is too short and
    does not begin with ``<s>``: such a one is only met as the remains of an unseen one.
    """
    outcomes = counts.vocabulary_size - 1
    starts = counts.starts()
    log_probability: list[Floats] = []
    log_backoff: list[Floats] = []
    for k in range(1, counts.order + 1):
        often = counts.counts[k - 1]
        if k == 1:
            whole = np.full(len(often), counts.order == 1)
            total = np.full(len(often), float(often.sum() - often[counts.start_id]))
        else:
            contexts = counts.parents(k)
            after = np.bincount(contexts, weights=often, minlength=len(counts.keys[k - 2]))
            whole = starts[k - 1] | (k == counts.order)
            weight = outcomes / (after + outcomes)
            if k < counts.order:
                weight[~starts[k - 2]] = 1.0
            log_backoff.append(np.log(weight))
            total = after[contexts].astype(np.float64)
        probability = np.where(whole, (often + 1) / (total + outcomes), 1 / outcomes)
        if k == 1:
            probability[counts.start_id] = 0.0
        log_probability.append(logarithm(probability))
    return BackOff.of(counts, log_probability, log_backoff)


def katz(counts: Counts) -> BackOff:
    """Katz's back-off: counts of at most 5 are discounted by Good-Turing, and what that frees is
    given to the words not seen after the context, in proportion to the shorter context's model.

    A context after which every word was seen more than 5 times frees nothing; its total is then
    raised by one, so that unseen words keep a probability. What single words free goes to the
    words that never occur, evenly, or to all words if there are none.
    Source: Katz 1987, as Chen and Goodman (1999, section 2.4) write it.
    """
    often = counts.counts[0].copy()
    often[counts.start_id] = 0
    contexts = np.zeros(len(often), dtype=np.int64)
    probability, freed = discounted(often, contexts, 1)
    unseen = often == 0
    unseen[counts.start_id] = False
    if not unseen.any():
        unseen = np.arange(len(often)) != counts.start_id
    probability[unseen] += freed[0] / np.count_nonzero(unseen)
    log_probability = [logarithm(probability)]
    log_backoff = []
    suffixes = counts.suffixes()
    lower = probability
    for k in range(2, counts.order + 1):
        contexts = counts.parents(k)
        size = len(counts.keys[k - 2])
        probability, freed = discounted(counts.counts[k - 1], contexts, size)
        rest = 1 - np.bincount(contexts, weights=lower[suffixes[k - 1]], minlength=size)
        # Where every word was seen after the context, nobody is left to take what is freed.
        full = rest < 1e-12
        probability /= np.where(full, 1 - freed, 1.0)[contexts]
        weight = np.ones(size)
        weight[~full] = freed[~full] / rest[~full]
        log_backoff.append(np.log(weight))
        log_probability.append(np.log(probability))
        lower = probability
    return BackOff.of(counts, log_probability, log_backoff)


def discounted(
    often: NDArray[np.int64], contexts: NDArray[np.int64], size: int
) -> tuple[Floats, Floats]:
    """Discounted probability of each n-gram, and for each context the share that is freed."""
    kept = often * good_turing(often)[np.minimum(often, SEEN_OFTEN + 1)]
    total = np.bincount(contexts, weights=often, minlength=size).astype(np.float64)
    freed = np.bincount(contexts, weights=often - kept, minlength=size).astype(np.float64)
    closed = freed <= 0
    freed[closed] = 1.0
    total[closed] += 1.0
    return kept / total[contexts], freed / total


def good_turing(often: NDArray[np.int64]) -> Floats:
    """Factors for the counts 0 .. 6: 1 for 0 and 6 (which stands for all above 5).

    d_r = (r*/r - A) / (1 - A) with r* = (r + 1) n_{r+1} / n_r and A = 6 n_6 / n_1. Counts of
    counts that leave a factor undefined or outside (0, 1), as in small or clipped text, are
    answered by (r - 1/2) / r for all r up to 5.
    """
    n = np.bincount(np.minimum(often, SEEN_OFTEN + 2), minlength=SEEN_OFTEN + 3).astype(float)
    r = np.arange(1, SEEN_OFTEN + 1)
    factors = np.ones(SEEN_OFTEN + 2)
    factors[1:-1] = (r - 0.5) / r
    if (n[1 : SEEN_OFTEN + 2] > 0).all():
        above = (SEEN_OFTEN + 1) * n[SEEN_OFTEN + 1] / n[1]
        estimates = (r + 1) * n[r + 1] / (r * n[r])
        if above < 1:
            found = (estimates - above) / (1 - above)
            if ((found > 0) & (found < 1)).all():
                factors[1:-1] = found
    return factors


def logarithm(probability: Floats) -> Floats:
    with np.errstate(divide="ignore"):  # <s> has probability zero
        return np.log(probability)
