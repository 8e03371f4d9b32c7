"""Field cases of models, training and queries through the public API, with their right values."""

import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import fastnplm
from fastnplm import progress, training
from fastnplm.batches import Epoch
from fastnplm.vectors import Vectors

ROOT = Path(fastnplm.__file__).parents[1]
LOSSES = ["softmax", "ns", "nce"]
RULES = ["sgd", "momentum", "adagrad", "rmsprop", "adam"]
INT32_MIN, INT64_MAX = -(2**31), 2**63 - 1


def corpus_of(text, **options):
    """A Corpus of a text in memory."""
    return fastnplm.Corpus.prepare(text.splitlines(), **{"min_count": 1, **options})


def small(vocabulary, **options):
    return fastnplm.NPLM(vocabulary, **{"context": 2, "dim": 4, "hidden": 6, **options})


def train(model, corpus, **options):
    return fastnplm.train(model, corpus, **{"quiet": True, "threads": 1, **options})


def snapshot(model):
    return {name: value.copy() for name, value in model.parameters.items()}


def assert_same_bits(before, after):
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert value.tobytes() == np.ascontiguousarray(after[name]).tobytes(), name


# --- texts that are degenerate ------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\n\n   \n\t\n"])
def test_fc_07_nothing_to_train_on(tmp_path, text):
    (tmp_path / "t.txt").write_text(text)
    with corpus_of("a b c") as corpus:
        model = small(corpus.vocabulary)
        before = snapshot(model)
        for use in (
            lambda: train(model, tmp_path / "t.txt", out=tmp_path / "m"),
            lambda: train(model, corpus, valid=tmp_path / "t.txt", out=tmp_path / "m"),
            lambda: fastnplm.evaluate(model, tmp_path / "t.txt"),
        ):
            with pytest.raises(fastnplm.Error, match="no tokens"):
                use()
    assert_same_bits(before, snapshot(model))
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.txt"]


def test_fc_12_a_corpus_of_another_vocabulary():
    with corpus_of("\n".join(f"w{i}" for i in range(1000))) as big, corpus_of("a b c") as little:
        model = small(little.vocabulary)
        before = snapshot(model)
        for use in (
            lambda: train(model, big),
            lambda: train(model, little, valid=big),
            lambda: fastnplm.evaluate(model, big),
        ):
            with pytest.raises(fastnplm.Error) as caught:
                use()
            for part in (big.vocabulary.fingerprint[:12], little.vocabulary.fingerprint[:12]):
                assert part in str(caught.value)
        assert_same_bits(before, snapshot(model))


def test_fc_20_a_corpus_shorter_than_the_context():
    with corpus_of("a b c") as corpus:
        model = small(corpus.vocabulary, context=10)
        history = train(model, corpus, epochs=1)
        assert history.epochs[0]["tokens"] == 4
        report = fastnplm.evaluate(model, corpus)
        assert (report.tokens, report.sentences) == (4, 1)
        start, (a, b, c) = corpus.vocabulary.start_id, corpus.vocabulary.encode("a b c")
        contexts = np.array(
            [
                [start] * 10,
                [start] * 9 + [a],
                [start] * 8 + [a, b],
                [start] * 7 + [a, b, c],
            ]
        )
        targets = [a, b, c, corpus.vocabulary.end_id]
        nats = -sum(
            math.log(model.distribution(context)[target])
            for context, target in zip(contexts, targets, strict=True)
        )
        assert report.nats == pytest.approx(nats, rel=1e-6)


def test_fc_36_every_epoch_has_work():
    with corpus_of("a b c\nc b a") as corpus:
        model = small(corpus.vocabulary)
        seen = []
        for epochs in range(1, 6):
            model = small(corpus.vocabulary)
            history = train(model, corpus, epochs=epochs, batch_size=100_000, schedule="constant")
            assert history.updates == epochs
            assert [record["tokens"] for record in history.epochs] == [8] * epochs
            seen.append(model.embedding.tobytes())
        assert len(set(seen)) == 5  # each epoch changed the parameters
    sentences = (line.split() for line in ["a b c", "c b a"])
    history = train(small(corpus.vocabulary), sentences, epochs=5, batch_size=4)
    assert history.updates == 5 * 2
    assert [record["tokens"] for record in history.epochs] == [8] * 5


