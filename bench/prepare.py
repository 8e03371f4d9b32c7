"""Preparing a corpus against gensim's build_vocab and ``wc -w`` on the same text; feeding a step.

Every run is a process of its own, as a user's is: it warms the processor for a second, then times
the job twice. On one core the process may use no other. ``python -m bench --only prepare --text
FILE`` measures; FILE is plain UTF-8.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from . import rounds

MIN_COUNT = 3
WARM_SECONDS = 1.0
RUNS = 2  # in one process: the first has its memory to get from the system

# Of a step: what the fastest loss is fed in, and for how long that is timed.
CONTEXT, DIM, HIDDEN, NEGATIVES, BATCH, FEED_SECONDS = 4, 100, 200, 10, 1024, 3.0


def _fastnplm(text, threads):
    from fastnplm.corpus import Corpus

    with tempfile.TemporaryDirectory(prefix="fastnplm-bench-") as folder:
        start = time.perf_counter()
        corpus = Corpus.prepare(
            text, out=Path(folder, "corpus"), min_count=MIN_COUNT, threads=threads,
            reserved="whitespace",
        )  # fmt: skip
        seconds = time.perf_counter() - start
        with corpus:
            return seconds, corpus.report.words, len(corpus.vocabulary) - 3


def _gensim(text):
    from gensim.models import Word2Vec
    from gensim.models.word2vec import LineSentence

    model = Word2Vec(min_count=MIN_COUNT, workers=1)
    start = time.perf_counter()
    model.build_vocab(LineSentence(text))
    return time.perf_counter() - start, model.corpus_total_words, len(model.wv)


def _wc(text):
    start = time.perf_counter()
    done = subprocess.run(
        ["wc", "-w", text], capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"}
    )
    return time.perf_counter() - start, int(done.stdout.split()[0]), None


# Name -> (the job, cores it may use).
CONTENDERS = {
    "fastnplm, one core": (lambda text: _fastnplm(text, 1), 1),
    "fastnplm, two cores": (lambda text: _fastnplm(text, 2), 2),
    "gensim build_vocab": (_gensim, 1),
    "wc -w": (_wc, 1),
}


def run(name, text):
    """Do a contender's job in this process: its seconds, words, vocabulary and peak memory."""
    job, cores = CONTENDERS[name]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    _warm(text, cores)
    found = [job(text) for _ in range(RUNS)]
    return {
        "seconds": [seconds for seconds, *_ in found],
        "words": found[0][1],
        "vocabulary": found[0][2],
        "peak_bytes": peak_memory(),
    }


def _warm(text, cores):
    """The file in the page cache, and the processor awake."""
    with open(text, "rb") as file:
        while file.read(1 << 20):
            pass

    def spin():
        import hashlib

        block, until = bytes(1 << 20), time.perf_counter() + WARM_SECONDS
        while time.perf_counter() < until:
            hashlib.sha256(block).digest()

    spinning = [threading.Thread(target=spin) for _ in range(cores)]
    for thread in spinning:
        thread.start()
    for thread in spinning:
        thread.join()


def peak_memory():
    """The largest resident size this process has had, in bytes; None where it is not told."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def measure(text, count=3, lock=None, tell=print):
    """All contenders in ``count`` interleaved rounds: a dict for the JSON."""
    found = {"text_bytes": os.path.getsize(text), "contenders": {}}
    for number in range(count):
        for name in CONTENDERS:
            with rounds.quiet(lock):
                done = subprocess.run(
                    [sys.executable, "-m", "bench.prepare", name, str(text)], check=False,
                    capture_output=True, text=True, cwd=Path(__file__).parents[1],
                )  # fmt: skip
            if done.returncode:
                tell(f"{name}: not run: {done.stderr.strip().splitlines()[-1]}")
                continue
            record = json.loads(done.stdout)
            kept = found["contenders"].setdefault(
                name, {"first": [], "again": [], "peak_bytes": 0} | record
            )
            kept.pop("seconds", None)
            kept["first"].append(record["seconds"][0])
            kept["again"].append(min(record["seconds"][1:]))
            kept["peak_bytes"] = max(kept["peak_bytes"] or 0, record["peak_bytes"] or 0)
            tell(f"round {number + 1}, {name}: {', '.join(f'{s:.3f}' for s in record['seconds'])}")
    return found


def speedups(found, which="first"):
    """How many times as fast as gensim each is in the same round: name -> the median."""
    contenders = found["contenders"]
    base = contenders.get("gensim build_vocab")
    if base is None:
        return {}
    return {
        name: statistics.median(b / a for a, b in zip(record[which], base[which], strict=True))
        for name, record in contenders.items()
    }


def feed(text, lock=None, tell=print):
    """Seconds a token of making batches, and of the steps that use them, for the fastest losses."""
    import numpy as np

    import fastnplm
    from fastnplm import kernels
    from fastnplm.batches import epoch_of
    from fastnplm.loss import NegativeSampling
    from fastnplm.step import Step

    native = kernels.load("native")
    contexts, targets = np.empty((BATCH, CONTEXT), np.int32), np.empty(BATCH, np.int32)
    found = []
    with fastnplm.Corpus.prepare(
        text, max_vocab=50_000, min_count=MIN_COUNT, reserved="whitespace"
    ) as corpus:
        words = corpus.vocabulary

        def batches(epoch):
            for positions in epoch_of(corpus, BATCH, epoch=epoch):
                size = len(positions)
                native.form_contexts(
                    corpus.tokens, positions, words.start_id, words.end_id, contexts[:size],
                    targets[:size],
                )  # fmt: skip
                yield contexts[:size], targets[:size]

        with rounds.quiet(lock):
            for _ in batches(0):  # the stream comes into the page cache
                pass
            start = time.perf_counter()
            for _ in batches(1):
                pass
            making = (time.perf_counter() - start) / len(corpus)
        for shared, precision in ((1, "float32"), (32, "float32"), (32, "bf16")):
            model = fastnplm.NPLM(words, context=CONTEXT, dim=DIM, hidden=HIDDEN)
            model.adopt(NegativeSampling(NEGATIVES, shared=shared))
            rule = fastnplm.optimizer.resolve("sgd", lr=0.05)
            step = Step(model, rule, BATCH, threads=1, precision=precision)
            kept = [(c.copy(), t.copy()) for _, (c, t) in zip(range(200), batches(2), strict=False)]
            with rounds.quiet(lock):
                steps, until = 0, time.perf_counter() + FEED_SECONDS
                start = time.perf_counter()
                while time.perf_counter() < until:
                    step(*kept[steps % len(kept)])
                    steps += 1
                spent = (time.perf_counter() - start) / (steps * BATCH)
            name = f"ns, K={NEGATIVES}, noise shared by {shared}, {precision}"
            found.append({"step": name, "making_seconds": making, "step_seconds": spent})
            tell(f"{name}: batches {making * 1e9:.1f} ns a token, steps {spent * 1e9:,.0f}")
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m bench.prepare", description=__doc__)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("text")
    given = parser.parse_args(argv)
    print(json.dumps(run(given.contender, given.text)))


if __name__ == "__main__":
    main()
