"""Training from a prepared corpus, reading included, against the bare step and gensim's word2vec.

All on the same text with one thread: fastnplm.train with negative sampling, its step alone on
batches formed beforehand, and gensim's CBOW and skip-gram (no downsampling: every word is
trained). Words a second count the text's words and sentence ends for all.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import fastnplm
from fastnplm.batches import Epoch
from fastnplm.loss import NegativeSampling
from fastnplm.step import Step

from . import rounds

CONTEXT, DIM, HIDDEN, NEGATIVES, BATCH = 4, 100, 200, 10, 1024


def measure(text, count=3, lock=None, tell=print):
    """Words a second of each, a list of ``count`` values by name; ``text`` is a path."""
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="fastnplm-bench-") as folder,
        fastnplm.Corpus.prepare(text, min_count=1) as corpus,
    ):
        runs = {
            "fastnplm train": lambda: _train(corpus),
            "fastnplm bare step": lambda: _bare(corpus),
            "fastnplm train, bf16": lambda: _train(corpus, precision="bf16"),
            "fastnplm train, bf16, noise shared by 32": lambda: _train(corpus, 32, "bf16"),
        }
        try:
            import gensim  # noqa: F401
        except ImportError:
            tell("gensim: not run: not installed")
        else:
            path = _plain_text(text, folder)
            runs["gensim CBOW"] = lambda: _gensim(path, corpus, 0)
            runs["gensim skip-gram"] = lambda: _gensim(path, corpus, 1)
        for number in range(count):
            with rounds.quiet(lock):
                for name, run in runs.items():
                    found.setdefault(name, []).append(run())
            line = ", ".join(f"{name} {values[-1]:,.0f}" for name, values in found.items())
            tell(f"round {number + 1}, words a second: {line}")
    return found


def _train(corpus, shared=None, precision="float32"):
    model = fastnplm.NPLM(corpus.vocabulary, context=CONTEXT, dim=DIM, hidden=HIDDEN)
    history = fastnplm.train(
        model, corpus, loss=NegativeSampling(NEGATIVES, shared=shared), optimizer="sgd", lr=0.05,
        batch_size=BATCH, epochs=1, threads=1, quiet=True, dropout=0.0, input_dropout=0.0,
        precision=precision, average=0.0,
    )  # fmt: skip
    return history.epochs[0]["tokens_per_second"]


def _bare(corpus):
    model = fastnplm.NPLM(corpus.vocabulary, context=CONTEXT, dim=DIM, hidden=HIDDEN)
    model.adopt(NegativeSampling(NEGATIVES))
    step = Step(model, fastnplm.optimizer.resolve("sgd", lr=0.05), BATCH, threads=1)
    vocabulary = corpus.vocabulary
    batches = []
    for positions in Epoch(len(corpus.tokens), BATCH, 0, 0):
        contexts = np.empty((len(positions), CONTEXT), np.int32)
        targets = np.empty(len(positions), np.int32)
        step.kernels.form_contexts(
            corpus.tokens, positions, vocabulary.start_id, vocabulary.end_id, contexts, targets
        )
        batches.append((contexts, targets))
    start = time.perf_counter()
    for contexts, targets in batches:
        step(contexts, targets)
    return len(corpus.tokens) / (time.perf_counter() - start)


def _gensim(path, corpus, skip_gram):
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=DIM, window=CONTEXT, negative=NEGATIVES, sg=skip_gram, workers=1, min_count=1,
        sample=0, seed=1,
    )  # fmt: skip
    model.build_vocab(corpus_file=str(path))
    start = time.perf_counter()
    model.train(
        corpus_file=str(path), total_words=model.corpus_total_words,
        total_examples=model.corpus_count, epochs=1,
    )  # fmt: skip
    return len(corpus.tokens) / (time.perf_counter() - start)


def _plain_text(text, folder):
    """The text as one plain file, as gensim reads it."""
    import gzip

    text = Path(text)
    if text.suffix != ".gz":
        return text
    target = Path(folder) / "text.txt"
    with gzip.open(text, "rb") as source:
        target.write_bytes(source.read())
    return target


def summary(found):
    """Medians, and fastnplm's rate as a share of each other's in the same round."""
    lines = {}
    for name, values in found.items():
        pairs = zip(found["fastnplm train"], values, strict=True)
        shares = [mine / other for mine, other in pairs]
        lines[name] = (statistics.median(values), statistics.median(shares))
    return lines
