"""Dropout, clipping, label smoothing and the penalties: each against its formula."""

import numpy as np
import pytest

from fastnplm import NPLM, Softmax, Step, Vocabulary
from fastnplm.errors import SettingsError
from fastnplm.kernels import reference
from fastnplm.layers import Mask
from fastnplm.loss import LabelSmoothing
from fastnplm.optimizer import LazyShrinkage, Optimizer, resolve, shrink

SIZE = 12
SHAPES = {
    "plain": {},
    "direct": {"direct": True},
    "direct alone": {"direct": True, "hidden": 0},
    "second layer": {"layers": 2},
    "tied": {"tied": True},
    "tied, M = H": {"tied": True, "hidden": 4},
    "tied, direct": {"tied": True, "direct": True},
    "tied, direct alone": {"tied": True, "direct": True, "hidden": 0},
    "hashed": {"hashed": 7},
    "hashed, tied, direct": {"hashed": 7, "tied": True, "direct": True},
}


def _network(**settings):
    words = ["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(SIZE - 3)]
    vocabulary = Vocabulary.from_words(words, counts=[3, 0, 7, *range(30, 30 + SIZE - 3)])
    settings = {"context": 3, "dim": 4, "hidden": 5, "dtype": "float64", "seed": 5} | settings
    network = NPLM(vocabulary, **settings)
    network.output[:] = np.random.default_rng(1).normal(size=network.output.shape)
    return network


def _batch(seed, size=6):
    generator = np.random.default_rng(seed)
    contexts = generator.integers(0, SIZE, (size, 3)).astype(np.int32)
    return contexts, generator.integers(2, SIZE, size).astype(np.int32)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_expectation(share):
    mask = Mask(share)
    draws, size = 400, 1000
    generator = np.random.default_rng(4)
    total = np.zeros(size)
    for _ in range(draws):
        values = np.ones(size)
        mask.draw(generator, values.shape)
        mask.apply(reference, values, 1)
        kept = values[values != 0]
        assert kept == pytest.approx(1 / (1 - mask.limit / 256), rel=1e-12)
        total += values
    dropped = mask.limit / 256
    assert dropped == pytest.approx(share, abs=1 / 512)
    deviation = np.sqrt(dropped / (1 - dropped) / draws)  # of the mean of one element
    assert total.mean() / draws == pytest.approx(1, abs=5 * deviation / np.sqrt(size))
    assert abs(total / draws - 1).max() < 6 * deviation


def test_a_mask_is_the_same_backward_and_for_the_same_seed():
    found = []
    for _ in range(2):
        mask, values, grads = Mask(0.5), np.ones((7, 9)), np.ones((7, 9))
        mask.draw(np.random.default_rng(8), values.shape)
        mask.apply(reference, values, 1)
        mask.apply(reference, grads, 1)
        assert (values == grads).all()
        found.append(values)
    assert (found[0] == found[1]).all()
    assert 0 < np.count_nonzero(found[0]) < found[0].size


def test_dropped_words_become_unknown():
    step = Step(_network(), "sgd", 4, word_dropout=0.25, generator=np.random.default_rng(2))
    contexts = np.full((20_000, 3), 7, np.int32)
    found = step._drop_words(contexts)
    assert set(np.unique(found)) == {0, 7}
    assert (contexts == 7).all()
    assert (found == 0).mean() == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / contexts.size))


def test_units_below_a_tied_output_are_dropped_forward_and_backward():
    """Of the projection's weights only rows of kept units change; half of them on the mean."""
    kept = []
    contexts, targets = _batch(3, size=1)
    for seed in range(200):
        network, before = _network(tied=True), _network(tied=True)
        generator = np.random.default_rng(seed)
        optimizer = Optimizer("sgd", lr=1.0)
        Step(network, optimizer, 1, output_dropout=0.5, generator=generator)(contexts, targets)
        changed = (network.projection_weight != before.projection_weight).all(axis=1)
        unchanged = (network.projection_weight == before.projection_weight).all(axis=1)
        assert (changed | unchanged).all()
        features = before.forward(contexts).features[0] * changed * 2
        scores = before.embedding @ features + before.output_bias
        p = np.exp(scores - scores.max())
        p /= p.sum()
        p[targets[0]] -= 1
        assert network.output_bias == pytest.approx(before.output_bias - p, rel=1e-9, abs=1e-12)
        kept.append(changed.mean())
    assert np.mean(kept) == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(200 * network.dim))


