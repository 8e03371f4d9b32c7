"""Which loss to choose: tokens a second and memory for each, and perplexity against seconds.

Throughput is measured on Zipf-distributed ids for V = 10k, 50k and 200k. Perplexity against
seconds comes from real text (``--text`` and ``--valid``); only training is timed, validation is
not. ``python -m bench.losses --text train.txt --valid valid.txt --output losses.json``.
"""

import argparse
import dataclasses
import json
import math
from pathlib import Path

import fastnplm
from fastnplm.loss import NCE, NegativeSampling, Softmax
from fastnplm.schedule import resolve as schedule_for

from . import rounds, scaling, training, workloads

VOCABULARIES = (10_000, 50_000, 200_000)
NEGATIVES = (10, 50, 200)
SHARING = ((5, 20, 100, 500), (1, 8, 32, 128, 1024))  # K, and examples that share their noise
BASE = dataclasses.replace(workloads.SAMPLED["ns-50k"], name="losses")


def settings(vocabularies=VOCABULARIES, negatives=NEGATIVES):
    """The workloads of the table: softmax, and ns and nce for each K, noise for each example."""
    found = []
    for size in vocabularies:
        base = dataclasses.replace(BASE, vocabulary=size)
        found.append(dataclasses.replace(base, loss="softmax"))
        found += [
            dataclasses.replace(base, loss=loss, negatives=count)
            for loss in ("ns", "nce")
            for count in negatives
        ]
    return found


def speed(threads=1, count=3, lock=None, tell=None, chosen=None):
    """Results of the native step for each workload of the table, and its extra memory."""
    found = []
    for workload in chosen or settings():
        (result,) = rounds.measure([("native", workload, threads)], count, lock, False, tell=tell)
        record = result.record()
        if not result.unavailable:
            record |= scaling.memory(workload, ["native"], threads)[0]
            record["workload"] = dataclasses.asdict(workload)
        found.append(record)
    return found


def sharing(count=3, lock=None, tell=None):
    """The sampled step with noise for each example, and shared by blocks of examples."""
    entries = [
        ("native", dataclasses.replace(BASE, negatives=negatives, shared=shared), 1)
        for negatives in SHARING[0]
        for shared in SHARING[1]
    ]
    return [r.record() for r in rounds.measure(entries, count, lock, check=False, tell=tell)]


def quality(text, valid, epochs, tell=print, batch=256, lr=1e-3, seed=0, precision="float32"):
    """Train with each loss of ``epochs`` and follow the exact validation perplexity.

    epochs : dict from a loss object to how many epochs it is given (its cosine schedule ends
    there). Returns a list of dicts: loss, negatives, and ``curve``, of [seconds of the processor,
    perplexity].
    """
    corpus = fastnplm.Corpus.prepare(text, min_count=1)
    with corpus, fastnplm.Corpus.prepare(valid, vocabulary=corpus.vocabulary) as held_out:
        found = []
        for loss, count in epochs.items():
            curve = _curve(corpus, held_out, loss, count, tell, batch, lr, seed, precision)
            named = {"loss": loss.name, "negatives": getattr(loss, "negatives", None)}
            named |= {"shared": getattr(loss, "block", None), "epochs": count, "curve": curve}
            named |= {"vocabulary": len(corpus.vocabulary), "batch": batch, "precision": precision}
            found.append(named)
    return found


def _curve(corpus, valid, loss, epochs, tell, batch, lr, seed, precision):
    model = training.network(corpus, loss, seed)
    schedule = schedule_for("cosine")
    updates = epochs * -(-len(corpus.tokens) // batch)

    def factor(update):
        return schedule.factor(update, updates)

    curve = []
    for spent, _, ended in training.train(model, corpus, batch, lr, seed, precision, factor):
        if ended == len(curve):
            continue
        perplexity = fastnplm.evaluate(model, valid, threads=1).perplexity
        curve.append([spent, perplexity])
        tell(f"{loss}: epoch {ended}, {spent:.1f} s, perplexity {perplexity:.2f}")
        if ended == epochs:
            return curve
    raise AssertionError("training never ends")


def seconds_to(curve, perplexity):
    """Seconds at which a curve first reaches ``perplexity``, between epochs along a line in
    log seconds; None if it never does."""
    before = None
    for seconds, reached in curve:
        if reached <= perplexity:
            if before is None:
                return seconds
            share = (before[1] - perplexity) / (before[1] - reached)
            return math.exp((1 - share) * math.log(before[0]) + share * math.log(seconds))
        before = (seconds, reached)
    return None


def usual(softmax_epochs=4, sampled_epochs=8, negatives=NEGATIVES):
    """The losses of the table with their epochs."""
    chosen = {Softmax(): softmax_epochs}
    for made in (NegativeSampling, NCE):
        chosen |= {made(count): sampled_epochs for count in negatives}
    return chosen


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m bench.losses", description=__doc__)
    parser.add_argument("--text", help="training text")
    parser.add_argument("--valid", help="validation text")
    parser.add_argument("--softmax-epochs", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=8, help="of the sampled losses")
    parser.add_argument("--threads", type=int, default=1, help="of the steps timed without text")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--lock", help="a file whose lock is held while steps are timed")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args(argv)
    if given.text:
        chosen = usual(given.softmax_epochs, given.epochs)
        found = quality(given.text, given.valid, chosen, precision=given.precision)
    else:
        found = speed(given.threads, lock=given.lock)
    given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
