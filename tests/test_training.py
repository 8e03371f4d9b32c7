"""What happens between epochs: the plateau schedule, patience, the best weights."""

import types

import numpy as np
import pytest
import runs

import fastnplm
from fastnplm import evaluation


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


@pytest.mark.parametrize(
    ("tokens", "epochs", "dropout"),
    [(50, 12, 0.0), (1999, 12, 0.0), (40_000, 12, 0.5), (10**6, 8, 0.4), (10**7, 5, 0.2),
     (10**9, 3, 0.1)],
)  # fmt: skip
def test_what_is_left_open_follows_the_corpus_size(tokens, epochs, dropout):
    found = fastnplm.Settings().fitted(tokens)
    assert found.epochs == epochs
    assert found.dropout == pytest.approx(dropout)
    assert found.input_dropout == pytest.approx(dropout * 0.6)
    given = fastnplm.Settings(epochs=2, dropout=0.0, input_dropout=0.7)
    assert given.fitted(tokens) == given


def test_a_run_takes_the_settings_of_its_corpus(corpus):
    history = fastnplm.train(
        runs.network(corpus), corpus, batch_size=64, quiet=True, kernels="reference"
    )
    assert len(history.epochs) == 12
