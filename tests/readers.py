"""Every file that fastnplm reads: a small good one, its reader, and ways to damage it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import runs

import fastnplm
from fastnplm import checkpoint, word2vec
from fastnplm.arpa import read_arpa
from fastnplm.errors import Error
from fastnplm.folder import MANIFEST, render
from fastnplm.header import HEADER_NAME

TEXT = ["a b c naïve", "b c", "c a"]
STATE = {
    "settings": {}, "epoch": 1, "batch": 1, "loss_sum": 1.5, "updates": 2, "tokens": 1,
    "seconds": 0.5, "best": 3.5, "best_epoch": 1, "waited": 0, "halvings": 0,
    "decay": {"embedding": -0.5}, "history": [{"epoch": 1, "train_loss": 2.0}],
}  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """One kind of file.

    build : fills an empty folder and gives the path of the file
    read : reads what ``build`` made
    certain : whether every damage must be reported (else the result may be another good one)
    slack : bytes at the end that may be missing without a report
    mend : puts right the checksums around a changed file, so that only the reader itself is left
    """

    build: Callable[[Path], Path]
    read: Callable[[Path], object]
    certain: bool = True
    slack: int = 0
    mend: Callable[[Path], None] = lambda path: None


def _corpus():
    return fastnplm.Corpus.prepare(TEXT, min_count=1)


def _vocabulary(folder):
    with _corpus() as corpus:
        corpus.vocabulary.save(folder / "vocabulary.tsv")
    return folder / "vocabulary.tsv"


def _corpus_file(name):
    def build(folder):
        fastnplm.Corpus.prepare(TEXT, min_count=1, out=folder / "corpus").close()
        return folder / "corpus" / name

    return build


def _verify(path):
    with fastnplm.Corpus.open(path.parent) as corpus:
        corpus.verify()
        return corpus.tokens.sum()


def _open(path):
    with fastnplm.Corpus.open(path.parent) as corpus:
        return corpus.tokens.sum()


def _model_file(name, **sizes):
    def build(folder):
        with _corpus() as corpus:
            runs.network(corpus, **sizes).save(folder / "model")
        return folder / "model" / name

    return build


def _step(corpus):
    network = runs.network(corpus)
    optimizer = fastnplm.Optimizer("adam", lr=0.1, weight_decay=0.1)
    return fastnplm.Step(network, optimizer, 4, kernels="reference")


def _checkpoint_file(name):
    def build(folder):
        with _corpus() as corpus:
            step = _step(corpus)
            step.state.updates = 2
            random = np.random.default_rng(0).bit_generator.state
            checkpoint.save(folder, step, STATE | {"random": random})
        return folder / "checkpoints" / f"{2:012d}" / name

    return build


def _checkpoint(path):
    return checkpoint.load(path.parent.parent.parent, STEP, {})


def _ngram_file(name):
    def build(folder):
        with _corpus() as corpus:
            fastnplm.NGram.train(corpus, order=3).save(folder / "kn")
        return folder / "kn" / name

    return build


def _ngram(path):
    model = fastnplm.load(path.parent)
    return model.log_probabilities(np.array([3, 4, 5, 2]))


def _mixture_file(name):
    def build(folder):
        with _corpus() as corpus:
            models = [fastnplm.NGram.train(corpus, order=k) for k in (1, 2)]
            fastnplm.Mixture(models, [0.25, 0.75]).save(folder / "mixed")
        return folder / "mixed" / name

    return build


def _vectors(name, binary):
    def build(folder):
        vocabulary = SimpleNamespace(words=["red", "naïve", "</s>"])
        rows = np.array([[0.5, -1.25, 3e-5], [1, 0, -0.0], [7e30, 2.5, 1 / 3]])
        vectors = SimpleNamespace(vocabulary=vocabulary, rows=rows)
        word2vec.write(vectors, folder / name, binary=binary)
        return folder / name

    return build


def _arpa(name):
    def build(folder):
        with _corpus() as corpus:
            fastnplm.NGram.train(corpus, order=2).write_arpa(folder / name)
        return folder / name

    return build


def _model(path):
    return fastnplm.load(path.parent)


def _remanifest(path):
    """The manifest as ``write_manifest`` would write it, without waiting for the disk."""
    data, manifest = path.read_bytes(), path.parent / MANIFEST
    files = json.loads(manifest.read_text())["files"]
    files[path.name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest.write_text(render(files))


def _resign(path):
    """The checksums of a corpus as its maker would write them."""
    page = path.parent / HEADER_NAME
    try:
        values = json.loads(page.read_bytes())
        values.pop("checksum", None)
        if path.name != HEADER_NAME:
            key = {"tokens.bin": "tokens_checksum", "vocabulary.tsv": "vocabulary_checksum"}
            values[key[path.name]] = hashlib.sha256(path.read_bytes()).hexdigest()
        text = json.dumps(values, sort_keys=True, ensure_ascii=False)
        values["checksum"] = hashlib.sha256(text.encode()).hexdigest()
        page.write_text(json.dumps(values, sort_keys=True, ensure_ascii=False, indent=1) + "\n")
    except (ValueError, AttributeError, TypeError):
        pass


with _corpus() as _made:
    STEP = _step(_made)

READERS = {
    "vocabulary": Reader(_vocabulary, lambda path: fastnplm.Vocabulary.load(path)),
    "corpus.json": Reader(_corpus_file("corpus.json"), _open, mend=_resign),
    "corpus-vocabulary": Reader(_corpus_file("vocabulary.tsv"), _open, mend=_resign),
    "tokens": Reader(_corpus_file("tokens.bin"), _verify, mend=_resign),
    "model-config": Reader(_model_file("config.json"), _model, mend=_remanifest),
    "model-vocabulary": Reader(_model_file("vocabulary.tsv"), _model, mend=_remanifest),
    "model-parameters": Reader(_model_file("parameters.safetensors"), _model, mend=_remanifest),
    "model-direct": Reader(
        _model_file("parameters.safetensors", direct=True), _model, mend=_remanifest
    ),
    "model-manifest": Reader(_model_file(MANIFEST), _model),
    "checkpoint-state": Reader(_checkpoint_file("state.json"), _checkpoint, mend=_remanifest),
    "checkpoint-optimizer": Reader(
        _checkpoint_file("optimizer.safetensors"), _checkpoint, mend=_remanifest
    ),
    "checkpoint-manifest": Reader(_checkpoint_file(MANIFEST), _checkpoint),
    "ngram-config": Reader(_ngram_file("config.json"), _ngram, mend=_remanifest),
    "ngram-tables": Reader(_ngram_file("ngrams.safetensors"), _ngram, mend=_remanifest),
    "mixture-config": Reader(_mixture_file("config.json"), _model, mend=_remanifest),
    "vectors-text": Reader(_vectors("v.vec", False), word2vec.read, certain=False),
    "vectors-binary": Reader(_vectors("v.bin", True), word2vec.read, certain=False, slack=1),
    "arpa": Reader(_arpa("m.arpa"), read_arpa, certain=False, slack=1),
    "arpa-gz": Reader(_arpa("m.arpa.gz"), read_arpa, certain=False),
}


@contextlib.contextmanager
def limited(bytes_more: int) -> Iterator[None]:
    """No more than so much memory beside what is in use (Linux): else MemoryError."""
    if sys.platform != "linux":
        yield
        return
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + bytes_more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def outcome(reader: Reader, path: Path, seconds: float = 5.0) -> bool:
    """Whether the file was refused; anything but a result or an Error of ours is raised."""
    began = time.process_time()  # nothing here waits, and the machine may have other work
    try:
        with np.errstate(all="ignore"):
            reader.read(path)
        refused = False
    except Error as error:
        text = str(error)
        assert text
        assert "Traceback" not in text
        refused = True
    taken = time.process_time() - began
    assert taken < seconds, f"{taken:.1f} s"
    return refused
