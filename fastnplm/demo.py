"""A demonstration on text that every Python ships: its own documentation topics."""

import re
import tempfile
import time
from pathlib import Path

import click

from .corpus import Corpus
from .evaluation import evaluate
from .mixture import Mixture
from .ngram import NGram
from .nplm import NPLM
from .storage import check_output
from .training import train

# What the command ``train`` makes and does when nothing is said.
MODEL = {"tied": True, "direct": True}
TRAINING: dict = {}
BEGINNINGS = ("if the", "the value of the", "a list of", "this method is")
WORDS = ("class", "list", "raised", "integer")
BAR = 40

_WORD = re.compile(r"[a-z_]+|[0-9]+|[.,;:?!()=]")
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z(])")
_MARKUP = re.compile(r"[\"*]")


def sentences(topics=None):
    """The prose of Python's documentation topics: (training, validation, test), lists of words.

    Of ten sentences eight are for training and one each for the others. A sentence that occurs
    several times, as many do there, is taken once: none is in two parts.
    """
    if topics is None:
        from pydoc_data.topics import topics
    parts, seen = ([], [], []), set()
    for name in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            text = " ".join(_MARKUP.sub("", paragraph).split())
            for sentence in _SENTENCE_END.split(text):
                words = _WORD.findall(sentence.lower())
                if not _is_prose(words) or tuple(words) in seen:
                    continue
                part = {3: 1, 8: 2}.get(len(seen) % 10, 0)
                seen.add(tuple(words))
                parts[part].append(words)
    return parts


def _is_prose(words):
    letters = sum(word[0].isalpha() for word in words)
    return len(words) >= 4 and letters >= 0.7 * len(words) and words[-1] in ".:?!"


def write_texts(folder):
    """Write train.txt, valid.txt and test.txt, a sentence a line, into ``folder``."""
    place = Path(folder)
    place.mkdir(exist_ok=True)
    for name, part in zip(("train", "valid", "test"), sentences(), strict=True):
        lines = "".join(" ".join(words) + "\n" for words in part)
        (place / f"{name}.txt").write_text(lines, encoding="utf-8")


def run(threads=None, kernels="auto", out=None, overwrite=False, quiet=False):
    """Train, compare, predict; prints as it goes. Returns what it found, for JSON."""
    began = time.monotonic()

    def say(text=""):
        if not quiet:
            click.echo(text)

    if out is not None:
        check_output(out, overwrite=overwrite)
    training, validation, test = sentences()
    with (
        tempfile.TemporaryDirectory(prefix="fastnplm-demo-") as temporary,
        Corpus.prepare(training, min_count=2) as corpus,
        Corpus.prepare(validation, vocabulary=corpus.vocabulary) as valid,
        Corpus.prepare(test, vocabulary=corpus.vocabulary) as held_out,
    ):
        say(
            f"Python's documentation topics: {len(corpus):,} words for training,"
            f" {len(valid):,} for validation, {len(held_out):,} for the test;"
            f" vocabulary {len(corpus.vocabulary):,}"
        )
        model = NPLM(corpus.vocabulary, **MODEL)
        history = train(
            model, corpus, valid=valid, out=out or Path(temporary, "model"), overwrite=overwrite,
            threads=threads, kernels=kernels, quiet=True, **TRAINING,
        )  # fmt: skip
        found = {"perplexities": history.perplexities, "best_epoch": history.best_epoch}
        _curve(history, say)
        found["test"] = _compare(model, corpus, valid, held_out, say)
    _ask(model, say)
    found["seconds"] = time.monotonic() - began
    if out is not None:
        say(f"the model is in {out}")
    say(f"{found['seconds']:.0f} seconds in all")
    return found


def _curve(history, say):
    say("\nvalidation perplexity after each epoch:")
    highest = max(history.perplexities)
    for record in history.epochs:
        perplexity = record["valid_perplexity"]
        bar = "#" * round(BAR * perplexity / highest)
        best = "  best" if record["epoch"] == history.best_epoch else ""
        say(f"  {record['epoch']:3}  {perplexity:7.2f}  {bar}{best}")
    speed = sum(r["tokens"] for r in history.epochs) / sum(r["seconds"] for r in history.epochs)
    say(f"  {speed:,.0f} words a second")


def _compare(model, corpus, valid, held_out, say):
    """Perplexities of the same held-out words, by name; nothing was chosen by them."""
    trigram = NGram.train(corpus, order=3)
    judged = {
        "unigram counts": NGram.train(corpus, order=1),
        "trigram, interpolated Kneser-Ney": trigram,
        "this network": model,
        "network and trigram mixed": Mixture.tune([model, trigram], valid),
    }
    found = {name: evaluate(judge, held_out).perplexity for name, judge in judged.items()}
    say("\nperplexity on the same test words:")
    for name, perplexity in found.items():
        say(f"  {perplexity:7.2f}  {name}")
    return found


def _ask(model, say):
    say("\nlikeliest next words:")
    for text in BEGINNINGS:
        words = ", ".join(f"{word} {share:.2f}" for word, share in model.predict(text, k=4))
        say(f"  {text} ...  {words}")
    say("\nwords with similar vectors:")
    for word in WORDS:
        if word in model.vocabulary:  # the topics change from version to version
            near = ", ".join(name for name, _ in model.vectors.most_similar(word, topn=5))
            say(f"  {word}:  {near}")
