"""Add-one and Katz: by hand, by what they promise, and on degenerate text."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastnplm.counts import count_ngrams
from fastnplm.smoothing import add_one, good_turing, katz

UNK, START, END = 0, 1, 2
A, B, C = 3, 4, 5

sentences_of_words = st.lists(
    st.lists(st.sampled_from([UNK, A, B, C, 6]), min_size=0, max_size=6), min_size=1, max_size=12
)


def stream(*sentences):
    return np.array([word for sentence in sentences for word in (*sentence, END)], dtype=np.int32)


def train(rule, tokens, vocabulary_size, order):
    return rule(count_ngrams(tokens, vocabulary_size, START, END, order))


@pytest.mark.parametrize("rule", [add_one, katz])
@settings(deadline=None, max_examples=80)
@given(
    sentences=sentences_of_words,
    order=st.integers(1, 4),
    context=st.lists(st.integers(0, 7), max_size=5),
)
def test_every_distribution_sums_to_one(rule, sentences, order, context):
    probabilities = train(rule, stream(*sentences), 8, order).distribution(context)
    assert abs(probabilities.sum() - 1) < 1e-9
    assert probabilities[START] == 0
    assert (np.delete(probabilities, START) > 0).all()


@pytest.mark.parametrize("rule", [add_one, katz])
@settings(deadline=None, max_examples=40)
@given(sentences=sentences_of_words, other=sentences_of_words, order=st.integers(1, 4))
def test_a_stream_is_scored_as_its_distributions_say(rule, sentences, other, order):
    model = train(rule, stream(*sentences), 8, order)
    want = []
    for sentence in other:
        context = [START]
        for word in (*sentence, END):
            want.append(math.log(model.distribution(context)[word]))
            context.append(word)
    np.testing.assert_allclose(model.log_probabilities(stream(*other)), want, rtol=1e-10)


@settings(deadline=None, max_examples=60)
@given(sentences=sentences_of_words, order=st.integers(1, 4), other=sentences_of_words)
def test_add_one_is_the_textbook_formula(sentences, order, other):
    def grams(sentence):
        padded = (START, *sentence, END)
        for place in range(1, len(padded)):
            yield padded[max(0, place - order + 1) : place + 1]

    counts = Counter(gram for sentence in sentences for gram in grams(sentence))
    totals = Counter()
    for gram, often in counts.items():
        totals[gram[:-1]] += often
    want = [
        math.log((counts[gram] + 1) / (totals[gram[:-1]] + 8 - 1))
        for sentence in other
        for gram in grams(sentence)
    ]
    model = train(add_one, stream(*sentences), 8, order)
    np.testing.assert_allclose(model.log_probabilities(stream(*other)), want, rtol=1e-12)


def test_katz_bigrams_worked_out_by_hand():
    """Two sentences, "a b" and "a c"; words: <unk> <s> </s> a b c.

    There are gaps in the counts of counts, so 1 counts as 1/2 and 2 as 3/2. Single words: a 2,
    b 1, c 1, </s> 2 of 6; a and </s> keep 1.5/6, b and c 0.5/6, and the freed 2/6 go to <unk>,
    the one word that never occurs.
    After a: b and c once of 2, each keeps 0.25; freed is 0.5, for words that together have
    1 - 1/6 as single words: weight 0.5 / (5/6) = 0.6; p(</s> | a) = 0.6 * 0.25 = 0.15.
    After <s>: a twice of 2 keeps 0.75; weight 0.25 / (1 - 0.25) = 1/3.
    """
    model = train(katz, stream([A, B], [A, C]), 6, 2)
    want = [2 / 6, 0, 0.25, 0.25, 0.5 / 6, 0.5 / 6]
    np.testing.assert_allclose(model.distribution([]), want, rtol=1e-14)
    np.testing.assert_allclose(
        model.distribution([A]), [0.2, 0, 0.15, 0.15, 0.25, 0.25], rtol=1e-14
    )
    np.testing.assert_allclose(
        model.distribution([START]),
        [1 / 9, 0, 0.25 / 3, 0.75, 0.5 / 18, 0.5 / 18],
        rtol=1e-14,
    )


def test_good_turing_is_katz_formula():
    """n_1 .. n_6 = 1000, 300, 140, 80, 50, 35: A = 6 * 35 / 1000 = 0.21."""
    n = [1000, 300, 140, 80, 50, 35]
    factors = good_turing(np.repeat([1, 2, 3, 4, 5, 6, 40], [*n, 7]))
    ratio = [(r + 1) * n[r] / (r * n[r - 1]) for r in range(1, 6)]
    assert ratio[0] == 0.6
    want = [1, *((x - 0.21) / 0.79 for x in ratio), 1]
    np.testing.assert_allclose(factors, want, rtol=1e-14)


@pytest.mark.parametrize(
    "n",
    [
        [0, 300, 140, 80, 50, 35],
        [1000, 300, 140, 80, 50, 0],
        [1000, 300, 140, 300, 50, 35],  # d_3 above 1
        [100, 300, 140, 80, 50, 35],  # A above 1
        [0] * 6,
    ],
)
def test_good_turing_without_an_answer_takes_half_a_count(n):
    factors = good_turing(np.repeat([1, 2, 3, 4, 5, 6], n))
    np.testing.assert_allclose(factors, [1, 1 / 2, 3 / 4, 5 / 6, 7 / 8, 9 / 10, 1])


def test_katz_keeps_room_after_a_context_whose_words_are_all_common():
    model = train(katz, stream(*[[A, B]] * 10), 7, 3)
    after = model.distribution([START, A])
    assert after[B] == pytest.approx(10 / 11)
    assert after[C] > 0
    assert after.sum() == pytest.approx(1, abs=1e-12)


def test_katz_where_every_word_follows():
    # Vocabulary <unk> <s> </s> a: all three that can follow do follow "a".
    model = train(katz, stream([A, A, UNK], [A]), 4, 2)
    after = model.distribution([A])
    np.testing.assert_allclose(after, [1 / 3, 0, 1 / 3, 1 / 3])


@pytest.mark.parametrize("rule", [add_one, katz])
def test_an_empty_corpus_gives_the_uniform_distribution(rule):
    model = train(rule, stream(), 6, 3)
    want = [0.2, 0, 0.2, 0.2, 0.2, 0.2]
    np.testing.assert_allclose(model.distribution([START, A]), want, rtol=1e-14)