def test_fc_61_contexts_do_not_leak_between_sentences():
    with corpus_of("a b\nc d") as corpus:
        vocabulary = corpus.vocabulary
        positions = np.sort(np.concatenate(list(Epoch(len(corpus), 4))))
        contexts = np.empty((6, 3), np.int32)
        targets = np.empty(6, np.int32)
        fastnplm.kernels.load("auto").form_contexts(
            corpus.tokens, positions, vocabulary.start_id, vocabulary.end_id, contexts, targets
        )
        words = np.array(vocabulary.words)
        assert [(" ".join(words[c]), words[t]) for c, t in zip(contexts, targets, strict=True)] == [
            ("<s> <s> <s>", "a"),
            ("<s> <s> a", "b"),
            ("<s> a b", "</s>"),
            ("<s> <s> <s>", "c"),
            ("<s> <s> c", "d"),
            ("<s> c d", "</s>"),
        ]
        # So nothing that a sentence holds changes the probability of another.
        model = small(vocabulary, context=3)
        both = model.log_probabilities(corpus.tokens)
        np.testing.assert_allclose(both[3:], model.log_probabilities(corpus.tokens[3:]), rtol=1e-6)


# --- training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_fc_21_an_absurd_learning_rate(tmp_path, monkeypatch, loss):
    settings = {
        "optimizer": "sgd", "lr": 1e6, "loss": loss, "batch_size": 16, "epochs": 20,
        "schedule": "constant", "checkpoint_every": 50, "out": tmp_path / "m",
    }  # fmt: skip
    with corpus_of("a b c d\nd c b a\n" * 200) as corpus:
        model = small(corpus.vocabulary)
        with pytest.raises(fastnplm.Error, match="diverged") as caught:
            train(model, corpus, **settings)
        assert isinstance(caught.value, ArithmeticError)
        assert "update " in str(caught.value)
        assert "loss is " in str(caught.value)
        assert "learning rate 1e+06" in str(caught.value)
        # Found before anything of it was saved.
        assert not (tmp_path / "m").exists()
        # A run with a good beginning keeps it, and the message says where.
        plain = training.Step.__call__

        def breaking(step, *arguments, **options):
            loss = plain(step, *arguments, **options)
            return math.inf if step.state.updates == 75 else loss

        monkeypatch.setattr(training.Step, "__call__", breaking)
        model = small(corpus.vocabulary)
        with pytest.raises(fastnplm.Error, match="diverged at update 75") as caught:
            train(model, corpus, **(settings | {"lr": 0.1}))
    kept = sorted((tmp_path / "m" / "checkpoints").glob("[0-9]*"))
    assert [int(path.name) for path in kept] == [50]
    assert str(kept[-1]) in str(caught.value)
    for path in tmp_path.rglob("*.safetensors"):
        for name, value in load_file(path).items():
            assert np.isfinite(value).all(), (path, name)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", LOSSES)
def test_fc_25_examples_of_weight_zero_change_nothing(loss, rule):
    with corpus_of("a b c a c b\n" * 5) as corpus:
        model = small(corpus.vocabulary)
        other = small(corpus.vocabulary)
    for each in (model, other):
        each.adopt({"softmax": fastnplm.Softmax(), "ns": fastnplm.NegativeSampling(3),
                    "nce": fastnplm.NCE(3)}[loss])  # fmt: skip
    steps = [fastnplm.Step(each, rule, 8, threads=1) for each in (model, other)]
    contexts = np.arange(16, dtype=np.int32).reshape(8, 2) % 6
    targets = (np.arange(8, dtype=np.int32) % 4) + 2
    before = snapshot(model)
    slots = {name: value.copy() for name, value in steps[0].arrays().items()}
    assert steps[0](contexts, targets, weights=np.zeros(8)) == 0.0
    assert_same_bits(before, snapshot(model))
    assert_same_bits(slots, steps[0].arrays())
    # The next batch is as if there had been no empty one.
    losses = [step(contexts, targets) for step in steps]
    assert losses[0] == losses[1]
    assert math.isfinite(losses[0])
    assert_same_bits(snapshot(model), snapshot(other))
    # An ignored example among others is as if it were not there.
    weights = np.ones(8)
    weights[3] = 0
    kept = weights > 0
    if loss == "softmax":
        assert steps[0](contexts, targets, weights=weights) == pytest.approx(
            steps[1](contexts[kept], targets[kept]), rel=1e-6
        )


