"""The noise distribution of the sampled losses, and its alias table."""

import numpy as np

from .errors import SettingsError

START_BIAS = -60.0  # the score of `<s>`: never a target, noise or output (e^-60 is nothing)


def smoothed_counts(vocabulary):
    """Counts as float64 (V,), zero counts taken as 0.5 so that no logarithm is infinite.

    ``<s>`` keeps 0: it is context only. A vocabulary without counts is taken as uniform.
    """
    counts = np.asarray(vocabulary.counts, dtype=np.float64).copy()
    counts[counts == 0] = 0.5
    if vocabulary.start_id is not None:
        counts[vocabulary.start_id] = 0
    return counts


def log_unigram(vocabulary):
    """log p of each word by its count, float64 (V,); ``<s>`` has START_BIAS."""
    return _log_shares(smoothed_counts(vocabulary))


def noise_distribution(vocabulary, power=0.75):
    """q proportional to count ** power, float64 (V,), summing to 1; ``<s>`` has 0.

    (Mikolov et al. 2013, section 2.2, take 0.75.)
    """
    if not np.isfinite(power):
        raise SettingsError(f"power is {power}; expected a finite number such as 0.75")
    counts = smoothed_counts(vocabulary)
    shares = np.where(counts > 0, np.power(counts, power, where=counts > 0, out=counts.copy()), 0)
    return shares / shares.sum()


def log_noise(vocabulary, power=0.75):
    """log q, float64 (V,); ``<s>`` has START_BIAS."""
    return _log_shares(noise_distribution(vocabulary, power))


def alias_table(shares):
    """Walker's alias table of a distribution, built in O(V) (Vose 1991): (threshold, alias).

    threshold : uint32 (V,), alias : int32 (V,), as ``draw_noise`` takes them. The probability of
    word i is (threshold[i] + sum over j with alias[j] = i of (2^32 - threshold[j])) / (2^32 V),
    within 2^-32 of a column's share of the asked one; a word of share 0 is never drawn.
    """
    shares = np.asarray(shares, dtype=np.float64)
    size = len(shares)
    scaled = shares * (size / shares.sum())
    alias = np.arange(size, dtype=np.int32)
    threshold = np.full(size, 0xFFFFFFFF, dtype=np.uint32)
    small = np.flatnonzero(scaled < 1).tolist()
    large = np.flatnonzero(scaled >= 1).tolist()
    rest = scaled.tolist()
    while small and large:
        low, high = small.pop(), large[-1]
        threshold[low] = min(round(rest[low] * 2.0**32), 0xFFFFFFFF)
        alias[low] = high
        rest[high] -= 1 - rest[low]
        if rest[high] < 1:
            small.append(large.pop())
    # What is left differs from 1 by rounding only: such a column is its own word, and its alias
    # is itself, so the missing 2^-32 of its threshold goes nowhere else. A word of share 0 can be
    # left here only if all columns above were used up; it must not be drawn.
    for column in small:
        if shares[column] == 0:
            threshold[column] = 0
            alias[column] = int(np.argmax(shares))
    return threshold, alias


def _log_shares(counts):
    result = np.full(len(counts), START_BIAS)
    present = counts > 0
    result[present] = np.log(counts[present] / counts.sum())
    return result
