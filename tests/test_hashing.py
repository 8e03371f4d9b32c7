"""Hashed n-grams: which rows a context reads, what they add, how they descend, what is refused."""

import json

import numpy as np
import pytest
import runs

import fastnplm
from fastnplm import NCE, NPLM, Softmax, Step, Vocabulary, folder, hashing
from fastnplm.errors import ModelError, SettingsError
from fastnplm.optimizer import DEFAULTS

SIZE = 12
FORMS = {
    "plain": {},
    "direct": {"direct": True},
    "tied": {"tied": True},
    "tied, M = H": {"tied": True, "hidden": 4},
    "tied, direct": {"tied": True, "direct": True},
}


def _network(**settings):
    words = ["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(SIZE - 3)]
    vocabulary = Vocabulary.from_words(words, counts=[3, 0, 7, *range(30, 30 + SIZE - 3)])
    settings = {
        "context": 4, "dim": 4, "hidden": 5, "dtype": "float64", "seed": 5, "hashed": 7
    } | settings  # fmt: skip
    network = NPLM(vocabulary, **settings)
    generator = np.random.default_rng(1)
    network.output[:] = generator.normal(size=network.output.shape)
    if network.hashed:
        network.hashed_weight = generator.normal(size=network.hashed_weight.shape)
    return network


def _batch(seed, size=6, context=4):
    generator = np.random.default_rng(seed)
    contexts = generator.integers(0, SIZE, (size, context)).astype(np.int32)
    return contexts, generator.integers(2, SIZE, size).astype(np.int32)


def _by_hand(words, buckets):
    """The hash with Python's whole numbers: one n-gram."""
    state = len(words)
    for word in words:
        state = (state ^ int(word)) * 0x9E3779B97F4A7C15 % 2**64
        state ^= state >> 32
    return state % buckets


@pytest.mark.parametrize("buckets", [1, 7, 200_000, 2**31 - 1])
def test_the_rows_are_the_hash_of_the_last_words(buckets):
    contexts = np.random.default_rng(0).integers(0, 2**31 - 1, (50, 5)).astype(np.int32)
    found = hashing.rows_of(contexts, buckets)
    assert found.dtype == np.int32
    for context, rows in zip(contexts, found, strict=True):
        assert list(rows) == [_by_hand(context[-order:], buckets) for order in (2, 3)]


def test_the_hash_is_that_of_saved_models():
    found = hashing.rows_of(np.array([[9, 1, 2, 3], [9, 3, 2, 1]], np.int32), 1_000_000)
    assert found.tolist() == [[978899, 424357], [677676, 511961]]


def test_all_pairs_of_words_spread_evenly_over_the_rows():
    words = np.arange(400, dtype=np.int32)
    pairs = np.stack(np.meshgrid(words[:1], words, words, indexing="ij"), axis=-1).reshape(-1, 3)
    buckets = 1000
    for column in hashing.rows_of(pairs, buckets).T:
        found = np.bincount(column, minlength=buckets)
        expected = len(pairs) / buckets
        # chi-squared: mean buckets - 1, five standard deviations
        statistic = ((found - expected) ** 2 / expected).sum()
        assert abs(statistic - (buckets - 1)) < 5 * np.sqrt(2 * (buckets - 1))


@pytest.mark.parametrize("form", FORMS)
def test_their_rows_are_added_below_the_scores(form):
    network, without = _network(**FORMS[form]), _network(**FORMS[form])
    without.hashed_weight = np.zeros_like(without.hashed_weight)
    contexts, _ = _batch(2)
    width = network.hashed_weight.shape[1]
    assert width == (network.dim if network.tied else network.hidden)
    added = sum(
        network.hashed_weight[[_by_hand(context[-order:], 7) for context in contexts]]
        for order in (2, 3)
    )
    expected = without.forward(contexts).scores + added @ network.output[:, :width].T
    assert network.forward(contexts).scores == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rule", DEFAULTS)
@pytest.mark.parametrize("loss", [Softmax(), NCE(3)], ids=str)
def test_they_descend_on_the_sum_of_the_losses_whatever_the_optimiser(rule, loss):
    contexts, targets = _batch(4)
    changes = {}
    for name in ("sgd", rule):
        network, before = _network(tied=True), _network(tied=True)
        network.adopt(loss)
        step = Step(
            network, name, 6, hashed_lr=0.01, hashed_dropout=0, generator=np.random.default_rng(3)
        )
        step(contexts, targets, factor=0.5)
        changes[name] = network.hashed_weight - before.hashed_weight
        assert "hashed_weight" not in step.state.slots
    assert changes[rule] == pytest.approx(changes["sgd"], rel=1e-12, abs=1e-15)
    if isinstance(loss, Softmax):
        network = _network(tied=True)
        gradients = network.backward(network.forward(contexts), targets, np.ones(6))
        assert changes[rule] == pytest.approx(-0.005 * gradients.hashed_weight, rel=1e-9, abs=1e-12)


def test_the_batch_does_not_change_how_far_an_example_moves_its_rows():
    contexts, targets = _batch(5, size=1)
    moved = []
    for copies in (1, 4):
        network, before = _network(), _network()
        step = Step(network, "sgd", 4, hashed_lr=1e-6, hashed_dropout=0)
        step(np.repeat(contexts, copies, axis=0), np.repeat(targets, copies))
        moved.append(network.hashed_weight - before.hashed_weight)
    assert moved[1] == pytest.approx(4 * moved[0], rel=1e-6, abs=1e-15)


def test_weights_move_the_rows_by_the_effective_number_of_examples():
    contexts, targets = _batch(6, size=2)
    moved = {}
    for weights in ((1, 1), (5, 5), (1, 0), (1, 1e-12), (3, 1)):
        network, before = _network(), _network()
        step = Step(network, "sgd", 2, hashed_lr=1e-6, hashed_dropout=0)
        step(contexts, targets, np.array(weights, float))
        moved[weights] = network.hashed_weight - before.hashed_weight
        share = np.array(weights) / sum(weights)
        gradients = before.backward(before.forward(contexts), targets, share)
        expected = -1e-6 / (share @ share) * gradients.hashed_weight
        assert moved[weights] == pytest.approx(expected, rel=1e-4, abs=1e-12)
    assert moved[1, 1] == pytest.approx(moved[5, 5], rel=1e-9)
    assert moved[1, 0] == pytest.approx(moved[1, 1e-12], rel=1e-6, abs=1e-12)


def test_a_row_that_many_examples_read_takes_no_more_than_so_many_times_their_mean():
    contexts, targets = _batch(5, size=1)
    moved = {}
    for copies in (1, hashing.MOST, 5 * hashing.MOST):
        network, before = _network(), _network()
        step = Step(network, "sgd", copies, hashed_lr=1e-6, hashed_dropout=0)
        step(np.repeat(contexts, copies, axis=0), np.repeat(targets, copies))
        moved[copies] = network.hashed_weight - before.hashed_weight
    for copies in (hashing.MOST, 5 * hashing.MOST):
        expected = hashing.MOST * moved[1]
        assert moved[copies] == pytest.approx(expected, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("batch_size", [512, 2048])
def test_lines_of_a_word_in_large_batches_do_not_diverge(batch_size):
    """Half of all contexts are the same there: the beginning of a sentence."""
    words = np.random.default_rng(0).zipf(1.3, 6000)
    text = [f"w{word}" for word in words if word < 300]
    with fastnplm.Corpus.prepare(text, min_count=1) as corpus:
        found = {}
        for rows in (0, 100):
            model = NPLM(
                corpus.vocabulary, context=3, dim=30, hidden=30, tied=True, direct=True, hashed=rows
            )
            fastnplm.train(
                model, corpus, batch_size=batch_size, epochs=6, quiet=True, kernels=runs.kernels()
            )
            found[rows] = fastnplm.evaluate(model, corpus).perplexity
    assert found[100] < 1.1 * found[0], found


def test_clipping_comes_first():
    contexts, targets = _batch(3, size=1)
    moved = []
    for clip in (None, 0.01):
        network, before = _network(tied=True), _network(tied=True)
        gradients = network.backward(network.forward(contexts), targets)
        norm = np.linalg.norm(gradients.hashed_weight, axis=1).max()
        Step(network, "sgd", 1, clip=clip, hashed_dropout=0)(contexts, targets)
        moved.append(network.hashed_weight - before.hashed_weight)
    assert norm > 0.01
    assert moved[1] == pytest.approx(moved[0] * 0.01 / norm, rel=1e-9, abs=1e-15)


def test_dropped_words_are_not_in_them():
    contexts, targets = np.full((64, 4), 7, np.int32), np.full(64, 5, np.int32)
    network = _network(hashed=1000)
    network.hashed_weight = np.zeros_like(network.hashed_weight)
    step = Step(network, "sgd", 64, word_dropout=0.5, hashed_dropout=0)
    step(contexts, targets)
    moved = set(np.flatnonzero(network.hashed_weight.any(axis=1)))
    words = (0, 7)  # <unk> stands for a dropped word
    pairs = np.stack(np.meshgrid([7], words, words, words), axis=-1).reshape(-1, 4)
    assert moved == set(hashing.rows_of(pairs.astype(np.int32), 1000).ravel())


@pytest.mark.parametrize("loss", [Softmax(), NCE(3, shared=4)], ids=str)
def test_threads_do_not_change_a_bit(loss):
    found = []
    for threads in (1, 2):
        network = _network(dtype="float32", tied=True, direct=True, dim=32, hashed=40)
        network.adopt(loss)
        step = Step(
            network, "adam", 300, kernels=runs.kernels(), threads=threads, input_dropout=0.1,
            generator=np.random.default_rng(2),
        )  # fmt: skip
        for seed in range(3):
            step(*_batch(seed, size=300))
        found.append(network.hashed_weight)
    assert (found[0] == found[1]).all()


def test_those_left_out_neither_add_nor_move_and_the_others_grow():
    contexts = np.array([[3, 4, 5, 8]], np.int32)
    rows = hashing.rows_of(contexts, 7)[0]
    assert rows[0] != rows[1]
    seen = {}
    for seed in range(400):
        network, before = _network(tied=True), _network(tied=True)
        step = Step(
            network, "sgd", 1, hashed_dropout=0.25, hashed_lr=1e-9,
            generator=np.random.default_rng(seed),
        )  # fmt: skip
        loss = step(contexts, np.array([7], np.int32))
        kept = (network.hashed_weight[rows] != before.hashed_weight[rows]).any(axis=1)
        without = _network(tied=True)
        without.hashed_weight[rows] *= kept[:, None] / 0.75
        expected = without.backward(without.forward(contexts), [7]).losses[0]
        assert loss == pytest.approx(expected, rel=1e-9)
        seen[tuple(kept)] = seen.get(tuple(kept), 0) + 1
    shares = [sum(n for kept, n in seen.items() if kept[i]) / 400 for i in (0, 1)]
    assert shares == pytest.approx([0.75, 0.75], abs=5 * np.sqrt(0.25 * 0.75 / 400))


@pytest.mark.parametrize("kernels", ["numba", "native"])
def test_the_kernels_agree_on_a_step(kernels):
    try:
        fastnplm.kernels.load(kernels)
    except SettingsError as error:
        pytest.skip(f"no {kernels} kernels here: {error}")
    found = {}
    for name in ("reference", kernels):
        network = _network(dtype="float32", tied=True, direct=True)
        step = Step(network, "momentum", 6, kernels=name, generator=np.random.default_rng(2))
        for seed in range(5):
            step(*_batch(seed))
        found[name] = network.hashed_weight
    # eight times the largest difference seen, of values up to 1.7
    assert found[kernels] == pytest.approx(found["reference"], rel=2e-5, abs=2e-6)


@pytest.mark.parametrize("word", [SIZE, -1])
def test_an_id_outside_the_vocabulary_is_refused_and_nothing_moves(word):
    contexts, targets = _batch(1)
    contexts[2, 3] = word
    network = _network(dtype="float32", tied=True, direct=True)
    before = {name: value.copy() for name, value in network.parameters.items()}
    step = Step(network, "momentum", 6, kernels=runs.kernels())
    with pytest.raises(IndexError, match=str(word)):
        step(contexts, targets)
    with pytest.raises(IndexError, match=str(word)):
        network.forward(contexts)
    for name, value in before.items():
        assert (network.parameters[name] == value).all(), name


def test_they_learn_what_the_hidden_layer_cannot():
    """The next letter is the sum of the last two modulo 11: out of reach of one hidden unit."""
    generator, text = np.random.default_rng(0), []
    for _ in range(300):
        numbers = list(generator.integers(0, 11, 2))
        while len(numbers) < 12:
            numbers.append((numbers[-1] + numbers[-2]) % 11)
        text.append(" ".join(f"n{number}" for number in numbers))
    found = {}
    with fastnplm.Corpus.prepare(text, min_count=1) as corpus:
        for rows in (0, 1000):
            model = NPLM(corpus.vocabulary, context=3, dim=16, hidden=1, tied=True, hashed=rows)
            fastnplm.train(
                model, corpus, optimizer="adam", lr=0.01, epochs=20, batch_size=32, dropout=0.0,
                input_dropout=0.0, average=0.0, quiet=True, kernels=runs.kernels(),
            )  # fmt: skip
            found[rows] = fastnplm.evaluate(model, corpus).perplexity
    assert found[1000] < 2.5 < 6 < found[0], found


def test_saved_and_read_back(tmp_path):
    network = _network(tied=True, direct=True)
    network.save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["hashed"] == 7
    again = fastnplm.load(tmp_path / "model")
    assert (again.hashed_weight == network.hashed_weight).all()
    _network(hashed=0).save(tmp_path / "none")
    assert "hashed" not in json.loads((tmp_path / "none" / "config.json").read_text())
    assert fastnplm.load(tmp_path / "none").hashed == 0


@pytest.mark.parametrize("rows", [8, 2**30, -1, 1.5, True, "7"])
def test_a_table_that_the_file_does_not_hold_is_refused(tmp_path, rows):
    place = tmp_path / "model"
    _network().save(place)
    config = json.loads((place / "config.json").read_text()) | {"hashed": rows}
    (place / "config.json").write_text(json.dumps(config))
    (place / folder.MANIFEST).unlink()
    folder.write_manifest(place)
    words = "smaller than the model" if rows == 2**30 else "hashed"
    with pytest.raises(ModelError, match=words) as caught:
        fastnplm.load(place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"hashed": -1}, "hashed is -1; expected a whole number of rows"),
        ({"hashed": 2.5}, "hashed is 2.5; expected a whole number of rows"),
        ({"hashed": 2**31}, "hashed is 2147483648; expected a whole number of rows"),
        ({"context": 2}, "hashed n-grams need a context of at least 3 words"),
        ({"hidden": 0, "direct": True}, "hashed n-grams need .* hidden units"),
    ],
)
def test_sizes_that_mean_nothing_are_refused(sizes, words):
    with pytest.raises(SettingsError, match=words):
        _network(**sizes)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hashed_lr": 0}, "hashed_lr is 0; expected a positive number"),
        ({"hashed_lr": float("nan")}, "hashed_lr is nan; expected a positive number"),
        ({"hashed_dropout": 1.0}, "hashed_dropout is 1.0; expected a share"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, words):
    with pytest.raises(SettingsError, match=words):
        Step(_network(), "sgd", 2, **settings)
    with pytest.raises(SettingsError, match=words):
        fastnplm.train(_network(), ["w1 w2"], quiet=True, **settings)


@pytest.mark.parametrize("settings", [{"hashed_lr": 0.1}, {"hashed_dropout": 0.2}])
def test_settings_of_n_grams_need_a_model_that_has_them(settings):
    words = f"{next(iter(settings))} is .*, but the model has no hashed n-grams"
    with pytest.raises(SettingsError, match=words):
        fastnplm.train(_network_without(), ["w1 w2"], quiet=True, **settings)
    with pytest.raises(SettingsError, match=words):
        Step(_network_without(), "sgd", 2, **settings)


def _network_without():
    words = ["<unk>", "<s>", "</s>", "w1", "w2"]
    return NPLM(Vocabulary.from_words(words, counts=[1, 0, 1, 1, 1]), context=3, dim=2, hidden=2)
