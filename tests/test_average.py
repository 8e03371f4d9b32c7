"""The mean of the weights along a run: its formula, its bits after a stop, what it refuses."""

import numpy as np
import pytest
import runs

import fastnplm
from fastnplm import NPLM, Vocabulary
from fastnplm.average import Average, interval
from fastnplm.errors import SettingsError

COMMON = {"kernels": runs.kernels(), "quiet": True, "batch_size": 32, "seed": 5}


@pytest.fixture(scope="module")
def texts():
    lines = [runs.text(420, 40, seed=seed).splitlines() for seed in (0, 1)]
    with (
        fastnplm.Corpus.prepare(lines[0], min_count=1) as corpus,
        fastnplm.Corpus.prepare(lines[1], vocabulary=corpus.vocabulary) as valid,
    ):
        yield corpus, valid


def _network(words=7, **sizes):
    vocabulary = Vocabulary.from_words(
        ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(words - 3))],
        counts=[3, 0, 7, *range(words - 3, 0, -1)],
    )
    return NPLM(vocabulary, **({"context": 2, "dim": 3, "hidden": 4, "dtype": "float64"} | sizes))


def _closed_form(seen, share):
    """The mean of {update: weights} in float64: each for the time since the one before."""
    last, total, before = max(seen), 0.0, 0
    for update, weights in sorted(seen.items()):
        held = (update / last) ** (1 / share) - (before / last) ** (1 / share)
        total, before = total + held * np.float64(weights), update
    return total


@pytest.mark.parametrize("share", [0.05, 0.3, 0.99])
@pytest.mark.parametrize(
    "shape",
    [{}, {"direct": True}, {"tied": True}, {"tied": True, "direct": True},
     {"hashed": 9, "context": 3}],
)  # fmt: skip
def test_the_mean_is_the_integral_over_the_time_each_weight_was_held(share, shape):
    network = _network(**shape)
    mean = Average(network, share, batch_size=4000, batches=37)
    generator, seen = np.random.default_rng(1), {}
    for update in range(1, 120):
        for value in network.trainable.values():
            value += generator.normal(size=value.shape)
        if mean.due(update):
            mean.visit(update)
            seen[update] = {name: value.copy() for name, value in network.trainable.items()}
            for name, found in mean.values.items():
                held = {u: values[name] for u, values in seen.items()}
                assert found == pytest.approx(_closed_form(held, share), rel=1e-12, abs=1e-12)
    # every 16 batches, and at the end of each epoch of 37
    assert sorted(seen) == [16, 32, 37, 48, 64, 74, 80, 96, 111, 112]


def test_the_last_share_of_the_run_decides():
    """With a share of 0.1 the last tenth weighs 1 - 0.9 ** 10 = 0.65; with 0.5 it weighs 0.19."""
    for share, expected in ((0.1, 0.6513), (0.5, 0.19)):
        network = _network()
        mean = Average(network, share, batch_size=4000, batches=10_000)
        for update in range(1, 10_001):
            if mean.due(update):
                network.hidden_bias[:] = update > 9000
                mean.visit(update)
        assert mean.values["hidden_bias"] == pytest.approx(expected, abs=0.005)


def test_an_exchange_is_undone_by_another():
    network = _network(dtype="float32")
    mean = Average(network, 0.5, batch_size=4, batches=10)
    first = {name: value.copy() for name, value in network.trainable.items()}
    mean.exchange()
    assert all((value == 0).all() for value in network.trainable.values())
    mean.exchange()
    for name, value in network.trainable.items():
        assert (value == first[name]).all()
        assert (mean.values[name] == 0).all()


