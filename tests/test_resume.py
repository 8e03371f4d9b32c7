"""A run that was stopped and resumed is, bit for bit, the run that was never stopped."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
import runs

import fastnplm
from fastnplm import NCE, NegativeSampling, Softmax
from fastnplm.errors import CheckpointError, SettingsError
from fastnplm.optimizer import DEFAULTS

LOSSES = {"softmax": Softmax(), "ns": NegativeSampling(3, shared=4), "nce": NCE(3)}
VARIANTS = {
    "plain": {},
    "decay": {"weight_decay": 0.05},
    "dropout": {
        "dropout": 0.3, "input_dropout": 0.2, "word_dropout": 0.1, "clip": 0.5,
        "weight_decay": 0.05,
    },
    "average": {"average": 0.2, "weight_decay": 0.05, "output_dropout": 0.2},
    "l1": {"l1": 0.002},
}  # fmt: skip
SHAPES = {
    "dropout": {"direct": True, "hashed": 50, "context": 3},
    "average": {"tied": True},
    "l1": {"tied": True, "direct": True, "hashed": 50, "context": 3},
}
COMMON = {"kernels": runs.kernels(), "quiet": True, "batch_size": 32, "epochs": 3, "seed": 5}


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Nobody pulls the plug here; waiting for the disk is what ``test_faults`` is about."""
    monkeypatch.setattr("fastnplm.folder.flush", lambda path: None)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.txt").write_text(runs.text(420, 40))
    (folder / "valid.txt").write_text(runs.text(90, 40, seed=1))
    with fastnplm.Corpus.prepare(folder / "train.txt", min_count=2) as corpus:
        yield corpus, folder / "valid.txt"


def interrupted(monkeypatch, model, corpus, after, **options):
    with runs.stopped_after(monkeypatch, after), pytest.raises(KeyboardInterrupt):
        fastnplm.train(model, corpus, **options)


