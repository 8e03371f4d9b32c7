"""Exact perplexity against seconds at a large vocabulary: who gets there first.

    python -m bench.race --text train.txt --valid valid.txt --min-count 4 --seconds 900 \\
        --output race.json

Each loss trains one network of the same size from the same start, with Adam at a constant rate
and the same batches, until its seconds are used up; the validation perplexity (always the exact
one) is taken at 10, 20, 40, ... seconds, and taking it is not counted. Seconds are those of the
processor on one thread.
"""

import argparse
import functools
import json
from pathlib import Path

import fastnplm
from fastnplm.loss import NCE, NegativeSampling, Softmax

from . import training
from .losses import seconds_to

BATCH, RATE, FIRST_MARK = 512, 1e-3, 10.0

_print = functools.partial(print, flush=True)


def losses(negatives=100, shared=128):
    """The contenders of the race, the quick ones first."""
    return [*(made(negatives, shared=shared) for made in (NegativeSampling, NCE)), Softmax()]


def race(corpus, valid, contenders, seconds, precision="float32", seed=0, tell=_print):
    """Train with each loss for ``seconds``, a dict by the loss's name; yields dicts with
    ``curve``, of [seconds, tokens, perplexity]."""
    for loss in contenders:
        curve = _run(corpus, valid, loss, seconds[loss.name], precision, seed, tell)
        named = {"loss": loss.name, "negatives": getattr(loss, "negatives", None)}
        named |= {"shared": getattr(loss, "shared", None), "vocabulary": len(corpus.vocabulary)}
        yield named | {"precision": precision, "batch": BATCH, "curve": curve}


def _run(corpus, valid, loss, budget, precision, seed, tell):
    model = training.network(corpus, loss, seed)
    mark, curve = FIRST_MARK, []
    for spent, tokens, _ in training.train(model, corpus, BATCH, RATE, seed, precision):
        if spent >= min(mark, budget):
            perplexity = fastnplm.evaluate(model, valid, threads=1).perplexity
            curve.append([spent, tokens, perplexity])
            tell(f"{loss}: {spent:.0f} s, {tokens:,} tokens, perplexity {perplexity:.1f}")
            mark *= 2
            if spent >= budget:
                return curve
    raise AssertionError("training never ends")


def table(found):
    """Markdown: each loss's last perplexity, and how soon it passed the exact softmax's last."""
    from .report import table as lines

    softmax = next(run for run in found if run["loss"] == "softmax")
    seconds, _, target = softmax["curve"][-1]
    rows = []
    for run in found:
        spent, tokens, last = run["curve"][-1]
        reached = seconds_to([(s, p) for s, _, p in run["curve"]], target)
        sooner = f"{reached:.0f} s" if reached else "never"
        if reached and run is not softmax:
            bound = " or less" if run["curve"][0][2] <= target else ""  # it was there before
            sooner += f"{bound}, {seconds / reached:.0f} times sooner"
        name = run["loss"]
        if run["negatives"]:
            name += f", K={run['negatives']} shared by {run['shared']}"
        rows.append((name, f"{spent:.0f}", f"{tokens:,}", f"{last:.1f}", sooner))
    head = ("", "seconds", "tokens", "perplexity", f"reached {target:.1f} after")
    return lines(head, rows)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m bench.race", description=__doc__)
    parser.add_argument("--text", required=True, help="training text")
    parser.add_argument("--valid", required=True, help="validation text")
    parser.add_argument("--min-count", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3600, help="of the exact softmax")
    parser.add_argument("--sampled-seconds", type=float, default=600, help="of each other loss")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    given = parser.parse_args(argv)
    contenders = losses()
    seconds = {loss.name: given.sampled_seconds for loss in contenders}
    seconds["softmax"] = given.seconds
    corpus = fastnplm.Corpus.prepare(given.text, min_count=given.min_count, reserved="whitespace")
    with corpus, fastnplm.Corpus.prepare(given.valid, vocabulary=corpus.vocabulary) as valid:
        found = []
        for run in race(corpus, valid, contenders, seconds, given.precision):
            found.append(run)
            given.output.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    if given.plot:
        from . import plots

        plots.race(found, given.plot)


if __name__ == "__main__":
    main()
