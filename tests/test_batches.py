"""Every example once an epoch, in an order that depends on the seed and nothing else."""

import numpy as np
import pytest

from fastnplm.batches import Epoch, epoch_of
from fastnplm.corpus import Corpus
from fastnplm.errors import CorpusError, SettingsError

GOLDEN = [7, 6, 4, 5, 3, 9, 1, 0, 2, 8]
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
