"""Several corpora in one epoch, each with its share."""

import numpy as np
import pytest

from fastnplm.batches import epoch_of
from fastnplm.blend import Blend, parse_blend
from fastnplm.corpus import Corpus
from fastnplm.errors import CorpusError, SettingsError


@pytest.fixture
def parts():
    news = Corpus.prepare([["a", "b", "c"]] * 300, min_count=1)
    chat = Corpus.prepare([["c", "b"]] * 100, vocabulary=news.vocabulary)
    with news, chat:
        yield news, chat


def test_the_stream_is_the_parts_behind_one_another(parts):
    with Blend([(parts[0], 0.7), (parts[1], 0.3)]) as blend:
        assert len(blend) == len(blend.tokens) == 1500
        expected = np.concatenate([part.tokens for part in parts])
        np.testing.assert_array_equal(blend.tokens, expected)
        assert (blend.sentences, blend.oov) == (400, 0)


@pytest.mark.parametrize("weights", [(0.7, 0.3), (1, 9), (1, 1), (5, 1e-9)])
@pytest.mark.parametrize(("window", "block"), [(100, 7), (1 << 22, 1 << 12), (64, 64)])
def test_each_part_has_its_share_of_every_epoch(parts, weights, window, block):
    with Blend(list(zip(parts, weights, strict=True))) as blend:
        whole = [blend.epoch(32, seed=1, epoch=e, window=window, block=block) for e in (0, 1)]
        orders = [np.concatenate(list(epoch)) for epoch in whole]
        share = round(1500 * weights[1] / sum(weights))
        for order in orders:
            assert len(order) == 1500
            assert np.count_nonzero(order >= 1200) == share
            met = np.bincount(order, minlength=1500)
            # Nothing is met again before everything of its part was.
            assert np.ptp(met[:1200]) <= 1
            assert np.ptp(met[1200:]) <= 1
        assert (orders[0] != orders[1]).any()


def test_continuing_at_any_batch(parts):
    with Blend([(parts[0], 2), (parts[1], 3)]) as blend:
        whole = [batch.tolist() for batch in epoch_of(blend, 100, seed=3)]
        for start in range(len(whole) + 1):
            rest = [batch.tolist() for batch in epoch_of(blend, 100, seed=3, start_batch=start)]
            assert rest == whole[start:]


def test_what_cannot_be_blended(parts):
    for weight in (0, -1, float("nan"), float("inf")):
        with pytest.raises(SettingsError, match="positive numbers"):
            Blend([(parts[0], 1), (parts[1], weight)])
    with pytest.raises(SettingsError, match="at least one"):
        Blend([])
    with (
        Corpus.prepare([["x", "y"]], min_count=1) as other,
        pytest.raises(CorpusError, match="another vocabulary"),
    ):
        Blend([(parts[0], 1), (other, 1)])


def test_weights_of_the_command_line():
    assert parse_blend(["a.corpus:0.7", "b:c:2", "d"]) == [
        ("a.corpus", 0.7),
        ("b:c", 2.0),
        ("d", 1.0),
    ]
    for weight in ("x", "0", "-1", "inf", "nan", ""):
        with pytest.raises(SettingsError, match="must be a positive number"):
            parse_blend([f"a:{weight}"])
