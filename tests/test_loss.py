"""The losses: gradients of the whole model by central differences, and what they converge to."""

import dataclasses

import numpy as np
import pytest

from fastnplm import NCE, NPLM, Corpus, NegativeSampling, Softmax, Step, Vocabulary, train
from fastnplm import loss as losses
from fastnplm.errors import SettingsError
from fastnplm.optimizer import Optimizer

LOSSES = [
    Softmax(),
    NegativeSampling(negatives=4),
    NegativeSampling(negatives=4, shared=3),
    NegativeSampling(negatives=4, skip_target=True),
    NCE(negatives=4),
    NCE(negatives=3, shared=5),
]


WEIGHTS = np.array([1.0, 2, 1, 0, 0.5, 1])
SHAPES = {
    "plain": {},
    "direct": {"direct": True},
    "direct alone": {"direct": True, "hidden": 0},
    "second layer": {"layers": 2},
    "direct, second layer": {"direct": True, "layers": 2},
    "tied": {"tied": True},
    "tied, M = H": {"tied": True, "hidden": 4, "layers": 2},
    "tied, direct": {"tied": True, "direct": True},
    "tied, direct, M = H, second layer": {"tied": True, "direct": True, "hidden": 4, "layers": 2},
    "tied, direct alone": {"tied": True, "direct": True, "hidden": 0},
    "hashed": {"hashed": 7},
    "hashed, direct": {"hashed": 7, "direct": True},
    "hashed, tied, direct": {"hashed": 7, "tied": True, "direct": True},
    "hashed, tied, M = H, second layer": {"hashed": 7, "tied": True, "hidden": 4, "layers": 2},
}


