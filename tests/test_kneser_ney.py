"""Counting, Kneser-Ney and the back-off model: by hand, by a slow oracle, and against KenLM."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastnplm import counts
from fastnplm.corpus import Corpus
from fastnplm.counts import CHUNK, count_ngrams, sentence_chunks
from fastnplm.errors import IdError, SettingsError
from fastnplm.kneser_ney import FALLBACK_DISCOUNTS, adjusted_counts, discounts, kneser_ney

UNK, START, END = 0, 1, 2
A, B, C = 3, 4, 5


def stream(*sentences):
    return np.array([word for sentence in sentences for word in (*sentence, END)], dtype=np.int32)


def train(tokens, vocabulary_size, order):
    return kneser_ney(count_ngrams(tokens, vocabulary_size, START, END, order))


# --- a slow oracle: dictionaries of tuples, one n-gram at a time ----------------------------------


def oracle(sentences, vocabulary_size, order):
    """A function p(word, context tuple) for the interpolated modified Kneser-Ney model."""
    raw = [Counter() for _ in range(order + 1)]
    for sentence in sentences:
        padded = (START, *sentence, END)
        for k in range(1, order + 1):
            for place in range(len(padded) - k + 1):
                raw[k][padded[place : place + k]] += 1
    adjusted = []
    for k in range(1, order + 1):
        before = defaultdict(set)
        if k < order:
            for gram in raw[k + 1]:
                before[gram[1:]].add(gram[0])
        level = {g: n if k == order or g[0] == START else len(before[g]) for g, n in raw[k].items()}
        level.pop((START,), None)
        adjusted.append(level)

    def amounts(level):
        n = [sum(1 for count in level.values() if count == i) for i in range(5)]
        if 0 not in n[1:4]:
            y = n[1] / (n[1] + 2 * n[2])
            found = [i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3)]
            if min(found) > 0:
                return [0, *found]
        return [0, 0.5, 1, 1.5]

    amounts_of = [amounts(level) for level in adjusted]

    def probability(word, context):
        context = context[len(context) - order + 1 :] if len(context) >= order else context
        k = len(context) + 1
        lower = (
            probability(word, context[1:])
            if k > 1
            else (0.0 if word == START else 1 / (vocabulary_size - 1))
        )
        after = {g: n for g, n in adjusted[k - 1].items() if g[:-1] == context}
        total = sum(after.values())
        if not total:
            return lower
        taken = {g: amounts_of[k - 1][min(n, 3)] for g, n in after.items()}
        gram = (*context, word)
        own = (after[gram] - taken[gram]) / total if gram in after else 0.0
        return own + sum(taken.values()) / total * lower

    return probability


sentences_of_words = st.lists(
    st.lists(st.sampled_from([UNK, A, B, C, 6]), min_size=0, max_size=6), min_size=1, max_size=12
)


@settings(deadline=None, max_examples=60)
@given(sentences=sentences_of_words, order=st.integers(1, 4), data=st.data())
def test_probabilities_are_those_of_the_slow_oracle(sentences, order, data):
    size = 8
    model = train(stream(*sentences), size, order)
    expected = oracle(sentences, size, order)
    tail = st.lists(st.sampled_from([UNK, A, B, C, 6, 7]), max_size=order)
    context = data.draw(st.one_of(tail, tail.map(lambda words: [START, *words])))
    got = model.distribution(context)
    want = [expected(word, tuple(context)) for word in range(size)]
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)


@settings(deadline=None, max_examples=60)
@given(sentences=sentences_of_words, other=sentences_of_words, order=st.integers(1, 5))
def test_a_stream_is_scored_as_its_distributions_say(sentences, other, order):
    model = train(stream(*sentences), 8, order)
    want = []
    for sentence in other:
        context = [START]
        for word in (*sentence, END):
            want.append(math.log(model.distribution(context)[word]))
            context.append(word)
    np.testing.assert_allclose(model.log_probabilities(stream(*other)), want, rtol=1e-12)


@settings(deadline=None, max_examples=100)
@given(
    sentences=sentences_of_words,
    order=st.integers(1, 5),
    context=st.lists(st.integers(0, 7), max_size=6),
)
def test_every_distribution_sums_to_one(sentences, order, context):
    probabilities = train(stream(*sentences), 8, order).distribution(context)
    assert abs(probabilities.sum() - 1) < 1e-9
    assert probabilities[START] == 0
    assert (np.delete(probabilities, START) > 0).all()


# --- by hand --------------------------------------------------------------------------------------


def test_bigrams_worked_out_by_hand():
    """Two sentences, "a b" and "a c"; words: <unk> <s> </s> a b c.

    Counts of counts have gaps, so the discounts are 0.5, 1 and 1.5. Single words have the number
    of different words before them: a 1, b 1, c 1, </s> 2, together 5; discounts free
    (0.5 + 0.5 + 0.5 + 1) / 5 = 0.5 for the uniform distribution 1/5 over all words but <s>:
    p(a) = 0.5/5 + 0.5/5 = 0.2 = p(b) = p(c);  p(</s>) = 1/5 + 0.5/5 = 0.3;  p(<unk>) = 0.1.
    After <s>: a twice: (2 - 1)/2 + (1/2) 0.2 = 0.6. After a: b and c once each, gamma =
    (0.5 + 0.5)/2: p(b | a) = 0.5/2 + 0.5 * 0.2 = 0.35. After b: </s> once:
    0.5/1 + 0.5 * 0.3 = 0.65.
    """
    model = train(stream([A, B], [A, C]), 6, 2)
    np.testing.assert_allclose(model.distribution([]), [0.1, 0, 0.3, 0.2, 0.2, 0.2], rtol=1e-14)
    np.testing.assert_allclose(
        model.distribution([START]), [0.05, 0, 0.15, 0.6, 0.1, 0.1], rtol=1e-14
    )
    np.testing.assert_allclose(
        model.distribution([A]), [0.05, 0, 0.15, 0.1, 0.35, 0.35], rtol=1e-14
    )
    np.testing.assert_allclose(
        np.exp(model.log_probabilities(stream([A, B], [UNK]))),
        [0.6, 0.35, 0.65, 0.05, 0.3],
        rtol=1e-14,
    )


def test_ngrams_that_begin_a_sentence_keep_their_raw_count():
    found = count_ngrams(stream([A, B], [A, B], [B]), 6, START, END, 3)
    bigrams = dict(
        zip(zip(found.parents(2), found.words(2), strict=True), adjusted_counts(found)[1],
            strict=True)
    )  # fmt: skip
    # a b comes twice but only after <s>; <s> a keeps its two; b </s> follows a and <s>.
    assert bigrams == {(START, A): 2, (START, B): 1, (A, B): 1, (B, END): 2}


def test_discounts_are_the_closed_form():
    """n = 10, 4, 2, 1: Y = 10/18; D1 = 1 - 2Y 4/10, D2 = 2 - 3Y 2/4, D3 = 3 - 4Y 1/2."""
    adjusted = np.repeat([1, 2, 3, 4, 9], [10, 4, 2, 1, 5])
    want = (1 - 8 / 18, 2 - 15 / 18, 3 - 20 / 18)
    np.testing.assert_allclose(discounts(adjusted), want, rtol=1e-14)


@pytest.mark.parametrize(
    "repeats",
    [
        [0, 4, 2, 1],  # nothing seen once
        [10, 0, 2, 1],
        [10, 4, 0, 1],
        [10, 2, 8, 1],  # D2 = 2 - 3 (10/14) 8/2, below zero
        [0, 0, 0, 0],
    ],
)
def test_discounts_without_a_closed_form_are_the_fixed_ones(repeats):
    assert discounts(np.repeat([1, 2, 3, 4], repeats)) == FALLBACK_DISCOUNTS


# --- edges ----------------------------------------------------------------------------------------


def test_an_empty_corpus_gives_the_uniform_distribution():
    model = train(stream(), 6, 3)
    want = [0.2, 0, 0.2, 0.2, 0.2, 0.2]
    np.testing.assert_allclose(model.distribution([START, A]), want, rtol=1e-14)
    assert len(model.log_probabilities(stream())) == 0


def test_repeated_starts_and_what_stands_before_them_do_not_matter():
    model = train(stream([A, B], [A, C], [B, A, C]), 6, 4)
    want = model.distribution([START, A])
    assert (model.distribution([START, START, START, A]) == want).all()
    assert (model.distribution([C, END, START, A]) == want).all()


@pytest.mark.parametrize("setting", ["IN_CACHE", "IN_MEMORY", "chunk"])
def test_how_counting_is_cut_and_stored_changes_nothing(monkeypatch, setting):
    rng = np.random.default_rng(5)
    tokens = rng.integers(2, 12, size=3000).astype(np.uint16)
    whole = count_ngrams(tokens, 12, START, END, 4)
    if setting == "chunk":
        parts = count_ngrams(tokens, 12, START, END, 4, chunk=97)
    else:
        monkeypatch.setattr(counts, setting, 10)
        parts = count_ngrams(tokens, 12, START, END, 4)
    for left, right in zip(whole.keys + whole.counts, parts.keys + parts.counts, strict=True):
        assert (left == right).all()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_chunks_end_with_sentences(size):
    tokens = stream([A], [A, B, C, A, B, C, A, B], [], [B, B], [C])[:-1]
    parts = list(sentence_chunks(tokens, END, size))
    assert (np.concatenate(parts) == tokens).all()
    assert all(part[-1] == END for part in parts[:-1])


def test_a_stream_longer_than_a_chunk_is_scored_like_its_parts():
    part = stream(*[[A, B, C, B]] * 1000, [B])
    tokens = np.tile(part, CHUNK // len(part) + 2)
    model = train(part, 6, 3)
    assert (model.log_probabilities(tokens).reshape(-1, len(part))
            == model.log_probabilities(part)).all()  # fmt: skip


@pytest.mark.parametrize("bad", [-1, 6, 7, np.iinfo(np.int32).min])
def test_ids_outside_the_vocabulary_are_refused(bad):
    tokens = stream([A, B], [A])
    model = train(tokens, 6, 2)
    tokens[3] = bad
    for use in (model.log_probabilities, lambda t: train(t, 6, 2)):
        with pytest.raises(IdError, match=rf"{bad} at position 3 .* 6 words"):
            use(tokens)
    with pytest.raises(IdError, match=f"{bad} at position 1 of the context"):
        model.distribution([A, bad])


def test_a_stored_start_is_refused():
    with pytest.raises(IdError, match=r"<s>\) at position 1"):
        train(stream([A, START, B]), 6, 2)


def test_an_order_below_one_is_refused():
    with pytest.raises(SettingsError, match="order is 0"):
        train(stream([A]), 6, 0)


def test_tokens_that_are_not_integers_are_refused():
    with pytest.raises(IdError, match="float64"):
        train(np.array([3.0, 2.0]), 6, 2)


# --- KenLM ----------------------------------------------------------------------------------------


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "min_count", "scored", "expected"),
    [
        (
            "brown/brown.mapped.{}.txt.gz",
            1,
            (211_686, 171_322),
            {3: (156.93, 147.69), 5: (156.01, 146.73)},
        ),
        ("ptb/ptb.{}.txt.gz", 1, (73_760, 82_430), {3: (157.77, 148.28), 5: (148.01, 141.19)}),
        (
            "pku199801/pku.{}.txt.gz",
            4,
            (111_880, 113_604),
            {3: (266.56, 235.12), 5: (259.56, 227.25)},
        ),
    ],
)
def test_perplexities_are_those_of_kenlm(data, name, min_count, scored, expected):
    with Corpus.prepare(data / name.format("train"), min_count=min_count) as corpus:
        tokens, vocabulary, size = corpus.tokens, corpus.vocabulary, len(corpus.vocabulary)
        models = {order: train(tokens, size, order) for order in expected}
    for part, place in (("valid", 0), ("test", 1)):
        with Corpus.prepare(data / name.format(part), vocabulary=vocabulary) as text:
            stream_of_part = np.array(text.tokens)
        assert len(stream_of_part) == scored[place]
        for order, model in models.items():
            found = math.exp(-model.log_probabilities(stream_of_part).mean())
            assert found == pytest.approx(expected[order][place], rel=1e-4)
            middle = stream_of_part[100:104]
            for context in ([START], [], [UNK] * 4, middle, middle[:2], [size - 1, 5, 9, END]):
                assert abs(model.distribution(context).sum() - 1) < 1e-9
