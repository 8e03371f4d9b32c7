"""How a step's time grows: with V, B, H, N, the rule and the threads; and the memory it needs."""

import dataclasses

from . import rounds, workloads

BASE = workloads.SIZES["M"]
LADDERS = {
    "vocabulary": (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000),
    "batch": (32, 64, 128, 256, 512, 1024),
    "hidden": (50, 100, 200, 400, 800),
    "context": (1, 2, 4, 8, 16),
}
QUICK = {"vocabulary": (1_000, 5_000, 20_000)}
OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam")
CONTENDERS = ("roof", "native", "native bf16")
SMALL_BATCH = 64  # of the ladder over V, so that V = 500,000 stays short


def ladder(dimension, quick=False):
    """The workloads of one ladder: M with one size changed; over V with a small batch."""
    values = (QUICK if quick else LADDERS)[dimension]
    base = BASE
    if dimension == "vocabulary":
        base = dataclasses.replace(BASE, batch=SMALL_BATCH)
    elif dimension != "batch":
        base = dataclasses.replace(BASE, vocabulary=10_000)
    return [
        dataclasses.replace(base, name=f"{dimension} {value}", **{dimension: value})
        for value in values
    ]


def measure(dimension, threads=1, count=3, lock=None, quick=False, tell=None):
    """The ladder's results: for each workload all CONTENDERS in interleaved rounds.

    Results are not checked again here: the same contenders were, at S, M and L.
    """
    found = []
    names = CONTENDERS
    if dimension == "vocabulary" and not quick:
        names = (*CONTENDERS, "numpy tuned", "torch tuned")
    for workload in ladder(dimension, quick):
        entries = [(name, workload, threads) for name in names]
        if dimension == "vocabulary":
            sampled = dataclasses.replace(workload, loss="ns")
            entries.append(("native", sampled, threads))
        found += rounds.measure(entries, count, lock, check=False, tell=tell)
    return found


def optimizers(count=5, lock=None, tell=None, size="M"):
    """The native step with each rule at M: what the state costs."""
    entries = [
        ("native", dataclasses.replace(workloads.SIZES[size], optimizer=rule), 1)
        for rule in OPTIMIZERS
    ]
    return rounds.measure(entries, count, lock, check=False, rate=1e-4, tell=tell)


def thread_gain(workload, count=5, lock=None, tell=None, most=2):
    """Steps and multiply-add probes with 1 and ``most`` threads, in the same rounds."""
    entries = [
        (name, workload, threads)
        for name in ("probe", "native", "native bf16")
        for threads in (1, most)
    ]
    return rounds.measure(entries, count, lock, check=False, tell=tell)


def memory(workload, names, threads=1, steps=2):
    """Bytes each contender's steps need beyond its parameters: dicts, one a contender."""
    found = []
    for name in names:
        worker = rounds.Worker(name, workload, threads)
        try:
            if worker.unavailable:
                continue
            extra = worker.order("memory", steps=steps, rate=workloads.LEARNING_RATE)
        finally:
            worker.close()
        scores = workload.batch * workload.vocabulary * 4
        found.append({"contender": name, "workload": workload.name, "scores_bytes": scores} | extra)
    return found