def test_clipping_shortens_the_gradient_below_the_output_layer():
    contexts, targets = _batch(3, size=1)
    changes = {}
    for clip in (None, 1e9, 0.01):
        network, before = _network(), _network()
        norm = np.linalg.norm(network.backward(network.forward(contexts), targets).hidden)
        Step(network, Optimizer("sgd", lr=1.0), 1, clip=clip)(contexts, targets)
        changes[clip] = {k: v - before.parameters[k] for k, v in network.parameters.items()}
    assert norm > 0.01
    for name, unclipped in changes[None].items():
        assert changes[1e9][name] == pytest.approx(unclipped, abs=0)
        above = name.startswith("output")  # its gradient is bounded by itself
        expected = unclipped if above else unclipped * (0.01 / norm)
        assert changes[0.01][name] == pytest.approx(expected, rel=1e-9, abs=1e-15), name


def test_smoothed_targets_have_the_gradient_of_the_smoothed_distribution():
    draws, share = 40_000, 0.3
    network, before = _network(), _network()
    contexts = np.tile(np.array([[3, 1, 5]], np.int32), (draws, 1))
    targets = np.full(draws, 4, np.int32)
    generator = np.random.default_rng(6)
    step = Step(
        network, Optimizer("sgd", lr=1.0), draws, label_smoothing=share, generator=generator
    )
    loss = step(contexts, targets)
    p = before.distribution(contexts[0])
    smoothed = np.full(SIZE, share / (SIZE - 1))
    smoothed[before.vocabulary.start_id] = 0
    smoothed[4] += 1 - share
    with np.errstate(divide="ignore"):
        surprise = np.where(smoothed > 0, -np.log(p), 0)
    spread = np.sqrt(smoothed @ surprise**2 - (smoothed @ surprise) ** 2)
    assert loss == pytest.approx(smoothed @ surprise, abs=5 * spread / np.sqrt(draws))
    gradient = before.output_bias - network.output_bias
    deviation = np.sqrt(smoothed * (1 - smoothed) / draws)
    assert (abs(gradient - (p - smoothed)) <= 5 * deviation + 1e-12).all()


def test_without_smoothing_the_targets_stay_and_nothing_is_drawn():
    generator = np.random.default_rng(6)
    targets = np.array([3, 4], np.int32)
    assert LabelSmoothing(0.0, _network().vocabulary).draw(generator, targets) is targets
    assert generator.random() == np.random.default_rng(6).random()


def test_shrinking_is_the_proximal_step():
    values = np.array([2.0, -2.0, 0.3, -0.3, 0.0])
    shrink(values, 0.5)
    assert values == pytest.approx([1.5, -1.5, 0, 0, 0], abs=0)


def test_lazy_shrinkage_equals_dense_shrinkage():
    generator = np.random.default_rng(3)
    table, dense = (np.linspace(-1, 1, 12).reshape(6, 2) for _ in range(2))
    lazy, nothing = LazyShrinkage(6), np.zeros((0, 6, 2))
    for update in range(60):
        ids = generator.integers(0, 6, 2).astype(np.int32)
        grads = generator.normal(size=(2, 2)) * (update < 30)
        rows = lazy.refresh(ids, table)
        reference.scatter_update(ids, grads, "sgd", np.array([0.1, 0, 0, 0, 0, 1]), table, nothing)
        lazy.step(rows, 0.005)
        np.subtract.at(dense, ids, 0.1 * grads)
        shrink(dense, 0.005)
    lazy.finish(table)
    assert table == pytest.approx(dense, rel=1e-12, abs=1e-15)
    assert (table == 0).any()
    assert (table != 0).any()


