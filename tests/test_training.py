"""What happens between epochs: the plateau schedule, patience, the best weights."""

import dataclasses
import types

import numpy as np
import pytest
import runs

import fastnplm
from fastnplm import errors, evaluation, loss, plan

ADAM = fastnplm.Optimizer("adam", lr=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8)


@pytest.fixture
def corpus():
    with fastnplm.Corpus.prepare(runs.text(200, 20).splitlines(), min_count=1) as found:
        yield found


def _train(monkeypatch, corpus, perplexities, **settings):
    """Train with these validation perplexities in place of true ones.

    Returns the history and the embedding as it was at each validation.
    """
    given, tables = iter(perplexities), []

    def judge(network, *_, **__):
        tables.append(network.embedding.copy())
        return types.SimpleNamespace(perplexity=next(given))

    monkeypatch.setattr(evaluation, "evaluate", judge)
    model = runs.network(corpus)
    history = fastnplm.train(
        model, corpus, valid=corpus, optimizer="sgd", lr=0.1, batch_size=32, quiet=True,
        kernels="reference", epochs=len(perplexities), **settings,
    )  # fmt: skip
    return model, history, tables


def test_plateau_halves_the_rate_and_goes_back_to_the_best_weights(monkeypatch, corpus):
    perplexities = [9.0, 8.0, 8.5, 7.0, 7.5, 7.2]
    model, history, tables = _train(monkeypatch, corpus, perplexities, schedule="plateau")
    rates = [record["learning_rate"] for record in history.epochs]
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05, 0.025])
    assert history.best_epoch == 4
    assert (model.embedding == tables[3].astype(np.float32)).all()
    # After the third epoch the second's weights come back: the fourth is one epoch away from them.
    away = [abs(tables[3] - table).max() for table in tables[1:3]]
    assert away[0] < away[1]


def test_patience_stops_after_so_many_epochs_without_improvement(monkeypatch, corpus):
    perplexities = [9.0, 8.0, 8.5, 8.1, 7.0]
    model, history, tables = _train(monkeypatch, corpus, perplexities, patience=2)
    assert len(history.epochs) == 4
    assert history.best_epoch == 2
    assert (model.embedding == tables[1]).all()


@pytest.mark.parametrize("average", [None, 0.5])
def test_on_epoch_sees_each_record_and_may_end_the_run(monkeypatch, corpus, tmp_path, average):
    seen = []

    def judge(record):
        seen.append(record)
        return record["epoch"] == 2

    out = tmp_path / "model"
    _, history, _ = _train(
        monkeypatch, corpus, [9.0, 8.0, 7.0], on_epoch=judge, out=out, average=average
    )
    assert seen == history.epochs
    assert [record["epoch"] for record in seen] == [1, 2]
    assert history.best_epoch == 2
    assert len((out / "history.jsonl").read_text().splitlines()) == 2
    assert fastnplm.load(out).embedding.any()


def test_negatives_need_a_loss_that_draws_them():
    with pytest.raises(errors.SettingsError, match="negatives is 5, but no loss is named"):
        fastnplm.Settings(negatives=5).checked()


@pytest.mark.parametrize(
    ("batch_size", "rate"), [(1, 0.1 / 64), (32, 0.05), (64, 0.1), (200, 0.15)]
)
def test_the_rate_of_momentum_falls_with_the_batch(batch_size, rate):
    found = fastnplm.Settings(batch_size=batch_size).fitted(10**6, 1000)
    assert found.optimizer.lr == pytest.approx(rate)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("form", [{}, {"tied": True, "direct": True}])
def test_the_defaults_hold_for_the_smallest_batches(batch_size, form):
    text = runs.text(2600, 40).splitlines()
    with fastnplm.Corpus.prepare(text, min_count=1) as corpus:
        assert len(corpus.tokens) > plan.BY_HEART
        model = fastnplm.NPLM(corpus.vocabulary, dim=20, hidden=30, **form)
        history = fastnplm.train(
            model, corpus, valid=corpus, batch_size=batch_size, epochs=2, quiet=True,
            kernels="auto",
        )  # fmt: skip
    assert history.perplexities[-1] < 60


def test_a_run_without_an_average_is_the_one_that_was_saved_as_none():
    assert fastnplm.Settings(average=0.0).checked().fitted(5000, 9).identity()["average"] is None


def test_what_was_chosen_is_told_in_a_line():
    said = plan.told(fastnplm.Settings().fitted(10**6, 1000))
    assert said == (
        "softmax, momentum at 0.15, weight decay 0.0005, 8 epochs, batches of 128, dropout 0.25"
        " and 0.15, average 0.2"
    )
    said = plan.told(fastnplm.Settings(hashed_lr=0.1).fitted(10**6, 1000), hashed=7)
    assert said.endswith(", hashed n-grams at 0.1, 0.6 of them left out, average 0.2")
    said = plan.told(fastnplm.Settings().fitted(10**7, 10**5))
    assert said == (
        "nce with 512 negatives shared by 128, adam at 0.002 (constant), 5 epochs, batches of 512,"
        " dropout 0 and 0, average 0.2"
    )


