"""The noise distribution and its alias table: exact shares, exact draws, fair statistics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastnplm import Vocabulary, noise
from fastnplm.errors import SettingsError
from fastnplm.kernels import reference


def _vocabulary(counts):
    words = ["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(len(counts) - 3)]
    return Vocabulary.from_words(words, counts=counts)


def _table_shares(threshold, alias):
    """The exact probabilities that an alias table stands for."""
    size = len(threshold)
    shares = np.zeros(size)
    kept = threshold / 2.0**32
    np.add.at(shares, np.arange(size), kept)
    np.add.at(shares, alias, 1 - kept)
    return shares / size


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50).filter(lambda c: sum(c) > 0))
def test_alias_table_stands_for_its_distribution(weights):
    shares = np.array(weights) / np.sum(weights)
    threshold, alias = noise.alias_table(shares)
    found = _table_shares(threshold, alias)
    assert np.abs(found - shares).max() < 2**-31
    assert (found[shares == 0] == 0).all() or found[shares == 0].max() < 2**-32 / len(shares) * 2


def test_start_is_never_noise_and_end_can_be():
    q = noise.noise_distribution(_vocabulary([5, 0, 7, 3, 1]))
    assert q[1] == 0
    assert q[2] > 0
    assert q.sum() == pytest.approx(1, abs=1e-12)
    powers = np.array([5, 7, 3, 1]) ** 0.75
    assert q[[0, 2, 3, 4]] == pytest.approx(powers / powers.sum(), rel=1e-12)


def test_a_count_of_zero_is_taken_as_a_half():
    p = np.exp(noise.log_unigram(_vocabulary([0, 0, 10, 9])))
    assert p[0] == pytest.approx(0.5 / 19.5)
    assert noise.log_unigram(_vocabulary([0, 0, 10, 9]))[1] == noise.START_BIAS


def test_a_power_that_is_not_finite_is_refused():
    with pytest.raises(SettingsError, match="power is nan"):
        noise.noise_distribution(_vocabulary([1, 0, 1]), power=float("nan"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["skewed", "flat"])
def test_ten_million_draws_keep_to_their_shares(name):
    counts = np.full(1000, 50) if name == "flat" else (1e6 / np.arange(1, 1001)).astype(int)
    counts[1] = 0
    q = noise.noise_distribution(_vocabulary(counts))
    threshold, alias = noise.alias_table(q)
    generator = np.random.default_rng(11)
    found = np.zeros(1000)
    for _ in range(10):
        bits = generator.integers(0, 2**64, size=1_000_000, dtype=np.uint64)
        drawn = np.empty(len(bits), np.int32)
        reference.draw_noise(bits, threshold, alias, drawn)
        found += np.bincount(drawn, minlength=1000)
    error = np.sqrt(1e7 * q * (1 - q))
    assert found[1] == 0
    assert (np.abs(found - 1e7 * q)[q > 0] <= 5 * error[q > 0]).all()