@pytest.mark.parametrize("penalty", ["weight_decay", "l1"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_with_a_penalty_is_the_dense_one(shape, penalty):
    rate, strength = 0.2, 0.02
    network, dense = _network(**SHAPES[shape]), _network(**SHAPES[shape])
    # the rate of the sum's descent that is as far as the mean's at ``rate``
    of_n_grams = {"hashed_lr": rate / 6, "hashed_dropout": 0.0} if network.hashed else {}
    step = Step(network, Optimizer("sgd", lr=rate, **{penalty: strength}), 6, **of_n_grams)
    for update in range(12):
        contexts, targets = _batch(update)
        factor = 1 / (1 + update)
        step(contexts, targets, factor=factor)
        share = np.full(6, 1 / 6)
        gradients = dense.backward(dense.forward(contexts), targets, share)
        before = {name: value.copy() for name, value in dense.parameters.items()}
        dense.apply(gradients, rate * factor)
        for name, value in dense.parameters.items():
            if name.endswith("bias"):
                continue
            if penalty == "weight_decay":
                value -= rate * factor * strength * before[name]
            else:
                value[:] = np.sign(value) * np.maximum(abs(value) - rate * factor * strength, 0)
    step.finish()
    for name, value in dense.parameters.items():
        assert network.parameters[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adagrad", "rmsprop", "adam"])
def test_lazy_updates_against_dense_ones(rule):
    """Equal for sgd and adagrad; for the others where every row is visited, else not."""
    optimizer = resolve(rule, lr=0.1)
    generator = np.random.default_rng(9)
    for seldom in (False, True):
        lazy, dense = (np.ones((5, 2)) for _ in range(2))
        lazy_slots, dense_slots = (np.zeros((optimizer.slots, 5, 2)) for _ in range(2))
        for update in range(1, 21):
            rows = generator.choice(5, 2, replace=False) if seldom else np.arange(5)
            grads = generator.normal(size=(len(rows), 2))
            hyper = optimizer.hyper(1.0, update)
            reference.scatter_update(rows.astype(np.int32), grads, rule, hyper, lazy, lazy_slots)
            whole = np.zeros((5, 2))
            whole[rows] = grads
            reference.dense_update(whole, rule, hyper, dense, dense_slots)
        same = lazy == pytest.approx(dense, rel=1e-12)
        assert same == (not seldom or rule in ("sgd", "adagrad"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: resolve("sgd", l1=-1), "l1 is -1.0; expected a number of at least 0"),
        (lambda: resolve("sgd", weight_decay=0.1, l1=0.1), "do not commute"),
        (lambda: Step(_network(), "sgd", 4, label_smoothing=1.0), "label_smoothing is 1.0"),
        (lambda: Step(_network(), "sgd", 4, clip=0), "clip is 0"),
        (lambda: Step(_network(tied=True), "sgd", 4, output_dropout=1.0), "output_dropout is 1.0"),
        (lambda: Step(_network(), "sgd", 4, output_dropout=0.1), "only a tied model has"),
        (lambda: Step(_network(**SHAPES["tied, M = H"]), "sgd", 4, output_dropout=0.1), "pass dro"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, message):
    with pytest.raises(SettingsError, match=message):
        make()


def test_the_loss_is_reported_as_trained():
    """Without regularisation a step reports the exact loss before its update."""
    network, before = _network(), _network()
    contexts, targets = _batch(1)
    step = Step(network, "sgd", 6)
    assert isinstance(network.loss, Softmax)
    expected = -np.mean(
        [np.log(before.distribution(c)[t]) for c, t in zip(contexts, targets, strict=True)]
    )
    assert step(contexts, targets) == pytest.approx(expected, rel=1e-9)