@pytest.mark.parametrize("loss", ["ns", "nce"])
def test_fc_30_probabilities_sum_to_one_after_a_sampled_loss(loss):
    with corpus_of("a b c a c b\n" * 300) as corpus:
        model = small(corpus.vocabulary)
        train(model, corpus, loss=loss, negatives=5, epochs=2, lr=0.01)
        report = fastnplm.evaluate(model, corpus)
        generator = np.random.default_rng(0)
        for context in generator.integers(0, len(corpus.vocabulary), (100, 2)):
            assert model.distribution(context).sum() == pytest.approx(1, abs=1e-5)
        logs = model.log_probabilities(corpus.tokens)
    assert report.perplexity == pytest.approx(math.exp(-logs.mean()), rel=1e-9)
    assert report.perplexity < 4.5  # better than the even guess among a, b, c and the end
    # What is not normalised has another name.
    assert model.raw_score("a b c") != model.score("a b c")
    assert report.log_normalizer_mean is not None


@pytest.mark.parametrize("loss", ["ns", "nce"])
@pytest.mark.parametrize("skip", [False, True])
def test_fc_31_noise_when_there_is_hardly_any_choice(loss, skip):
    if loss == "nce" and skip:
        loss = fastnplm.NCE(5)
    elif loss == "ns":
        loss = fastnplm.NegativeSampling(5, skip_target=skip)
    began = time.monotonic()
    with corpus_of("a\n" * 100) as corpus:
        model = small(corpus.vocabulary)
        history = train(model, corpus, loss=loss, negatives=5, epochs=2)
        perplexity = fastnplm.evaluate(model, corpus).perplexity
    assert time.monotonic() - began < 5
    assert all(math.isfinite(record["train_loss"]) for record in history.epochs)
    assert 1 <= perplexity < 4


@pytest.mark.parametrize("rule", ["sgd", "adagrad", "adam"])
def test_fc_32_rows_of_words_not_read_stay_as_they_are(rule):
    words = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(997))]
    vocabulary = fastnplm.Vocabulary.from_words(words, [1] * 1000)
    model = small(vocabulary)
    step = fastnplm.Step(model, rule, 4, threads=1)
    touched = np.array([10, 11, 12], np.int32)
    others = np.setdiff1d(np.arange(1000), touched)
    rows = model.embedding[others].copy()
    slots = [value for name, value in step.arrays().items() if name == "slots.embedding"]
    assert len(slots) == (rule != "sgd")
    states = [value[:, others].copy() for value in slots]
    moved = model.embedding[touched].copy()
    generator = np.random.default_rng(1)
    for _ in range(200):
        contexts = generator.choice(touched, (4, 2)).astype(np.int32)
        step(contexts, generator.integers(2, 1000, 4).astype(np.int32))
    assert model.embedding[others].tobytes() == rows.tobytes()
    for value, before in zip(slots, states, strict=True):
        assert np.ascontiguousarray(value[:, others]).tobytes() == before.tobytes()
        assert np.any(value[:, touched] != 0)
    assert not np.array_equal(model.embedding[touched], moved)


class _StopError(Exception):
    """Ends a run as a crash would."""


@pytest.mark.parametrize("share", [0.3, 0.77])
def test_fc_34_the_learning_rate_of_an_interrupted_run(tmp_path, monkeypatch, share):
    text = "a b c d e f\n" * 500
    schedule = fastnplm.Schedule("linear", floor=0.0001 / 0.1)
    settings = {
        "optimizer": "sgd", "lr": 0.1, "schedule": schedule, "epochs": 10, "batch_size": 128,
        "checkpoint_every": 1, "out": tmp_path / "m",
    }  # fmt: skip
    total = 10 * math.ceil(3500 / 128)
    rates, stop_at = [], None
    plain = training.Step.__call__

    def logging(step, contexts, targets, weights=None, factor=1.0):
        if len(rates) == stop_at:
            raise _StopError
        rates.append(step.optimizer.lr * factor)
        return plain(step, contexts, targets, weights, factor=factor)

    monkeypatch.setattr(training.Step, "__call__", logging)
    with corpus_of(text) as corpus:
        model = small(corpus.vocabulary)
        train(model, corpus, **(settings | {"out": None, "checkpoint_every": None}))
        whole, rates[:] = list(rates), []
        stop_at = round(share * total)
        with pytest.raises(_StopError):
            train(small(corpus.vocabulary), corpus, **settings)
        stop_at = None
        train(small(corpus.vocabulary), corpus, resume=True, **settings)
    assert len(whole) == total
    assert all(later <= earlier for earlier, later in itertools.pairwise(whole))
    step = whole[0] - whole[1]
    assert min(whole) >= 0.0001
    assert whole[-1] <= 0.0001 + 1.01 * step
    assert rates == whole