def _network(loss, shape="plain", context=3, size=9):
    words = ["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(size - 3)]
    counts = [3, 0, 7, *range(20, 20 + size - 3)]
    vocabulary = Vocabulary.from_words(words, counts=counts)
    settings = {"dim": 4, "hidden": 5, "dtype": "float64", "seed": 5} | SHAPES[shape]
    network = NPLM(vocabulary, context, **settings)
    network.output[:] = np.random.default_rng(1).normal(size=network.output.shape)
    network.adopt(loss)
    return network


def _step(network, rate, dropout=0.0):
    # The hashed n-grams descend on the mean times the effective number of examples.
    examples = WEIGHTS.sum() ** 2 / (WEIGHTS @ WEIGHTS)
    of_n_grams = {"hashed_lr": rate / examples, "hashed_dropout": dropout} if network.hashed else {}
    return Step(
        network,
        Optimizer("sgd", lr=rate),
        batch_size=8,
        generator=np.random.default_rng(7),
        dropout=dropout,
        input_dropout=dropout,
        word_dropout=dropout,
        **of_n_grams,
    )


@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_step_follows_the_gradient(loss, shape, dropout):
    generator = np.random.default_rng(2)
    contexts = generator.integers(0, 9, (6, 3)).astype(np.int32)
    contexts[0] = 5  # the same word at every place of one context
    targets = generator.integers(2, 9, 6).astype(np.int32)

    def mean_loss(name=None, index=None, change=0.0):
        network = _network(loss, shape)
        if name is not None:
            network.parameters[name].flat[index] += change
        return _step(network, 1e-30, dropout)(contexts, targets, WEIGHTS)

    before, after = _network(loss, shape), _network(loss, shape)
    rate = 1e-6
    _step(after, rate, dropout)(contexts, targets, WEIGHTS)
    for name, value in before.parameters.items():
        gradient = (value - after.parameters[name]) / rate
        for index in generator.choice(value.size, min(value.size, 8), replace=False):
            width = 1e-4
            numeric = (mean_loss(name, index, width) - mean_loss(name, index, -width)) / (2 * width)
            assert gradient.flat[index] == pytest.approx(numeric, rel=1e-6, abs=2e-8)


def test_examples_of_weight_zero_change_nothing():
    for loss in LOSSES:
        for rule in ("sgd", "momentum", "adagrad", "rmsprop", "adam"):
            network = _network(loss)
            step = Step(network, Optimizer(rule, lr=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8), 8)
            before = {name: value.copy() for name, value in network.parameters.items()}
            contexts, targets = np.full((8, 3), 4, np.int32), np.full(8, 5, np.int32)
            assert step(contexts, targets, weights=np.zeros(8)) == 0.0
            for name, value in network.parameters.items():
                assert (value == before[name]).all()
            assert all((slots == 0).all() for slots in step.state.slots.values())
            assert np.isfinite(step(contexts, targets))


def test_a_change_of_loss_keeps_the_probabilities():
    network = _network(Softmax())
    contexts = np.array([[3, 4, 5], [1, 1, 6]])
    before = [network.distribution(context) for context in contexts]
    for loss in (NegativeSampling(7, power=0.6), NCE(3), NegativeSampling(2), Softmax()):
        network.adopt(loss)
        for context, expected in zip(contexts, before, strict=True):
            assert network.distribution(context) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def _tiny_language(sentences=1500):
    """A language of 17 words with known bigram probabilities; returns (text, next-word table)."""
    generator = np.random.default_rng(8)
    table = generator.dirichlet(np.full(18, 0.4), size=18)  # 17 words, then the sentence's end
    table[:, 17] = 0.08
    table[:, :17] *= (0.92 / table[:, :17].sum(axis=1))[:, None]
    lines = []
    for _ in range(sentences):
        word, words = 17, []
        while True:
            word = generator.choice(18, p=table[word])
            if word == 17:
                break
            words.append(f"v{word}")
        if words:
            lines.append(" ".join(words))
    return lines


def _distance(model, corpus, uncorrected=False):
    """Mean total variation between the model and the training text's own bigram shares."""
    size = len(model.vocabulary)
    tokens = np.asarray(corpus.tokens).astype(int)
    before = np.where(np.r_[2, tokens[:-1]] == 2, 1, np.r_[2, tokens[:-1]])
    table = np.zeros((size, size))
    np.add.at(table, (before, tokens), 1)
    seen = table.sum(axis=1)
    if uncorrected:
        model.loss = Softmax()
    found = 0.0
    for word in np.flatnonzero(seen):
        p = model.distribution([word])
        found += seen[word] * 0.5 * np.abs(p - table[word] / seen[word]).sum()
    return found / seen.sum()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ns", "nce"])
def test_a_sampled_loss_recovers_a_tiny_language(name):
    corpus = Corpus.prepare(_tiny_language(), min_count=1)
    loss = dataclasses.replace(losses.resolve(name), negatives=100, power=1.0)
    model = NPLM(corpus.vocabulary, context=1, dim=20, hidden=60, seed=1)
    train(model, corpus, loss=loss, optimizer="adam", lr=0.01, epochs=30, batch_size=256,
          dropout=0, input_dropout=0, quiet=True)  # fmt: skip
    assert _distance(model, corpus) <= 0.02
    if name == "ns":  # a skewed q: without its correction the same model is far off
        assert _distance(model, corpus, uncorrected=True) >= 0.1


def test_many_negatives_are_shared_unless_it_is_said_otherwise():
    assert [NegativeSampling(k).block for k in (1, 10, 19, 20, 500)] == [1, 1, 1, 32, 32]
    assert [NCE(500, shared=n).block for n in (1, 7, 512)] == [1, 7, 512]
    resolved = losses.resolve("ns", negatives=100)
    assert resolved.block == 32
    assert losses.from_config(losses.to_config(resolved)) == resolved


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NegativeSampling(0), "negatives is 0; expected at least 1"),
        (lambda: NCE(1.5), "negatives is 1.5"),
        (lambda: NegativeSampling(float("nan")), "negatives is nan; expected at least 1"),
        (lambda: NCE(float("inf")), "negatives is inf; expected at least 1"),
        (lambda: NCE(5, shared=float("nan")), "shared is nan; expected at least 1"),
        (lambda: NegativeSampling(5, shared=0), "shared is 0"),
        (lambda: NegativeSampling(5, power=float("inf")), "power is inf"),
        (lambda: losses.resolve("hinge"), "loss is 'hinge'; expected one of softmax, ns, nce"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, message):
    with pytest.raises(SettingsError, match=message):
        make()


def test_a_loss_survives_its_config():
    for loss in LOSSES:
        assert losses.from_config(losses.to_config(loss)) == loss
