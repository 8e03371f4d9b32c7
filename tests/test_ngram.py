"""The count model as users meet it: trained on a corpus, asked, saved, exported."""

from __future__ import annotations

import json
import math
import shutil
import time

import numpy as np
import pytest

import fastnplm
from fastnplm.corpus import Corpus
from fastnplm.errors import ModelError, SettingsError
from fastnplm.evaluation import evaluate
from fastnplm.folder import MANIFEST, render
from fastnplm.ngram import SMOOTHINGS, NGram
from fastnplm.vocabulary import Vocabulary

SENTENCES = ["我 想 喝 茶", "我 想 吃 苹果", "他 想 喝 咖啡", "我 爱 茶", ""]


@pytest.fixture
def corpus():
    with Corpus.prepare(SENTENCES, min_count=1) as corpus:
        yield corpus


@pytest.fixture
def model(corpus):
    return NGram.train(corpus, order=3)


def test_predictions_are_the_distribution_in_order(model):
    vocabulary = model.vocabulary
    shares = model.distribution([vocabulary.start_id, *vocabulary.encode("我 想")])
    found = model.predict("我 想", k=3)
    assert found[0][0] in ("喝", "吃")
    assert [p for _, p in found] == sorted((shares[vocabulary[w]] for w, _ in found), reverse=True)
    everything = model.predict("我 想", k=1000)
    assert len(everything) == len(vocabulary) - 2
    assert not {"<s>", "<unk>"} & {word for word, _ in everything}
    with_unknown = model.predict("我 想", k=1000, unk=True)
    assert sum(p for _, p in with_unknown) == pytest.approx(1, abs=1e-12)
    assert {word for word, _ in with_unknown} == set(vocabulary.words) - {"<s>"}


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_a_senseless_k_is_refused(model, k):
    with pytest.raises(SettingsError, match="k is"):
        model.predict("我", k=k)


def test_the_score_is_log10_with_the_sentence_end(model):
    ids = [*model.vocabulary.encode("我 没有 茶"), model.vocabulary.end_id]
    want = 0.0
    context = [model.vocabulary.start_id]
    for word in ids:
        want += math.log10(model.distribution(context)[word])
        context.append(word)
    assert model.score("我 没有 茶") == pytest.approx(want, rel=1e-12)
    assert model.score("") == pytest.approx(
        math.log10(model.distribution([model.vocabulary.start_id])[model.vocabulary.end_id])
    )


def test_it_is_evaluated_like_every_model(model):
    report = evaluate(model, SENTENCES[:2])
    total = sum(model.score(sentence) for sentence in SENTENCES[:2])
    assert (report.tokens, report.sentences, report.oov) == (10, 2, 0)
    assert report.perplexity == pytest.approx(10 ** (-total / 10), rel=1e-12)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 4])
def test_a_saved_model_comes_back(tmp_path, corpus, smoothing, order):
    model = NGram.train(corpus, order, smoothing)
    model.save(tmp_path / "model")
    found = fastnplm.load(tmp_path / "model")
    assert isinstance(found, NGram)
    assert (found.order, found.smoothing) == (order, smoothing)
    assert found.vocabulary == model.vocabulary
    stream = corpus.tokens
    assert (found.log_probabilities(stream) == model.log_probabilities(stream)).all()
    assert (found.distribution([1, 3, 4]) == model.distribution([1, 3, 4])).all()
    for left, right in zip(*(m.backoff.context_counts(stream) for m in (found, model)),
                           strict=True):  # fmt: skip
        assert (left == right).all()
    found.save(tmp_path / "again")
    for name in ("config.json", "ngrams.safetensors", "vocabulary.tsv"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def test_a_loaded_model_can_be_saved_over_itself(tmp_path, model):
    model.save(tmp_path / "model")
    found = NGram.load(tmp_path / "model")
    found.save(tmp_path / "model")
    assert NGram.load(tmp_path / "model").score("我 想") == model.score("我 想")
    with pytest.raises(ModelError, match="exists already"):
        found.save(tmp_path / "model", overwrite=False)


def test_the_tables_are_mapped_and_read_only(tmp_path, model):
    model.save(tmp_path / "model")
    tables = NGram.load(tmp_path / "model").backoff
    for array in (*tables.keys[1:], *tables.log_probability, *tables.log_backoff):
        assert not array.flags.writeable
        assert not array.flags.owndata


def test_any_safetensors_reader_opens_the_tables(tmp_path, model):
    from safetensors.numpy import load_file

    model.save(tmp_path / "model")
    found = load_file(tmp_path / "model" / "ngrams.safetensors")
    assert sorted(found) == sorted(
        [f"{name}.{k}" for name in ("counts", "log_backoff") for k in (1, 2)]
        + [f"log_probability.{k}" for k in (1, 2, 3)]
        + ["keys.2", "keys.3"]
    )
    assert (found["keys.3"] == model.backoff.keys[2]).all()


def rewrite(folder, name, change):
    """Change a file and put the manifest right, so that only the reader's own checks are left."""
    import hashlib

    path = folder / name
    data = change(path.read_bytes())
    path.write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / MANIFEST).write_text(render(manifest["files"]))


def header(change):
    """A change to the JSON header of a safetensors file."""

    def apply(data):
        size = int.from_bytes(data[:8], "little")
        head = json.loads(data[8 : 8 + size])
        change(head)
        text = json.dumps(head).encode()
        return len(text).to_bytes(8, "little") + text + data[8 + size :]

    return apply


