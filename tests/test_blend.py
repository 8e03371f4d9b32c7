"""Several corpora in one epoch, each with its share."""

import numpy as np
import pytest
import runs

import fastnplm
from fastnplm.batches import epoch_of
from fastnplm.blend import Blend, parse_blend
from fastnplm.corpus import Corpus
from fastnplm.errors import CheckpointError, CorpusError, SettingsError


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


@pytest.mark.parametrize("stop", [1, 6, 11])
def test_a_stopped_run_on_a_blend_goes_on_bit_for_bit(parts, tmp_path, monkeypatch, stop):
    options = {
        "kernels": runs.kernels(), "quiet": True, "batch_size": 250, "epochs": 2, "seed": 5,
        "checkpoint_every": 2, "loss": "ns",
    }  # fmt: skip
    with Blend([(parts[0], 0.2), (parts[1], 0.8)], tmp_path) as blend:
        whole = runs.network(blend)
        fastnplm.train(whole, blend, out=tmp_path / "whole", **options)
        model = runs.network(blend)
        with runs.stopped_after(monkeypatch, stop), pytest.raises(KeyboardInterrupt):
            fastnplm.train(model, blend, out=tmp_path / "stopped", **options)
        resumed = runs.network(blend)
        fastnplm.train(resumed, blend, out=tmp_path / "stopped", resume=True, **options)
    for name, values in whole.parameters.items():
        np.testing.assert_array_equal(values, resumed.parameters[name])
    assert runs.contents(tmp_path / "stopped") == runs.contents(tmp_path / "whole")
    with (
        Blend([(parts[0], 0.3), (parts[1], 0.7)]) as other,
        pytest.raises(CheckpointError, match="was made with corpus"),
    ):
        fastnplm.train(runs.network(other), other, out=tmp_path / "whole", resume=True, **options)


def test_training_learns_what_has_the_weight(parts):
    """Of two texts that contradict each other, the heavier one decides."""
    found = []
    for weights in ((0.95, 0.05), (0.05, 0.95)):
        with Blend(list(zip(parts, weights, strict=True))) as blend:
            model = runs.network(blend)
            fastnplm.train(model, blend, epochs=8, batch_size=64, lr=0.03, quiet=True)
        found.append(dict(model.predict("", k=4)))
    assert found[0]["a"] > 0.8
    assert found[1]["c"] > 0.8