@pytest.mark.parametrize("loss", ["softmax", "ns"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("saved", [True, False])
def test_training_returns_and_saves_the_mean_with_lazy_rows_brought_up_to_date(
    texts, monkeypatch, tmp_path, loss, tied, valid, saved
):
    corpus, held_out = texts
    network = runs.network(corpus, tied=tied)
    seen, share = {}, 0.4
    visit = Average.visit

    def watched(self, updates):
        for decay in steps[0]._decays.values():
            assert (decay.seen == decay.total).all()
        seen[updates] = {name: value.copy() for name, value in self.network.trainable.items()}
        visit(self, updates)

    steps, begin = [], fastnplm.Step.__init__

    def noted(self, *arguments, **settings):
        begin(self, *arguments, **settings)
        steps.append(self)

    monkeypatch.setattr(Average, "visit", watched)
    monkeypatch.setattr(fastnplm.Step, "__init__", noted)
    out = {"out": tmp_path / "model"} if saved else {}
    history = fastnplm.train(
        network, corpus, valid=held_out if valid else None, average=share, epochs=3, loss=loss,
        weight_decay=0.3, lr=0.02, **COMMON, **out,
    )  # fmt: skip
    batches = -(-len(corpus.tokens) // 32)
    stopped = history.best_epoch * batches
    for name, value in network.trainable.items():
        held = {u: values[name] for u, values in seen.items() if u <= stopped}
        assert value == pytest.approx(_closed_form(held, share), rel=1e-5, abs=1e-6), name
        assert len(held) < 2 or not (value == held[stopped]).all()
    if valid:
        found = fastnplm.evaluate(network, held_out, kernels=runs.kernels()).perplexity
        assert found == pytest.approx(min(history.perplexities), rel=1e-6)
    if saved:
        again = fastnplm.load(tmp_path / "model")
        for name, value in network.parameters.items():
            assert (again.parameters[name] == value).all()


def test_training_itself_goes_on_from_the_weights_not_from_the_mean(texts):
    corpus, held_out = texts
    lines = []
    for average in (None, 0.4):
        history = fastnplm.train(
            runs.network(corpus), corpus, valid=held_out, average=average, epochs=4, **COMMON
        )
        lines.append([record["train_loss"] for record in history.epochs])
        perplexities = history.perplexities
    assert lines[0] == lines[1]
    assert perplexities != lines[0]


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_interrupt_while_the_mean_is_judged_loses_nothing(texts, tmp_path, monkeypatch, epoch):
    corpus, held_out = texts
    settings = {"valid": held_out, "average": 0.4, "epochs": 3, "schedule": "constant", **COMMON}
    kept = {"out": tmp_path / "stopped", "checkpoint_every": 10**6, "resume": True}
    whole = runs.network(corpus)
    expected = fastnplm.train(whole, corpus, out=tmp_path / "whole", **settings)
    evaluate, calls = fastnplm.evaluation.evaluate, []

    def interrupted(*arguments, **named):
        calls.append(1)
        if len(calls) == epoch:
            raise KeyboardInterrupt
        return evaluate(*arguments, **named)

    monkeypatch.setattr(fastnplm.evaluation, "evaluate", interrupted)
    stopped, plain = runs.network(corpus), runs.network(corpus)
    with pytest.raises(KeyboardInterrupt):
        fastnplm.train(stopped, corpus, **settings, **kept)
    monkeypatch.undo()
    assert list((tmp_path / "stopped" / "checkpoints").iterdir())
    # the model is left at its last batch, not at the mean
    fastnplm.train(plain, corpus, **settings | {"average": None, "valid": None, "epochs": epoch})
    for name, value in plain.parameters.items():
        assert (stopped.parameters[name] == value).all(), name
    resumed = runs.network(corpus)
    found = fastnplm.train(resumed, corpus, **settings, **kept)
    assert found.perplexities == expected.perplexities
    for name, value in whole.parameters.items():
        assert (resumed.parameters[name] == value).all(), name


def test_plateau_goes_on_from_the_best_mean(texts):
    corpus, held_out = texts
    history = fastnplm.train(
        runs.network(corpus), corpus, valid=held_out, average=0.2, epochs=8, lr=0.3,
        schedule="plateau", **COMMON,
    )  # fmt: skip
    rates = [record["learning_rate"] for record in history.epochs]
    worse = [not record["best"] for record in history.epochs]
    assert any(worse[:-1])
    for place, was_worse in enumerate(worse[:-1]):
        assert rates[place + 1] == rates[place] / (2 if was_worse else 1)


def test_visits_are_rare_where_a_step_is_quick_and_the_model_large():
    assert interval(_network(), 4000) == 16
    wide = _network(words=2000, hidden=4)
    assert interval(wide, 1) > 10 * interval(wide, 64) > 160


@pytest.mark.parametrize("bad", [1, -0.5, float("nan"), float("inf")])
def test_a_share_that_means_nothing_is_refused(bad):
    with pytest.raises(SettingsError, match=r"average is .*; expected a share below 1, or 0"):
        fastnplm.Settings(average=bad).checked()