def test_fc_35_progress_is_honest(monkeypatch):
    generator = np.random.default_rng(5)
    left, lines = 12_345, []
    while left:
        count = min(left, int(generator.integers(1, 41)))
        lines.append(" ".join(f"w{i}" for i in generator.integers(0, 50, count)))
        left -= count
    reports = []

    class Watched(progress.Progress):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            assert self.seconds_left is None  # nothing to go by: no division by zero
            reports.append((self.fraction, 0, 0.0, None))

        def advance(self, tokens, seconds, loss):
            super().advance(tokens, seconds, loss)
            reports.append((self.fraction, self._done, self._seconds, self.seconds_left))

    monkeypatch.setattr(training, "Progress", Watched)
    with corpus_of("\n".join(lines)) as corpus:
        tokens = len(corpus)
        began = time.perf_counter()
        history = train(small(corpus.vocabulary), corpus, epochs=3, threads=4, kernels="auto")
        elapsed = time.perf_counter() - began
    assert tokens == 12_345 + len(lines)
    shares = [report[0] for report in reports]
    assert all(earlier <= later for earlier, later in itertools.pairwise(shares))
    assert shares[0] >= 0
    assert shares.count(1.0) == 1
    assert shares[-1] == 1.0
    assert reports[-1][1] == 3 * tokens
    assert all(report[3] >= 0 for report in reports if report[3] is not None)
    for record in history.epochs:
        assert record["tokens_per_second"] * record["seconds"] == pytest.approx(tokens, rel=0.05)
    assert sum(record["seconds"] for record in history.epochs) <= elapsed


REPRODUCED = """
    import hashlib, json, sys
    from pathlib import Path
    import numpy as np
    import fastnplm
    generator = np.random.default_rng(7)
    shares = 1 / np.arange(1, 2001)
    words = generator.choice(2000, 50_000, p=shares / shares.sum())
    Path("c.txt").write_text("\\n".join(
        " ".join(f"w{i}" for i in words[low:low + 20]) for low in range(0, len(words), 20)))
    corpus = fastnplm.Corpus.prepare("c.txt", out="corpus")
    model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=8, hidden=8, seed=7)
    fastnplm.train(model, corpus, valid="c.txt", out="model", epochs=2, seed=7, threads=1,
                   batch_size=2048, checkpoint_every=20, dropout=0.1, quiet=True)
    found = {}
    for path in sorted(p for p in Path(".").rglob("*") if p.is_file()):
        data = path.read_bytes()
        timed = ("seconds", "tokens_per_second", "valid_seconds")
        if path.name == "manifest.json":
            continue  # checksums of files that hold times
        if path.name == "history.jsonl":
            lines = [json.loads(line) for line in data.splitlines()]
            data = repr([{k: v for k, v in r.items() if k not in timed} for r in lines]).encode()
        if path.name == "state.json":
            state = json.loads(data)
            state["history"] = [{k: v for k, v in r.items() if k not in timed}
                                for r in state["history"]]
            data = repr({k: v for k, v in state.items() if k not in timed}).encode()
        found[str(path)] = hashlib.sha256(data).hexdigest()
    print(json.dumps(found))
"""


def test_fc_41_same_seed_same_bits(tmp_path):
    found = []
    for number, hash_seed in enumerate(["0", "1", "random"]):
        place = tmp_path / f"place {number}"
        place.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(REPRODUCED)],
            cwd=place, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1] == found[2]
    for name in ("corpus/vocabulary.tsv", "corpus/tokens.bin", "model/parameters.safetensors",
                 "model/history.jsonl"):  # fmt: skip
        assert name in found[0]
    assert any("checkpoints" in name for name in found[0])


