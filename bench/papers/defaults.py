"""What the command does when nothing is said, among twenty runs of the same network.

The network is the default one (N=4, M=100, H=200, tied, direct). Trials of an epoch or two change
one or two settings each; the best of them are run again for as many epochs as the defaults. A run
that falls behind those of its length is given up, and its curve says where. On little text every
trial is run in full and none is given up. Each run is logged as soon as it ends, so that a stopped
study goes on where it was.
"""

import dataclasses
import json
import math
from pathlib import Path

import fastnplm
from fastnplm import loss as losses
from fastnplm.errors import DivergenceError

from .. import machine
from . import rows

DEFAULTS = "defaults"
# bf16 changes no perplexity here beyond its second decimal (docs/losses.md), and halves the time.
COMMON = {"precision": "bf16"}
# What the command makes where no form is named; ``NPLM`` itself makes the paper's plain network.
FORM = {"tied": True, "direct": True}
_ADAM = {"optimizer": "adam", "batch_size": 256}

# What the trials change whether the text is little or not; what the ablation shows to be far behind
# is left out of all of them.
_ALIKE = {
    "no dropout": {"dropout": 0.0, "input_dropout": 0.0},
    "no average": {"average": 0.0},
    "constant rate": {"schedule": "constant"},
    "weight decay 0.002": {"weight_decay": 0.002},
    "label smoothing 0.05": {"label_smoothing": 0.05},
    "word dropout 0.05": {"word_dropout": 0.05},
}
SHORT = 2  # epochs of a trial
TRIALS = {
    "as the defaults": {},
    "dropout 0.15 and 0.09": {"dropout": 0.15, "input_dropout": 0.09},
    "dropout 0.4 and 0.24": {"dropout": 0.4, "input_dropout": 0.24},
    "rate 0.1": {"lr": 0.1},
    "rate 0.05": {"lr": 0.05},
    "rate 0.2": {"lr": 0.2},
    "rate 0.1, batches of 64": {"lr": 0.1, "batch_size": 64},
    "Adam": _ADAM,
    "Adam, dropout 0.4 and 0.24, no average": (
        _ADAM | {"dropout": 0.4, "input_dropout": 0.24, "average": 0.0}
    ),
    "RMSProp": _ADAM | {"optimizer": "rmsprop"},
    "Adagrad": _ADAM | {"optimizer": "adagrad"},
    **_ALIKE,
}
LITTLE = 100_000  # tokens
LITTLE_TRIALS = {
    "dropout 0.35 and 0.2": {"dropout": 0.35, "input_dropout": 0.2},
    "dropout 0.6 and 0.4": {"dropout": 0.6, "input_dropout": 0.4},
    "rate 0.05": {"lr": 0.05},
    "rate 0.15": {"lr": 0.15},
    "rate 0.2": {"lr": 0.2},
    "batches of 128, rate 0.15": {"batch_size": 128, "lr": 0.15},
    "batches of 32, rate 0.05": {"batch_size": 32, "lr": 0.05},
    "average 0.4": {"average": 0.4},
    "Adam, batches of 64": {"optimizer": "adam"},
    "Adam 0.003, weight decay 0.1": {"optimizer": "adam", "lr": 0.003, "weight_decay": 0.1},
    "RMSProp, batches of 64": {"optimizer": "rmsprop"},
    "Adagrad, batches of 64": {"optimizer": "adagrad"},
    "Adagrad 0.1, batches of 64": {"optimizer": "adagrad", "lr": 0.1},
    **_ALIKE,
}
LARGE_SHORT = 1
LARGE_TRIALS = {
    "as the defaults": {},
    "dropout 0.2 and 0.12": {"dropout": 0.2, "input_dropout": 0.12},
    "rate 0.0005": {"lr": 0.0005},
    "rate 0.001": {"lr": 0.001},
    "rate 0.004": {"lr": 0.004},
    "batches of 256": {"batch_size": 256},
    "batches of 1024": {"batch_size": 1024},
    "100 negatives": {"loss": fastnplm.NCE(100, shared=128)},
    "1024 negatives": {"loss": fastnplm.NCE(1024, shared=128)},
    "noise shared by 32": {"loss": fastnplm.NCE(512, shared=32)},
    "power 1": {"loss": fastnplm.NCE(512, power=1.0, shared=128)},
    "ns": {"loss": fastnplm.NegativeSampling(512, shared=128)},
    "no average, cosine": {"average": 0.0},
    "cosine": {"schedule": "cosine"},
    "linear decay": {"schedule": "linear"},
    "Adagrad": {"optimizer": "adagrad"},
    "momentum": {"optimizer": "momentum", "lr": 0.15},
}
# So many trials are run again in full, and more where they are of one epoch, which says little:
# what was ahead then has been behind at the end.
FINALS = 2
LARGE_FINALS = 4
LEEWAY = (0.05, 0.03)  # how far behind a run may be after one epoch, after more


class Pruning:
    """Whether a run is so far behind the logged ones of its length that it is given up."""

    def __init__(self, logged, epochs):
        self._curves = [run["curve"] for run in logged if run["epochs"] == epochs]

    def __call__(self, record):
        epoch = record["epoch"]
        known = [curve[epoch - 1] for curve in self._curves if len(curve) >= epoch]
        leeway = LEEWAY[min(epoch, len(LEEWAY)) - 1]
        return bool(known) and record["valid_perplexity"] > min(known) * (1 + leeway)


