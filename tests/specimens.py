"""Good files of every kind that fastnplm writes.

Each function fills an empty folder and gives the path of the file in it: a small one, or one with
so much ``more`` of what its format repeats (words, epochs, files).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import runs

import fastnplm
from fastnplm import checkpoint, word2vec
from fastnplm.folder import MANIFEST, render

TEXT = ["a b c naïve", "b c", "c a"]
STATE = {
    "settings": {}, "epoch": 1, "batch": 1, "loss_sum": 1.5, "updates": 2, "tokens": 1,
    "seconds": 0.5, "best": 3.5, "best_epoch": 1, "waited": 0, "halvings": 0,
    "decay": {"embedding": -0.5}, "history": [{"epoch": 1, "train_loss": 2.0}],
}  # fmt: skip


def _corpus(more=0, types=1 << 20, out=None, word="w{}".format):
    """Of the small text and so many words more, in lines of ten, of so many types."""
    words = [word(number % types) for number in range(more)]
    text = TEXT + [" ".join(words[i : i + 10]) for i in range(0, more, 10)]
    return fastnplm.Corpus.prepare(text, min_count=1, out=out)


def vocabulary(folder, more=0):
    with _corpus(more) as corpus:
        corpus.vocabulary.save(folder / "vocabulary.tsv")
    return folder / "vocabulary.tsv"


def corpus_file(name):
    def build(folder, more=0):
        types = 50 if name == "tokens.bin" else 1 << 20
        _corpus(more, types, folder / "corpus").close()
        return folder / "corpus" / name

    return build


def model_file(name, **sizes):
    def build(folder, more=0):
        with _corpus(0 if name == MANIFEST else more) as corpus:
            runs.network(corpus, **sizes).save(folder / "model")
        if name == MANIFEST:
            _more_files(folder / "model", more)
        return folder / "model" / name

    return build


def _more_files(folder, more):
    """So many files more, with long names, in a folder and in its manifest."""
    names = [f"{number:0200d}" for number in range(more)]
    for name in names:
        (folder / name).write_bytes(b"")
    place = folder / MANIFEST
    entry = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    files = json.loads(place.read_text())["files"]
    place.write_text(render(files | dict.fromkeys(names, entry)))


def _step(corpus):
    network = runs.network(corpus)
    optimizer = fastnplm.Optimizer("adam", lr=0.1, weight_decay=0.1)
    return fastnplm.Step(network, optimizer, 4, kernels="reference")


STEPS: dict[Path, fastnplm.Step] = {}
"""By the folder that holds its checkpoints, the run that they belong to."""


def checkpoint_file(name):
    def build(folder, more=0):
        state = STATE
        if name == "state.json":
            history = [{"epoch": epoch, "train_loss": 2.0} for epoch in range(1, more + 2)]
            state = STATE | {"epoch": len(history), "history": history}
        with _corpus(more if name == "optimizer.safetensors" else 0) as corpus:
            step = STEPS[folder] = _step(corpus)
            step.state.updates = 2
            random = np.random.default_rng(0).bit_generator.state
            checkpoint.save(folder, step, state | {"random": random}, {})
        if name == MANIFEST:
            _more_files(folder / "checkpoints" / f"{2:012d}", more)
        return folder / "checkpoints" / f"{2:012d}" / name

    return build


def ngram_file(name):
    def build(folder, more=0):
        with _corpus(more) as corpus:
            fastnplm.NGram.train(corpus, order=3).save(folder / "kn")
        return folder / "kn" / name

    return build


def mixture_file(name):
    def build(folder, more=0):
        with _corpus() as corpus:
            models = [fastnplm.NGram.train(corpus, order=k) for k in (1, 5 if more else 2)]
            models += [models[0]] * more
            weights = np.full((100, len(models)), 1 / len(models)) if more else [0.25, 0.75]
            fastnplm.Mixture(models, weights, 1 if more else None).save(folder / "mixed")
        return folder / "mixed" / name

    return build


def vectors(name, binary):
    def build(folder, more=0):
        words = ["red", "naïve", "</s>"] + [f"w{number}" for number in range(more)]
        known = SimpleNamespace(words=words)
        rows = np.array([[0.5, -1.25, 3e-5], [1, 0, -0.0], [7e30, 2.5, 1 / 3]])
        if more:
            rows = np.tile(rows, (1, 20))
            rows = np.concatenate([rows, np.random.default_rng(0).standard_normal((more, 60))])
        made = SimpleNamespace(vocabulary=known, rows=rows)
        word2vec.write(made, folder / name, binary=binary)
        return folder / name

    return build


def _long_word(number):
    """One that does not shrink: else a file of 64 KiB holds half a megabyte once unpacked."""
    return hashlib.sha512(str(number).encode()).hexdigest()


def arpa(name):
    def build(folder, more=0):
        with _corpus(more, word=_long_word) as corpus:
            fastnplm.NGram.train(corpus, order=2).write_arpa(folder / name)
        return folder / name

    return build
