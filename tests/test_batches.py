"""Every example once an epoch, in an order that depends on the seed and nothing else."""

import numpy as np
import pytest

from fastnplm.batches import Epoch, epoch_of
from fastnplm.corpus import Corpus
from fastnplm.errors import CorpusError, SettingsError

GOLDEN = [3, 0, 6, 1, 5, 7, 9, 8, 4, 2]
SHAPES = [(4, 2), (7, 3), (12, 5), (64, 64), (1 << 22, 1 << 12)]


def in_order(examples, batch_size, **choices):
    batches = list(Epoch(examples, batch_size, **choices))
    return np.concatenate([np.empty(0, np.int64), *batches]), batches


@pytest.mark.parametrize("examples", [0, 1, 2, 5, 16, 17, 1000, 1023])
@pytest.mark.parametrize("batch_size", [1, 7, 100_000])
@pytest.mark.parametrize(("window", "block"), SHAPES)
def test_every_example_exactly_once(examples, batch_size, window, block):
    order, batches = in_order(examples, batch_size, seed=3, epoch=1, window=window, block=block)
    assert sorted(order) == list(range(examples))
    assert order.dtype == np.int64
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert len(batches) == len(Epoch(examples, batch_size))


@pytest.mark.parametrize(("window", "block"), SHAPES)
def test_continuing_at_any_batch(window, block):
    choices = {"seed": 5, "epoch": 2, "window": window, "block": block}
    _, whole = in_order(500, 7, **choices)
    for start in range(len(whole) + 2):
        _, rest = in_order(500, 7, start_batch=start, **choices)
        assert len(rest) == len(whole[start:]) == len(Epoch(500, 7, start_batch=start))
        for ours, theirs in zip(rest, whole[start:], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_order_is_a_function_of_seed_and_epoch():
    first, _ = in_order(1000, 10, seed=1, epoch=0)
    again, _ = in_order(1000, 333, seed=1, epoch=0)
    np.testing.assert_array_equal(first, again)
    for other in ({"seed": 2, "epoch": 0}, {"seed": 1, "epoch": 1}, {"seed": 2**70, "epoch": 0}):
        assert (in_order(1000, 10, **other)[0] != first).mean() > 0.9


def test_the_order_is_fixed_for_good():
    assert in_order(10, 10, seed=0, epoch=0)[0].tolist() == GOLDEN


def test_settings():
    for choice in (
        {"batch_size": 0},
        {"seed": -1},
        {"epoch": -1},
        {"start_batch": -1},
        {"window": 3, "block": 4},
    ):
        with pytest.raises(SettingsError, match="must be"):
            Epoch(10, **{"batch_size": 2, **choice})


def test_a_stream_that_shrinks_is_noticed(tmp_path):
    corpus = Corpus.prepare([["a", "b"]] * 100, out=tmp_path / "corpus", min_count=1)
    batches = epoch_of(corpus, 10)
    assert len(next(batches)) == 10
    with open(tmp_path / "corpus" / "tokens.bin", "r+b") as stream:
        stream.truncate(100)
    with pytest.raises(CorpusError, match="cut short"):
        next(batches)


@pytest.mark.parametrize("examples", [30_000, 65_536, 200_000])
def test_place_in_file_and_place_in_epoch_are_unrelated(examples):
    """Chi-square over blocks (the examples of one stay in one window), and within a window."""
    statistics = []
    for seed in range(40):
        block = examples // 1000
        order, _ = in_order(examples, 1000, seed=seed, window=examples // 5, block=block)
        # Two blocks apart, so that no two of these positions can be of the same block.
        places = np.flatnonzero(order % (2 * block) == 0)
        table = np.zeros((5, 10))
        cells = places * 5 // examples, order[places] * 10 // examples
        np.add.at(table, cells, 1)
        expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
        statistics.append(((table - expected) ** 2 / expected).sum())
    # 36 degrees of freedom: the mean of 40 such statistics has standard error 1.34.
    assert 31 < np.mean(statistics) < 41
    within = []
    for seed in range(40):
        order, _ = in_order(examples, 1000, seed=seed)
        table = np.zeros((8, 8))
        np.add.at(table, (np.arange(examples) * 8 // examples, order * 8 // examples), 1)
        within.append(((table - examples / 64) ** 2 / (examples / 64)).sum())
    assert 44 < np.mean(within) < 54  # 49 degrees of freedom, standard error 1.6


def test_the_next_window_is_announced():
    told = []
    epoch = Epoch(1000, 10, window=100, block=10, ahead=lambda *blocks: told.append(blocks))
    seen = np.concatenate(list(epoch))
    assert len(told) in (10, 11)
    starts, lengths = told[0]
    coming = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, lengths, strict=True)])
    assert np.isin(coming, seen[50:250]).all()