def measure(name, files, min_count, output, threads=None, trials=None, short=None, tell=print):
    """The runs on a text, those logged in OUTPUT/defaults-NAME.json left out; its dict.

    files : of the text, by "train" and "valid"
    trials : name -> settings; None: TRIALS, LITTLE_TRIALS for a text of at most LITTLE tokens, or
        LARGE_TRIALS where ``train`` itself would take a sampled loss
    short : epochs of the trials; None: SHORT, those of the defaults, or LARGE_SHORT
    """
    path = Path(output) / f"defaults-{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {"corpus": name, "runs": []}
    if path.exists():
        found = json.loads(path.read_text())

    def make(title, given):
        size, plan = _plan(given, text)
        same = [run for run in found["runs"] if run["name"] == title]
        if same and same[0]["settings"] == _logged(size, plan):
            return same[0]
        found["runs"] = [run for run in found["runs"] if run["name"] != title]
        rivals = found["runs"] if found["leeway"] else []
        found["runs"].append(_run(title, size, plan, rivals, text, valid, threads))
        found["machine"] = machine.describe()
        path.write_text(json.dumps(found, indent=1) + "\n")
        tell(f"{name}, {_told(found['runs'][-1])}")
        return found["runs"][-1]

    with (
        fastnplm.Corpus.prepare(files["train"], min_count=min_count) as text,
        fastnplm.Corpus.prepare(files["valid"], vocabulary=text.vocabulary) as valid,
    ):
        found |= {"tokens": len(text.tokens), "vocabulary": len(text.vocabulary)}
        large = len(text.vocabulary) > losses.LARGE_VOCABULARY
        little = not large and short is None and len(text.tokens) <= LITTLE
        found["leeway"] = None if little else list(LEEWAY)
        if trials is None:
            trials = LARGE_TRIALS if large else LITTLE_TRIALS if little else TRIALS
        epochs = make(DEFAULTS, {})["epochs"]
        if little:
            for title, given in trials.items():
                make(title, given)
            return found
        if short is None:
            short = LARGE_SHORT if large else SHORT
        finals = LARGE_FINALS if large else FINALS
        made = [make(title, given | {"epochs": short}) for title, given in trials.items()]
        for title in _best(made, trials, finals):
            make(f"{title}, in full", trials[title] | {"epochs": epochs})
    return found


def _best(made, trials, count):
    """Names of the trials that are worth as many epochs as the defaults have, best first."""
    ended = [run for run in made if trials[run["name"]] and len(run["curve"]) == run["epochs"]]
    return [run["name"] for run in sorted(ended, key=lambda run: run["perplexity"])[:count]]


def _plan(given, text):
    """What ``NPLM`` and ``train`` take of settings, nothing of it left open."""
    size, settings = rows.split(given)
    plan = fastnplm.Settings(**COMMON | settings).checked("valid")
    return FORM | size, plan.fitted(len(text.tokens), len(text.vocabulary))


def _logged(size, plan):
    """Size and settings as JSON holds them: a run counts only for what it was made with."""
    return size | rows.logged(plan)


def _run(title, size, plan, logged, text, valid, threads):
    pruning = Pruning([] if title == DEFAULTS else logged, plan.epochs)
    curve, seconds, diverged = [], [], False

    def judge(record):
        curve.append(record["valid_perplexity"])
        seconds.append(record["seconds"])
        return pruning(record)

    settings = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    settings |= {"quiet": True, "threads": threads, "on_epoch": judge}
    try:
        fastnplm.train(fastnplm.NPLM(text.vocabulary, **size), text, valid=valid, **settings)
    except DivergenceError:
        diverged = True
    return {
        "name": title,
        "settings": _logged(size, plan),
        "epochs": plan.epochs,
        "curve": curve,
        "perplexity": min(curve, default=None),
        "diverged": diverged,
        "seconds": sum(seconds),
    }


def _told(run):
    ended = "" if len(run["curve"]) == run["epochs"] else ", given up"
    ended = ", diverged" if run["diverged"] else ended
    best = f"{run['perplexity']:.2f}" if run["curve"] else "–"
    return f"{run['name']}: {best} after {len(run['curve'])} epochs{ended}"


def markdown(found):
    """The runs by what they reached, each against the defaults."""
    usual = next(run["perplexity"] for run in found["runs"] if run["name"] == DEFAULTS)
    lines = [
        f"{found['corpus']}: {found['tokens']:,} tokens, {found['vocabulary']:,} words.",
        "",
        "| run | validation perplexity | against the defaults | epochs |",
        "|---|---|---|---|",
    ]
    for run in sorted(found["runs"], key=lambda run: run["perplexity"] or math.inf):
        best, share = "–", "–"
        if run["curve"]:
            best = f"{run['perplexity']:.2f}"
            share = f"{100 * (run['perplexity'] / usual - 1):+.1f} %"
        epochs = f"{len(run['curve'])} of {run['epochs']}" + (", diverged" * run["diverged"])
        lines.append(f"| {run['name']} | {best} | {share} | {epochs} |")
    return "\n".join(lines) + "\n"
