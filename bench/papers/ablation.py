"""What each choice buys: short runs on a sample of Brown that differ in one setting."""

import gzip
import math
from pathlib import Path

import fastnplm

from .. import machine
from . import rows

PLAIN = {
    "optimizer": "adam", "batch_size": 256, "epochs": 12, "dropout": 0.0, "input_dropout": 0.0,
    "average": 0.0, "precision": "bf16",
}  # fmt: skip
_OPEN = dict.fromkeys(("optimizer", "batch_size", "epochs", "dropout", "input_dropout", "average"))

# Each changes the plain run in one thing; "defaults" is what the command does when nothing is said.
CHANGES = {
    "plain": {},
    "dropout 0.5": {"dropout": 0.5},
    "input dropout 0.3": {"input_dropout": 0.3},
    "word dropout 0.1": {"word_dropout": 0.1},
    "both dropouts": {"dropout": 0.5, "input_dropout": 0.3},
    "weight decay 0.1": {"weight_decay": 0.1},
    "l1 0.001": {"l1": 0.001},
    "label smoothing 0.05": {"label_smoothing": 0.05},
    "average 0.2": {"average": 0.2},
    "clip 0.5": {"clip": 0.5},
    "tied": {"tied": True},
    "tied, output dropout 0.2": {"tied": True, "output_dropout": 0.2},
    "tied, direct": {"tied": True, "direct": True},
    "second layer": {"layers": 2},
    "direct": {"direct": True},
    "context 8": {"context": 8},
    "batch 64": {"batch_size": 64},
    "linear schedule": {"schedule": "linear"},
    "constant schedule": {"schedule": "constant"},
    "constant schedule, average 0.2": {"schedule": "constant", "average": 0.2},
    "plateau schedule": {"schedule": "plateau"},
    "inverse schedule": {"schedule": "inverse"},
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "momentum"},
    "momentum 0.2, batch 64": {"optimizer": "momentum", "lr": 0.2, "batch_size": 64},
    "adagrad": {"optimizer": "adagrad"},
    "rmsprop": {"optimizer": "rmsprop"},
    "defaults, plain network": _OPEN,
    "defaults": _OPEN | {"tied": True, "direct": True},
}


def sample(data, folder, every=20):
    """Every so manieth line of Brown's training text, and four times as many for validation.

    Returns the paths of the two texts.
    """
    files, _ = rows.texts("brown", data)
    made = []
    for part, step in (("train", every), ("valid", max(every // 4, 1))):
        with gzip.open(files[part], "rt", encoding="utf-8") as lines:
            chosen = [line for number, line in enumerate(lines) if number % step == 0]
        made.append(Path(folder) / f"{part}.txt")
        made[-1].write_text("".join(chosen), encoding="utf-8")
    return made


def measure(train, valid, changes=CHANGES, min_count=3, threads=None, tell=print):
    """Train once for each change; returns a dict for JSON: perplexities, epochs, seconds."""
    found = []
    with (
        fastnplm.Corpus.prepare(train, min_count=min_count) as corpus,
        fastnplm.Corpus.prepare(valid, vocabulary=corpus.vocabulary) as held_out,
    ):
        for name, change in changes.items():
            size, given = rows.split(PLAIN | change)
            model = fastnplm.NPLM(corpus.vocabulary, **size)
            history = fastnplm.train(
                model, corpus, valid=held_out, quiet=True, threads=threads, **given
            )
            curve = history.perplexities
            record = {"name": name, "change": change, "perplexity": min(curve), "curve": curve}
            record |= {"best_epoch": history.best_epoch, "last": curve[-1]}
            record["seconds"] = sum(epoch["seconds"] for epoch in history.epochs)
            tell(f"{name}: {min(curve):.2f} after epoch {history.best_epoch} of {len(curve)}")
            found.append(record)
        tokens, words = len(corpus.tokens), len(corpus.vocabulary)
    return {"tokens": tokens, "vocabulary": words, "machine": machine.describe(), "runs": found}


def markdown(found):
    """The table, each run against the plain one."""
    plain = next(r["perplexity"] for r in found["runs"] if r["name"] == "plain")
    lines = [
        f"{found['tokens']:,} tokens of Brown, {found['vocabulary']:,} words.",
        "",
        "| change | validation perplexity | against plain | epoch |",
        "|---|---|---|---|",
    ]
    for run in found["runs"]:
        share = 100 * math.expm1(math.log(run["perplexity"] / plain))
        epoch = f"{run['best_epoch']} of {len(run['curve'])}"
        lines.append(f"| {run['name']} | {run['perplexity']:.2f} | {share:+.1f} % | {epoch} |")
    return "\n".join(lines) + "\n"