def same(first, second):
    return all((v == second.parameters[k]).all() for k, v in first.parameters.items())


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(v, marks=[] if v in ("dropout", "average") else pytest.mark.slow)
        for v in VARIANTS
    ],
)
@pytest.mark.parametrize("rule", DEFAULTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_resumed_run_is_the_run_that_was_never_stopped(
    tmp_path, monkeypatch, texts, loss, rule, variant, request
):
    corpus, valid = texts
    options = COMMON | VARIANTS[variant] | {
        "loss": LOSSES[loss], "optimizer": rule, "valid": valid, "checkpoint_every": 7,
    }  # fmt: skip
    if loss == "softmax" and variant in ("decay", "l1"):
        options["label_smoothing"] = 0.1
    shape = SHAPES.get(variant, {})
    whole = runs.network(corpus, **shape)
    history = fastnplm.train(whole, corpus, out=tmp_path / "whole", **options)
    expected = runs.contents(tmp_path / "whole")
    seed = zlib.crc32(f"{loss} {rule} {variant}".encode())
    generator = np.random.default_rng(seed)
    for stop in range(request.config.getoption("stops")):
        out = tmp_path / f"stopped-{stop}"
        for after in generator.integers(1, history.updates // 2 + 2, size=2):
            model = runs.network(corpus, **shape)
            interrupted(monkeypatch, model, corpus, int(after), out=out, resume=True, **options)
        resumed = runs.network(corpus, **shape)
        again = fastnplm.train(resumed, corpus, out=out, resume=True, **options)
        assert same(whole, resumed), f"seed {seed}, stop {stop}"
        assert runs.without_clock(again.epochs) == runs.without_clock(history.epochs)
        assert (again.best_epoch, again.updates) == (history.best_epoch, history.updates)
        assert runs.contents(out) == expected


@pytest.mark.parametrize("schedule", ["plateau", "linear", "inverse"])
def test_the_plan_of_the_learning_rate_goes_on(tmp_path, monkeypatch, texts, schedule):
    corpus, valid = texts
    options = COMMON | {
        "schedule": schedule, "valid": valid, "checkpoint_every": 5, "epochs": 6, "lr": 0.05,
        "patience": 4,
    }  # fmt: skip
    whole = runs.network(corpus)
    history = fastnplm.train(whole, corpus, out=tmp_path / "whole", **options)
    for share in (0.3, 0.77):
        out = tmp_path / f"{share}"
        model = runs.network(corpus)
        stop = int(share * history.updates)
        interrupted(monkeypatch, model, corpus, stop, out=out, **options)
        resumed = runs.network(corpus)
        again = fastnplm.train(resumed, corpus, out=out, resume=True, **options)
        assert same(whole, resumed)
        rates = [record["learning_rate"] for record in again.epochs]
        assert rates == [record["learning_rate"] for record in history.epochs]
        assert runs.contents(out) == runs.contents(tmp_path / "whole")


@pytest.mark.parametrize("at", ["last batch of an epoch", "validation", "every batch"])
def test_a_stop_at_any_boundary_can_be_resumed(tmp_path, monkeypatch, texts, at):
    corpus, valid = texts
    options = COMMON | {"valid": valid, "checkpoint_every": 1000, "batch_size": 64, "epochs": 2}
    whole = runs.network(corpus)
    history = fastnplm.train(whole, corpus, out=tmp_path / "whole", **options)
    batches = history.updates // 2
    # One check stands before each epoch, one after each batch.
    checks = range(1, 2 * (batches + 1) + 2) if at == "every batch" else [batches + 1]
    for number in checks:
        out = tmp_path / f"stopped-{number}"
        model = runs.network(corpus)
        if at == "validation":
            with monkeypatch.context() as patch:
                patch.setattr("fastnplm.evaluation._report", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    fastnplm.train(model, corpus, out=out, **options)
        else:
            interrupted(monkeypatch, model, corpus, number, out=out, **options)
        resumed = runs.network(corpus)
        fastnplm.train(resumed, corpus, out=out, resume=True, **options)
        assert same(whole, resumed), number
        assert runs.contents(out) == runs.contents(tmp_path / "whole"), number


def interrupt(*_):
    raise KeyboardInterrupt


def test_threads_and_number_of_epochs_may_differ(tmp_path, monkeypatch, texts):
    corpus, _ = texts
    options = COMMON | {"checkpoint_every": 1000, "schedule": "constant"}
    one = runs.network(corpus)
    fastnplm.train(one, corpus, out=tmp_path / "one", threads=1, **options)
    other = runs.network(corpus)
    interrupted(monkeypatch, other, corpus, 9, out=tmp_path / "two", threads=3, **options)
    for epochs in (2, 3):
        other = runs.network(corpus)
        fastnplm.train(
            other, corpus, out=tmp_path / "two", threads=2, resume=True,
            **(options | {"epochs": epochs}),
        )  # fmt: skip
    assert same(one, other)


CHANGES = [
    ({"seed": 6}, "seed"), ({"batch_size": 16}, "batch_size"), ({"lr": 0.7}, "optimizer"),
    ({"optimizer": "sgd"}, "optimizer"), ({"loss": "ns"}, "model"), ({"dropout": 0.5}, "dropout"),
    ({"schedule": "linear"}, "schedule"), ({"valid": ["w1 w2"]}, "valid"),
    ({"buffer_mib": 0}, "buffer_mib"), ({"average": 0.1}, "average"),
]  # fmt: skip


def test_another_run_is_not_resumed(tmp_path, monkeypatch, texts):
    corpus, _ = texts
    options = COMMON | {"checkpoint_every": 1000}
    interrupted(monkeypatch, runs.network(corpus), corpus, 9, out=tmp_path / "a", **options)
    for change, name in CHANGES:
        model, other = runs.network(corpus), options | change
        with pytest.raises(CheckpointError, match=f"was made with {name} .*resume with the same"):
            fastnplm.train(model, corpus, out=tmp_path / "a", resume=True, **other)
    model = runs.network(corpus, hidden=9)
    with pytest.raises(CheckpointError, match="model"):
        fastnplm.train(model, corpus, out=tmp_path / "a", resume=True, **options)
    hashed = {"context": 3, "hashed": 9}
    model = runs.network(corpus, **hashed)
    interrupted(monkeypatch, model, corpus, 9, out=tmp_path / "b", **options)
    for name, value in {"hashed_lr": 0.1, "hashed_dropout": 0.5}.items():
        model, other = runs.network(corpus, **hashed), options | {name: value}
        with pytest.raises(CheckpointError, match=f"was made with {name} .*, this run has {value}"):
            fastnplm.train(model, corpus, out=tmp_path / "b", resume=True, **other)
    said = options | {"hashed_lr": 0.15, "hashed_dropout": 0.6}  # the defaults, by name
    fastnplm.train(runs.network(corpus, **hashed), corpus, out=tmp_path / "b", resume=True, **said)
    more = fastnplm.Corpus.prepare(["w1 w2 w3"], vocabulary=corpus.vocabulary)
    with more, pytest.raises(CheckpointError, match="corpus"):
        fastnplm.train(runs.network(corpus), more, out=tmp_path / "a", resume=True, **options)


def test_resume_begins_at_the_beginning_where_there_is_no_checkpoint(tmp_path, texts):
    corpus, _ = texts
    models = [runs.network(corpus), runs.network(corpus)]
    for model, resume in zip(models, (False, True), strict=True):
        fastnplm.train(model, corpus, out=tmp_path / f"{resume}", resume=resume, **COMMON)
    assert same(*models)
    with pytest.raises(SettingsError, match="resume"):
        fastnplm.train(runs.network(corpus), corpus, resume=True, **COMMON)


def test_overwriting_starts_without_the_old_checkpoints(tmp_path, monkeypatch, texts):
    corpus, _ = texts
    options = COMMON | {"checkpoint_every": 3}
    interrupted(monkeypatch, runs.network(corpus), corpus, 9, out=tmp_path / "a", **options)
    with pytest.raises(SettingsError, match="exists"):
        fastnplm.train(runs.network(corpus), corpus, out=tmp_path / "a", **options)
    fastnplm.train(runs.network(corpus), corpus, out=tmp_path / "a", overwrite=True, **COMMON)
    assert not (tmp_path / "a" / "checkpoints").exists()
    assert len((tmp_path / "a" / "history.jsonl").read_text().splitlines()) == 3


def test_a_finished_run_that_is_resumed_gives_the_same_answer(tmp_path, texts):
    corpus, valid = texts
    options = COMMON | {"checkpoint_every": 5, "valid": valid}
    first, second = runs.network(corpus), runs.network(corpus)
    history = fastnplm.train(first, corpus, out=tmp_path / "a", **options)
    again = fastnplm.train(second, corpus, out=tmp_path / "a", resume=True, **options)
    assert same(first, second)
    assert again == history


def test_a_second_interrupt_in_the_middle_of_a_batch_is_never_saved(tmp_path, monkeypatch, texts):
    corpus, _ = texts
    options = COMMON | {"checkpoint_every": 4}
    model = runs.network(corpus)
    step = fastnplm.Step._backward
    calls = []

    def fail(self, *arguments):
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(fastnplm.Step, "_backward", fail)
        with pytest.raises(KeyboardInterrupt):
            fastnplm.train(model, corpus, out=tmp_path / "a", **options)
    places = sorted(p.name for p in (tmp_path / "a" / "checkpoints").iterdir())
    assert places == [f"{4:012d}"]
    state = json.loads((tmp_path / "a" / "checkpoints" / places[0] / "state.json").read_text())
    assert state["updates"] == 4
    whole, resumed = runs.network(corpus), runs.network(corpus)
    fastnplm.train(whole, corpus, out=tmp_path / "b", **options)
    fastnplm.train(resumed, corpus, out=tmp_path / "a", resume=True, **options)
    assert same(whole, resumed)