@pytest.mark.parametrize("loss", LOSSES)
def test_threads_and_files_do_not_change_a_bit(tmp_path, loss):
    generator = np.random.default_rng(3)
    lines = [" ".join(f"w{i}" for i in generator.integers(0, 90, 12)) for _ in range(300)]
    (tmp_path / "whole.txt").write_text("\n".join(lines) + "\n")
    for number in range(3):
        part = lines[100 * number : 100 * number + 100]
        (tmp_path / f"{number}.txt").write_text("\n".join(part))  # the last line without its end
    digests = set()
    for threads in (1, 2):
        for source in (
            [tmp_path / "whole.txt"],
            [tmp_path / f"{number}.txt" for number in range(3)],
            [lines],
        ):
            with fastnplm.Corpus.prepare(*source, min_count=1) as corpus:
                model = small(corpus.vocabulary, dim=16, hidden=24)
                train(
                    model, corpus, loss=loss, negatives=5, epochs=1, threads=threads, seed=5,
                    dropout=0.2,
                )  # fmt: skip
                perplexity = fastnplm.evaluate(model, corpus, threads=threads).perplexity
            digest = hashlib.sha256(repr(perplexity).encode())
            for value in model.parameters.values():
                digest.update(np.ascontiguousarray(value))
            digests.add(digest.hexdigest())
    assert len(digests) == 1


# --- evaluation ---------------------------------------------------------------------------------


def test_fc_28_what_perplexity_counts(tmp_path):
    words = ["<unk>", "<s>", "</s>", "a", "b"]
    vocabulary = fastnplm.Vocabulary.from_words(words)
    model = small(vocabulary, seed=None, output_bias="zeros")
    model.output_bias = [math.log(1 / 8), -60, math.log(1 / 8), math.log(1 / 2), math.log(1 / 4)]
    (tmp_path / "t.txt").write_text("a b zzz\n")
    report = fastnplm.evaluate(model, tmp_path / "t.txt")
    assert (report.tokens, report.oov, report.sentences) == (4, 1, 1)
    assert report.perplexity == pytest.approx(2 ** (9 / 4), rel=1e-6)
    assert report.perplexity == pytest.approx(4.7568284600, rel=1e-6)
    assert report.perplexity_without_oov == pytest.approx(4.0, rel=1e-6)
    assert report.nats == pytest.approx(9 * math.log(2), rel=1e-6)
    assert model.score("a b zzz") == pytest.approx(-9 * math.log10(2), rel=1e-6)


def test_fc_29_perplexity_does_not_depend_on_the_cut(tmp_path, monkeypatch):
    text = "a\n" + "a b " * 5 + "\n" + "b b a " * 33 + "b\n"
    assert len(text) == 223
    (tmp_path / "t.txt").write_text(text)
    with fastnplm.Corpus.prepare(tmp_path / "t.txt", min_count=1) as corpus:
        model = small(corpus.vocabulary)
        train(model, corpus, epochs=3, batch_size=16, lr=0.01)
        exact = small(corpus.vocabulary, dtype="float64")
        for name, value in model.parameters.items():
            setattr(exact, name, value)
        found, cut = [], []
        for threads in (1, 2, 4):
            found.append(fastnplm.evaluate(model, corpus, threads=threads))
        # The cut into blocks is always the same one; another would change the rounding of
        # float32 products only.
        for block in (1, 7, 64, 4096):
            monkeypatch.setattr("fastnplm.evaluation.BLOCK", block)
            for threads in (1, 2, 4):
                cut.append(fastnplm.evaluate(exact, corpus, threads=threads))
        tokens = corpus.tokens.tolist()
    assert {report.tokens for report in found + cut} == {2 + 11 + 101}
    assert len({report.perplexity for report in found}) == 1
    first = cut[0].perplexity
    assert all(report.perplexity == pytest.approx(first, rel=1e-9) for report in cut)
    assert found[0].perplexity == pytest.approx(first, rel=1e-6)
    # By hand, one word at a time.
    nats, start = 0.0, [corpus.vocabulary.start_id] * 2
    context = start
    for token in tokens:
        nats -= math.log(exact.distribution(context)[token])
        context = start if token == corpus.vocabulary.end_id else [context[1], token]
    assert first == pytest.approx(math.exp(nats / 114), rel=1e-9)


