"""Every kind of file that fastnplm reads, and what is expected of its reader."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import specimens

import fastnplm
from fastnplm import checkpoint, word2vec
from fastnplm.arpa import read_arpa
from fastnplm.errors import Error
from fastnplm.folder import MANIFEST, render
from fastnplm.header import HEADER_NAME


@dataclass(frozen=True)
class Reader:
    """One kind of file.

    build : fills an empty folder and gives the path of the file, small or with so much more in it
        (words, epochs, files: whatever the format repeats)
    read : reads what ``build`` made
    certain : whether every damage must be reported (else the result may be another good one)
    slack : bytes at the end that may be missing without a report
    mend : puts right the checksums around a changed file, so that only the reader itself is left
    header : how many bytes at the beginning say what the rest is (of JSON, where every byte does,
        the first thousand)
    grows : whether the format repeats anything
    """

    build: Callable[..., Path]
    read: Callable[[Path], object]
    certain: bool = True
    slack: int = 0
    mend: Callable[[Path], None] = lambda path: None
    header: Callable[[bytes], int] = lambda data: min(len(data), 1000)
    grows: bool = True


def _verify(path):
    with fastnplm.Corpus.open(path.parent) as corpus:
        corpus.verify()
        return corpus.tokens.sum()


def _open(path):
    with fastnplm.Corpus.open(path.parent) as corpus:
        return corpus.tokens.sum()


def _checkpoint(path):
    folder = path.parent.parent.parent
    return checkpoint.load(folder, specimens.STEPS[folder], {}, {})


def _ngram(path):
    model = fastnplm.load(path.parent)
    return model.log_probabilities(np.array([3, 4, 5, 2]))


def _model(path):
    return fastnplm.load(path.parent)


MANIFESTS: dict[Path, str] = {}
"""By file, the manifest that lists it, with places for the file's size and checksum."""


def _remanifest(path):
    """The manifest as ``write_manifest`` would write it, without waiting for the disk."""
    data, manifest = path.read_bytes(), path.parent / MANIFEST
    if path not in MANIFESTS:
        files = json.loads(manifest.read_text())["files"]
        files[path.name] = {"bytes": "SIZE", "sha256": "SUM"}
        MANIFESTS[path] = render(files).replace('"SIZE"', "SIZE")
    text = MANIFESTS[path].replace("SIZE", str(len(data)))
    manifest.write_text(text.replace("SUM", hashlib.sha256(data).hexdigest()))


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


def _first_line(data):
    return data.index(b"\n") + 1


def _tensors(data):
    return 8 + int.from_bytes(data[:8], "little")


def _arpa_counts(data):
    return data.index(b"\\1-grams:")


READERS = {
    "vocabulary": Reader(
        specimens.vocabulary, lambda path: fastnplm.Vocabulary.load(path), header=_first_line
    ),
    "corpus.json": Reader(specimens.corpus_file("corpus.json"), _open, mend=_resign, grows=False),
    "corpus-vocabulary": Reader(
        specimens.corpus_file("vocabulary.tsv"), _open, mend=_resign, header=_first_line
    ),
    "tokens": Reader(
        specimens.corpus_file("tokens.bin"), _verify, mend=_resign, header=lambda data: 0
    ),
    "model-config": Reader(
        specimens.model_file("config.json", context=3, hashed=5),
        _model,
        mend=_remanifest,
        grows=False,
    ),
    "model-vocabulary": Reader(
        specimens.model_file("vocabulary.tsv"), _model, mend=_remanifest, header=_first_line
    ),
    "model-parameters": Reader(
        specimens.model_file("parameters.safetensors"), _model, mend=_remanifest, header=_tensors
    ),
    "model-direct": Reader(
        specimens.model_file("parameters.safetensors", direct=True),
        _model,
        mend=_remanifest,
        header=_tensors,
    ),
    "model-tied-direct": Reader(
        specimens.model_file("parameters.safetensors", direct=True, tied=True, hashed=5, context=3),
        _model,
        mend=_remanifest,
        header=_tensors,
    ),
    "model-manifest": Reader(specimens.model_file(MANIFEST), _model),
    "checkpoint-state": Reader(
        specimens.checkpoint_file("state.json"), _checkpoint, mend=_remanifest
    ),
    "checkpoint-optimizer": Reader(
        specimens.checkpoint_file("optimizer.safetensors"),
        _checkpoint,
        mend=_remanifest,
        header=_tensors,
    ),
    "checkpoint-manifest": Reader(specimens.checkpoint_file(MANIFEST), _checkpoint),
    "ngram-config": Reader(
        specimens.ngram_file("config.json"), _ngram, mend=_remanifest, grows=False
    ),
    "ngram-tables": Reader(
        specimens.ngram_file("ngrams.safetensors"), _ngram, mend=_remanifest, header=_tensors
    ),
    "mixture-config": Reader(specimens.mixture_file("config.json"), _model, mend=_remanifest),
    "vectors-text": Reader(
        specimens.vectors("v.vec", False), word2vec.read, certain=False, header=_first_line
    ),
    "vectors-binary": Reader(
        specimens.vectors("v.bin", True), word2vec.read, certain=False, slack=1, header=_first_line
    ),
    "arpa": Reader(
        specimens.arpa("m.arpa"), read_arpa, certain=False, slack=1, header=_arpa_counts
    ),
    "arpa-gz": Reader(
        specimens.arpa("m.arpa.gz"), read_arpa, certain=False, header=lambda data: 18
    ),
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
