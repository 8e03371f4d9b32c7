"""Mixtures: the weights are the best, the probabilities are the weighted sums, files come back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastnplm
from fastnplm.corpus import Corpus
from fastnplm.errors import CorpusError, ModelError, SettingsError
from fastnplm.folder import MANIFEST, render
from fastnplm.mixture import BUCKETS, Mixture, best_weights, bins_of, exact_context
from fastnplm.ngram import NGram

TEXT = ["a b c", "a b d", "b a c a", "d d a b", "c", "a b", "c a b e"]
VALID = ["a b c a", "d a b", "e c"]


@pytest.fixture
def corpus():
    with Corpus.prepare(TEXT, min_count=1) as corpus:
        yield corpus


@pytest.fixture
def models(corpus):
    network = fastnplm.NPLM(corpus.vocabulary, context=2, dim=4, hidden=5, dtype="float64", seed=1)
    return [network, NGram.train(corpus, order=3), NGram.train(corpus, order=1)]


def tokens_of(model, sentences):
    with Corpus.prepare(sentences, vocabulary=model.vocabulary) as corpus:
        return np.array(corpus.tokens)


# --- the weights ----------------------------------------------------------------------------------


def test_two_sure_members_share_by_their_tokens():
    """A token only one member thinks possible belongs to it: 3 of 4, so the weight is 3/4."""
    logs = np.log([[0.5, 1e-300], [0.1, 1e-300], [0.9, 1e-300], [1e-300, 0.2]])
    np.testing.assert_allclose(best_weights(logs, np.array([0.5, 0.5])), [0.75, 0.25], rtol=1e-9)


def test_the_closed_form_of_two_outcomes():
    """Members say 0.9 and 0.2 for heads; 60 heads, 40 tails: 0.2 + 0.7 w = 0.6, w = 4/7."""
    logs = np.log(np.repeat([[0.9, 0.2], [0.1, 0.8]], [60, 40], axis=0))
    for start in ([0.5, 0.5], [0.01, 0.99], [0.99, 0.01]):
        found = best_weights(logs, np.array(start), tolerance=1e-15)
        np.testing.assert_allclose(found, [4 / 7, 3 / 7], rtol=1e-5)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), members=st.integers(1, 4))
def test_no_other_weights_do_better(seed, members):
    rng = np.random.default_rng(seed)
    logs = np.log(rng.random((50, members))) * 3
    found = best_weights(logs, np.full(members, 1 / members), tolerance=1e-14)
    assert abs(found.sum() - 1) < 1e-12
    best = np.log(np.exp(logs) @ found).sum()
    for other in rng.dirichlet(np.ones(members), size=50):
        assert np.log(np.exp(logs) @ other).sum() <= best + 1e-6


def test_tiny_probabilities_do_not_underflow():
    logs = np.array([[-2000.0, -2001.0], [-3000.0, -2999.5]])
    near = logs - logs.max(axis=1, keepdims=True)
    start = np.array([0.5, 0.5])
    np.testing.assert_allclose(best_weights(logs, start), best_weights(near, start), rtol=1e-12)


def test_impossible_tokens_are_left_out():
    logs = np.array([[-np.inf, -np.inf], [-1.0, -np.inf]])
    found = best_weights(logs, np.array([0.5, 0.5]))
    assert found == pytest.approx([1, 0], abs=1e-6)


def test_without_text_the_weights_stay():
    start = np.array([0.3, 0.7])
    assert (best_weights(np.empty((0, 2)), start) == start).all()


def test_a_prior_counts_like_tokens():
    """One sure token for the first, three imaginary for the second: weights 1/4 and 3/4."""
    logs = np.array([[-1.0, -800.0]])
    found = best_weights(logs, np.array([0.5, 0.5]), prior=np.array([0.0, 3.0]))
    np.testing.assert_allclose(found, [0.25, 0.75], rtol=1e-9)


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fixed", "context"])
def test_a_mixture_is_the_weighted_sum(models, kind):
    mixture = Mixture.tune(models, VALID, kind)
    tokens = tokens_of(mixture, [*VALID, "zzz a"])
    weights = mixture.weights[mixture._bins(tokens)]
    parts = np.exp([model.log_probabilities(tokens) for model in models]).T
    np.testing.assert_allclose(
        np.exp(mixture.log_probabilities(tokens)), (weights * parts).sum(axis=1), rtol=1e-12
    )
    context = [mixture.vocabulary.start_id]
    for word, log_p in zip(tokens, mixture.log_probabilities(tokens), strict=True):
        shares = mixture.distribution(context)
        assert abs(shares.sum() - 1) < 1e-9
        assert shares[mixture.vocabulary.start_id] < 1e-12
        assert math.log(shares[word]) == pytest.approx(log_p, rel=1e-9)
        context = (
            [mixture.vocabulary.start_id]
            if word == mixture.vocabulary.end_id
            else [*context, int(word)]
        )


@settings(deadline=None, max_examples=30)
@given(context=st.lists(st.integers(0, 7), max_size=5))
def test_mixed_count_models_sum_to_one(context):
    with Corpus.prepare(TEXT, min_count=1) as corpus:
        members = [NGram.train(corpus, order=n) for n in (1, 2, 4)]
        mixture = Mixture.tune(members[::-1], VALID, "context")
    assert abs(mixture.distribution(context).sum() - 1) < 1e-9


def test_tuning_helps_the_text_it_is_tuned_on(models):
    tokens = tokens_of(models[0], VALID)
    equal = Mixture(models, [1 / 3, 1 / 3, 1 / 3])
    fixed = Mixture.tune_tokens(models, tokens)
    context = Mixture.tune_tokens(models, tokens, "context")
    scores = [m.log_probabilities(tokens).sum() for m in (equal, fixed, context)]
    assert scores[0] < scores[1] < scores[2]
    assert all(m.log_probabilities(tokens).sum() < scores[1] + 1e-6 for m in models)


def test_a_bin_without_text_has_the_fixed_weights(models):
    text = ["a b", "a b c", "e d c c", "d c e e", "b b a d"]
    mixture = Mixture.tune(models, text, "context")
    fixed = Mixture.tune(models, text).weights[0]
    assert mixture.weights.shape == (3 * BUCKETS, 3)
    np.testing.assert_allclose(mixture.weights[2 * BUCKETS + 15], fixed, rtol=1e-12)
    assert not np.allclose(mixture.weights, fixed, rtol=1e-3)


def test_bins_double():
    counts = np.array([0, 1, 2, 3, 4, 7, 8, 2**40])
    assert bins_of(np.zeros(8, int), counts).tolist() == [0, 1, 2, 2, 3, 3, 4, BUCKETS - 1]
    assert bins_of(np.full(1, 2), np.zeros(1, int)).tolist() == [2 * BUCKETS]


def test_it_is_evaluated_and_asked_like_every_model(models):
    mixture = Mixture.tune(models, VALID)
    report = fastnplm.evaluate(mixture, VALID)
    total = sum(mixture.score(sentence) for sentence in VALID)
    assert report.perplexity == pytest.approx(10 ** (-total / report.tokens), rel=1e-9)
    assert mixture.predict("a", k=2)[0][0] == "b"


@pytest.mark.parametrize("kind", ["fixed", "context"])
def test_a_saved_mixture_comes_back(tmp_path, models, kind):
    inner = Mixture(models[1:], [0.25, 0.75])
    mixture = Mixture.tune([models[0], models[1], inner], VALID, kind)
    mixture.save(tmp_path / "mixed")
    found = fastnplm.load(tmp_path / "mixed")
    assert [type(m).__name__ for m in found.members] == ["NPLM", "NGram", "Mixture"]
    assert (found.weights == mixture.weights).all()
    tokens = tokens_of(mixture, VALID)
    assert (found.log_probabilities(tokens) == mixture.log_probabilities(tokens)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 9}, "format 9"),
        ({"members": 1}, "not those of 1 models"),
        ({"members": "x"}, "damaged"),
        ({"counter": "x"}, "damaged"),
        ({"counter": 0}, "weights of shape"),
        ({"weights": "x"}, "no table"),
        ({"weights": [0.5, 0.5]}, "not those of 2"),
        ({"weights": [[0.5, 0.6]]}, "sum to one"),
        ({"weights": [[-0.5, 1.5]]}, "negative"),
        ({"weights": [[math.nan, 1.0]]}, "negative"),
    ],
)
def test_a_damaged_mixture_is_refused(tmp_path, models, change, message):
    import hashlib

    folder = tmp_path / "mixed"
    Mixture(models[1:], [0.25, 0.75]).save(folder)
    data = json.dumps(json.loads((folder / "config.json").read_text()) | change).encode()
    (folder / "config.json").write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["config.json"] = {
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    (folder / MANIFEST).write_text(render(manifest["files"]))
    with pytest.raises(ModelError, match=message):
        fastnplm.load(folder)


def test_a_damaged_member_is_refused(tmp_path, models):
    folder = tmp_path / "mixed"
    Mixture(models[1:], [0.25, 0.75]).save(folder)
    path = folder / "member-2" / "vocabulary.tsv"
    path.write_bytes(path.read_bytes()[:-2] + b"9\n")
    with pytest.raises(ModelError, match=r"vocabulary\.tsv: its checksum"):
        fastnplm.load(folder)


# --- refusals -------------------------------------------------------------------------------------


def test_models_of_two_vocabularies_are_refused(models):
    with Corpus.prepare(["x y"], min_count=1) as other, pytest.raises(ModelError, match="model 2"):
        Mixture([models[1], NGram.train(other, 2)], [0.5, 0.5])


def test_a_text_of_another_vocabulary_is_refused(models):
    with Corpus.prepare(["x y"], min_count=1) as other, pytest.raises(CorpusError):
        Mixture.tune(models, other)


def test_weights_by_context_need_a_count_model(models):
    with pytest.raises(SettingsError, match="needs a count model"):
        Mixture.tune(models[:1], VALID, "context")
    with pytest.raises(ModelError, match="no count model"):
        Mixture(models[:2], np.full((3 * BUCKETS, 2), 0.5), counter=0)


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.4], [1.5, -0.5], [[0.5, 0.5]] * 2])
def test_weights_that_do_not_fit_are_refused(models, weights):
    with pytest.raises(ModelError, match="weights"):
        Mixture(models[:2], weights)


def test_an_empty_mixture_and_an_unknown_kind_are_refused(models):
    with pytest.raises(ModelError, match="at least one"):
        Mixture([], [])
    with pytest.raises(SettingsError, match="choose fixed or context"):
        Mixture.tune(models, VALID, "magic")


def test_contexts_of_a_network_have_its_length():
    assert exact_context([], 3, 1).tolist() == [1, 1, 1]
    assert exact_context([1, 7], 3, 1).tolist() == [1, 1, 7]
    assert exact_context(np.array([1, 7, 8, 9]), 2, 1).tolist() == [8, 9]