# --- queries ------------------------------------------------------------------------------------


def test_fc_27_neighbours_with_a_row_of_zeros():
    words = ["<s>", "</s>", "z", "a", "b", "c"]
    rows = np.array([[0, 0], [0, 0], [0, 0], [1, 0], [0.9, 0.1], [-1, 0]], np.float32)
    vectors = Vectors(fastnplm.Vocabulary.from_words(words), rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(all="raise"):
            found = vectors.most_similar("a", topn=3)
            assert [word for word, _ in found] == ["b", "c"]
            assert found[0][1] == pytest.approx(0.9 / math.sqrt(0.82), rel=1e-6)
            assert found[1][1] == pytest.approx(-1)
            assert vectors.most_similar("a", topn=100) == found
            with pytest.raises(fastnplm.Error, match="zeros"):
                vectors.most_similar("z", topn=3)


@pytest.fixture(scope="module")
def abc():
    with corpus_of("a b c\n" * 50) as corpus:
        model = small(corpus.vocabulary)
        train(model, corpus, epochs=30, batch_size=32, lr=0.02)
    return model


@pytest.mark.parametrize("temperature", [0, 1e-8])
def test_fc_33_a_cold_temperature_is_greedy(abc, temperature):
    words = abc.generate(length=20, temperature=temperature, seed=3)
    assert words == ["a", "b", "c"]
    greedy, prompt = [], ""
    while (word := abc.predict(prompt, k=1)[0][0]) != "</s>":
        greedy.append(word)
        prompt = " ".join(greedy)
    assert words == greedy


@pytest.mark.parametrize("temperature", [-1, math.nan, -math.inf])
def test_fc_33_a_temperature_that_means_nothing(abc, temperature):
    with pytest.raises(fastnplm.Error, match="temperature"):
        abc.generate(length=20, temperature=temperature, seed=3)


def test_fc_33_an_infinite_temperature_draws_evenly(abc):
    firsts = [abc.generate(length=1, temperature=math.inf, seed=seed) for seed in range(2000)]
    counts = [firsts.count(words) for words in (["a"], ["b"], ["c"], [])]
    assert sum(counts) == 2000
    assert all(abs(count - 500) < 5 * math.sqrt(2000 * 3 / 16) for count in counts)


def test_fc_33_top_k(abc):
    assert abc.generate(length=20, top_k=1, seed=3) == ["a", "b", "c"]
    assert abc.generate(length=20, top_k=10**6, seed=3) == abc.generate(length=20, seed=3)
    assert len(abc.predict("a", k=10**6)) == len(abc.vocabulary) - 2
    assert abc.predict("a", k=1)[0][0] == "b"
    for use in (
        lambda: abc.generate(length=20, top_k=0, seed=3),
        lambda: abc.predict("a", k=0),
        lambda: abc.generate(top_p=0),
        lambda: abc.generate(top_p=math.nan),
        lambda: abc.generate(length=-1),
    ):
        with pytest.raises(fastnplm.Error, match=r"top_k|k is|top_p|length"):
            use()


def test_fc_33_top_p_draws_among_the_likeliest(abc):
    share = abc.predict("", k=1)[0][1]
    assert all(abc.generate(length=1, top_p=0.9 * share, seed=seed) == ["a"] for seed in range(50))


# --- ids and arrays from outside ----------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1, 100, 2**31, INT32_MIN, INT64_MAX])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_fc_43_ids_out_of_range_at_every_entry(bad, last):
    words = ["<s>", "</s>", *(f"w{i}" for i in range(98))]
    model = small(fastnplm.Vocabulary.from_words(words, [1] * 100))
    before = snapshot(model)
    place = 99_999 if last else 0
    ids = np.full(100_000, 5, np.int64)
    ids[place] = bad
    contexts = ids.reshape(-1, 2)
    good = model.forward([[1, 2]])
    step = fastnplm.Step(model, "sgd", 100_000, threads=1)
    narrow = np.full((50_000, 2), 5, np.int32)
    for use in (
        lambda: model.forward(contexts),
        lambda: model.backward(good, [bad]),
        lambda: model.distribution([5, bad] if last else [bad, 5]),
        lambda: model.log_probabilities(ids),
        lambda: step(contexts, narrow[:, 0]),
        lambda: step(np.repeat(narrow, 2, axis=0), ids),
        lambda: fastnplm.NGram.train(_encoded(model.vocabulary, ids), order=2),
    ):
        with pytest.raises(fastnplm.Error) as caught:
            use()
        assert str(bad) in str(caught.value) or "dtype" in str(caught.value)
    for use in (lambda: model.forward(contexts), lambda: model.log_probabilities(ids)):
        with pytest.raises(IndexError, match=rf"{bad} at position {place};.*100"):
            use()
    if -(2**31) <= bad < 2**31:
        with pytest.raises(IndexError, match=str(bad)):
            model.log_probabilities(ids.astype(np.int32))
    assert_same_bits(before, snapshot(model))
    with pytest.raises(fastnplm.Error):
        model.vectors.most_similar(bad)


def _encoded(vocabulary, tokens):
    class Stream:
        pass

    stream = Stream()
    stream.vocabulary, stream.tokens = vocabulary, tokens
    return stream


def _variants(plain):
    yield "float64", plain.astype(np.float64)
    yield "float16", plain.astype(np.float16).astype(np.float32).astype(np.float16)
    yield "opposite byte order", plain.astype(plain.dtype.newbyteorder())
    yield "column-major", np.asfortranarray(plain)
    wide = np.zeros((len(plain), 2 * plain.shape[1]), plain.dtype)
    wide[:, ::2] = plain
    yield "every second column", wide[:, ::2]
    yield "reversed", np.ascontiguousarray(plain[::-1])[::-1]
    yield "zero stride", np.broadcast_to(plain[:1], plain.shape)
    frozen = plain.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen
    raw = np.zeros(plain.nbytes + 1, np.uint8)
    odd = raw[1:].view(plain.dtype).reshape(plain.shape)
    odd[...] = plain
    yield "misaligned", odd


def test_fc_44_unusual_arrays_as_parameters():
    vocabulary = fastnplm.Vocabulary.from_words(["<s>", "</s>", *(f"w{i}" for i in range(48))])
    plain = np.random.default_rng(2).normal(size=(50, 8)).astype(np.float32)
    for name, value in _variants(plain):
        kept = value.tobytes()
        model = small(vocabulary, dim=8)
        model.embedding = value
        np.testing.assert_array_equal(model.embedding, value.astype(np.float32), err_msg=name)
        assert model.embedding.flags.writeable
        first = model.distribution([3, 4])
        model.embedding = value.astype(np.float32)
        np.testing.assert_array_equal(model.distribution([3, 4]), first)
        found = Vectors(vocabulary, value).most_similar("w1", topn=5)
        expected = Vectors(vocabulary, np.array(value, np.float32)).most_similar("w1", topn=5)
        assert [w for w, _ in found] == [w for w, _ in expected], name
        assert [c for _, c in found] == pytest.approx([c for _, c in expected], rel=1e-6)
        assert value.tobytes() == kept
    for wrong in (plain[:-1], plain.T, plain[0]):
        with pytest.raises(fastnplm.Error, match="shape"):
            small(vocabulary, dim=8).embedding = wrong


def test_fc_44_unusual_arrays_as_ids():
    vocabulary = fastnplm.Vocabulary.from_words(
        ["<s>", "</s>", *(f"w{i}" for i in range(48))], [1] * 50
    )
    model = small(vocabulary, context=8)
    plain = np.random.default_rng(2).integers(0, 50, (50, 8)).astype(np.int32)
    expected = model.forward(plain).scores
    for name, value in _variants(plain):
        kept = value.tobytes()
        if value.dtype.kind == "f":
            with pytest.raises(fastnplm.Error, match="whole numbers"):
                model.forward(value)
            continue
        found = model.forward(value).scores
        wanted = expected if name != "zero stride" else np.broadcast_to(expected[:1], found.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7, err_msg=name)
        assert value.tobytes() == kept
    step = fastnplm.Step(model, "sgd", 50, threads=1)
    targets = plain[:, 0].copy()
    targets.flags.writeable = plain.flags.writeable = False
    assert math.isfinite(step(plain, targets))