def test_on_epoch_must_be_a_function(corpus):
    with pytest.raises(errors.SettingsError, match="on_epoch is 3; expected a function"):
        fastnplm.train(runs.network(corpus), corpus, on_epoch=3)


@pytest.mark.parametrize(
    ("tokens", "epochs", "dropout", "batch_size", "rate"),
    [(37_000, 12, 0.5, 64, 0.1), (125_000, 11, 0.4126, 128, 0.15), (10**6, 8, 0.25, 128, 0.15),
     (10**7, 5, 0.1, 128, 0.15), (10**9, 3, 0.1, 128, 0.15)],
)  # fmt: skip
def test_what_is_left_open_follows_the_corpus_size(tokens, epochs, dropout, batch_size, rate):
    found = fastnplm.Settings().fitted(tokens, 1000)
    assert found.epochs == epochs
    assert found.dropout == pytest.approx(dropout, rel=1e-3)
    assert found.input_dropout == pytest.approx(found.dropout * 0.6)
    assert found.batch_size == batch_size
    assert found.average == 0.2
    momentum = fastnplm.Optimizer("momentum", lr=rate, beta1=0.9, weight_decay=5e-4)
    assert found.optimizer == momentum
    given = fastnplm.Settings(
        epochs=2, dropout=0.0, input_dropout=0.7, loss=fastnplm.Softmax(), batch_size=3,
        average=0.5, optimizer=fastnplm.Optimizer("sgd", lr=0.5),
        schedule=fastnplm.Schedule("linear"),
    )  # fmt: skip
    assert given.fitted(tokens, 1000) == given


@pytest.mark.parametrize(
    ("tokens", "dropout", "batch_size"),
    [(37_000, 0.5, 64), (10**6, 0.25, 256), (4 * 10**6, 0.1416, 512), (10**7, 0.0, 512)],
)
def test_a_sampled_loss_has_defaults_of_its_own(tokens, dropout, batch_size):
    found = fastnplm.Settings(loss="ns").checked().fitted(tokens, 1000)
    assert found.dropout == pytest.approx(dropout, abs=0.001)
    assert found.batch_size == batch_size
    assert found.average == 0.2
    large = batch_size == 512
    assert found.optimizer == dataclasses.replace(ADAM, lr=0.002 if large else 0.001)
    assert found.schedule.name == ("constant" if large else "cosine")


@pytest.mark.parametrize(
    "named", [{"loss": "softmax"}, {"optimizer": "adam"}, {"average": 0}, {"schedule": "cosine"}]
)
def test_the_rate_falls_where_one_of_these_is_named(named):
    found = fastnplm.Settings(**{"loss": "ns"} | named).checked().fitted(10**7, 1000)
    assert found.schedule == fastnplm.Schedule("cosine")
    assert "constant" not in plan.told(found)


@pytest.mark.parametrize("tokens", [1, 50, 1999])
def test_a_very_small_text_is_learnt_as_it_is(tokens):
    found = fastnplm.Settings().fitted(tokens, 30)
    assert (found.epochs, found.dropout, found.input_dropout) == (12, 0.0, 0.0)
    assert (found.batch_size, found.average, found.optimizer) == (256, 0.0, ADAM)


def test_what_is_said_of_the_default_optimizer_is_kept():
    found = fastnplm.Settings(lr=0.01, weight_decay=0.0).checked().fitted(40_000, 1000)
    assert (found.optimizer.lr, found.optimizer.weight_decay) == (0.01, 0.0)
    found = fastnplm.Settings(l1=1e-4).checked().fitted(40_000, 1000)
    assert (found.optimizer.l1, found.optimizer.weight_decay) == (1e-4, 0.0)
    assert fastnplm.Settings(optimizer="adam").checked().fitted(40_000, 1000).optimizer == ADAM


@pytest.mark.parametrize(
    ("words", "chosen"),
    [(50_000, fastnplm.Softmax()), (50_001, fastnplm.NCE(512, shared=128))],
)
def test_the_loss_follows_the_vocabulary_where_none_is_named(words, chosen):
    assert fastnplm.Settings().fitted(10**6, words).loss == chosen
    named = fastnplm.Settings(loss="ns").checked().fitted(10**6, words)
    assert named.loss == fastnplm.NegativeSampling()


def test_a_large_vocabulary_is_trained_by_sampling(monkeypatch, corpus):
    monkeypatch.setattr(loss, "LARGE_VOCABULARY", len(corpus.vocabulary) - 1)
    model = runs.network(corpus)
    history = fastnplm.train(model, corpus, batch_size=64, epochs=1, quiet=True)
    assert history.epochs[0]["loss"] == "nce"
    assert model.loss == fastnplm.NCE(512, shared=128)


def test_a_run_takes_the_settings_of_its_corpus(corpus):
    history = fastnplm.train(
        runs.network(corpus), corpus, batch_size=64, quiet=True, kernels="reference"
    )
    assert len(history.epochs) == 12