def setting(name, value):
    def apply(data):
        return json.dumps(json.loads(data) | {name: value}).encode()

    return apply


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", setting("format", 2), "format 2"),
        ("config.json", setting("kind", "nplm"), "kind 'nplm'"),
        ("config.json", setting("vocabulary_fingerprint", "0"), "not the one"),
        ("config.json", setting("ngrams", []), "damaged"),
        ("config.json", setting("ngrams", [12, -1]), "damaged"),
        ("config.json", setting("ngrams", [13, 1]), "damaged"),
        ("config.json", setting("ngrams", "x"), "damaged"),
        ("config.json", setting("counts", 1), "damaged"),
        ("config.json", setting("counts", False), "arrays that config.json describes"),
        ("ngrams.safetensors", lambda data: b"", "not a safetensors"),
        ("ngrams.safetensors", lambda data: b"\xff" * 8 + data[8:], "arrays that"),
        ("ngrams.safetensors", lambda data: data[:200], "arrays that"),
        ("ngrams.safetensors", lambda data: data[:-8], "numbers of type"),
        ("ngrams.safetensors", header(lambda h: h.pop("keys.2")), "arrays that"),
        ("ngrams.safetensors", header(lambda h: h.update({"keys.2": 3})), "keys.2 is not"),
        ("ngrams.safetensors", header(lambda h: h["keys.2"].pop("data_offsets")), "keys.2 is not"),
        (
            "ngrams.safetensors",
            header(lambda h: h["keys.2"].update(data_offsets=[-8, 0])),
            "keys.2 is not",
        ),
        (
            "ngrams.safetensors",
            header(lambda h: h["keys.2"].update(data_offsets=["a", "b"])),
            "keys.2 is not",
        ),
        ("ngrams.safetensors", header(lambda h: h["keys.2"].update(dtype="F64")), "keys.2 is not"),
        ("ngrams.safetensors", header(lambda h: h["keys.2"].update(shape=[1])), "keys.2 is not"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path, model, name, change, message):
    model.save(tmp_path / "model")
    rewrite(tmp_path / "model", name, change)
    with pytest.raises(ModelError, match=message):
        NGram.load(tmp_path / "model")


def test_what_is_no_model_is_refused(tmp_path, model):
    with pytest.raises(ModelError, match="no such folder"):
        fastnplm.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="not a model folder"):
        fastnplm.load(tmp_path / "empty")
    model.save(tmp_path / "model")
    rewrite(tmp_path / "model", "config.json", setting("kind", "other"))
    with pytest.raises(ModelError, match="kind is 'other'"):
        fastnplm.load(tmp_path / "model")
    shutil.copy(tmp_path / "model" / MANIFEST, tmp_path / "empty")
    with pytest.raises(ModelError, match="missing"):
        NGram.load(tmp_path / "empty")


def test_arpa_there_and_back(tmp_path, corpus, model):
    model.write_arpa(tmp_path / "model.arpa")
    found = NGram.read_arpa(tmp_path / "model.arpa")
    assert found.vocabulary.words == model.vocabulary.words
    assert found.score("我 想 喝 茶") == pytest.approx(model.score("我 想 喝 茶"), rel=1e-10)
    same = NGram.read_arpa(tmp_path / "model.arpa", corpus.vocabulary)
    assert same.vocabulary is corpus.vocabulary
    same.save(tmp_path / "model")
    again = fastnplm.load(tmp_path / "model")
    assert again.backoff.counts is None
    assert again.predict("我", 3) == same.predict("我", 3)
    with pytest.raises(ModelError, match="comes from an ARPA file"):
        again.backoff.context_counts(corpus.tokens)


@pytest.mark.parametrize("order", [0, -1, 65, 2.5, True])
def test_an_order_that_does_not_exist_is_refused(corpus, order):
    with pytest.raises(SettingsError, match="order="):
        NGram.train(corpus, order=order)


def test_an_unknown_smoothing_is_refused(corpus):
    with pytest.raises(SettingsError, match="choose from kneser-ney, katz, add-one"):
        NGram.train(corpus, smoothing="magic")


def test_tables_of_another_size_are_refused(model):
    with pytest.raises(ModelError, match="the vocabulary has 3"):
        NGram(Vocabulary.from_words(["<unk>", "<s>", "</s>"]), model.backoff, "kneser-ney")


def test_a_vocabulary_without_unk_works():
    vocabulary = Vocabulary.from_words(["b", "<s>", "a", "</s>"])
    with Corpus.prepare(["a b", "b a a"], vocabulary=vocabulary) as corpus:
        model = NGram.train(corpus, order=2)
    shares = model.distribution([vocabulary.start_id])
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    assert shares[vocabulary.start_id] == 0
    assert len(model.predict("a", k=10)) == 3


def test_how_well_contexts_are_known(model):
    vocabulary = model.vocabulary
    text = "我 想 茶"
    tokens = np.append(vocabulary.encode(text), vocabulary.end_id)
    lengths, occurrences = model.backoff.context_counts(tokens)
    # Before 我: <s>, 4 sentences (a blank line is none). Before 想: <s> 我, 3 times. Before 茶:
    # 我 想, twice. Before </s>: 想 茶 never, but 茶 twice.
    assert lengths.tolist() == [1, 2, 2, 1]
    assert occurrences.tolist() == [4, 3, 2, 2]
    for place in range(4):
        context = [vocabulary.start_id, *tokens[:place]]
        assert model.backoff.context_count(context) == (lengths[place], occurrences[place])
    assert model.backoff.context_count([]) == (0, 0)


@pytest.mark.slow
def test_a_trigram_of_forty_thousand_words_is_quick():
    rng = np.random.default_rng(0)
    ids = (rng.zipf(1.3, size=40_000) % 5000).reshape(-1, 20)
    with Corpus.prepare([" ".join(f"w{i}" for i in row) for row in ids], min_count=1) as corpus:
        begin = time.perf_counter()
        NGram.train(corpus, order=3)
        assert time.perf_counter() - begin < 2
