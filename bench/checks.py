"""What the checks cost of a training step: ``python -m bench.checks``, one thread.

On: steps as training takes them. Off: less what the checks take. These are timed alone: each
kernel call of a step once more with two of its arrays laid over one another, which is the last
thing that is looked at, so that all is checked, ids too, and nothing done (less what such an error
takes that is raised by Python); and the looks of the training loop, at the mapped file, at the
loss and for signals.
"""

import argparse
import json
import time

import numpy as np

import fastnplm
from fastnplm import kernels
from fastnplm.errors import ArrayError
from fastnplm.interrupts import Interrupts

from . import workloads

NAMES = ("S", "brown", "ns-50k", "tiny")
TOKENS = 40_000


class Recorder:
    """The native kernels, remembering the calls of one step."""

    def __init__(self):
        self.module = kernels.load("native")
        self.calls = None

    def __getattr__(self, name):
        function = getattr(self.module, name)
        if not callable(function) or name.endswith("_scratch"):
            return function

        def call(*arguments, **named):
            if self.calls is not None:
                self.calls.append((function, list(arguments), dict(named)))
            return function(*arguments, **named)

        return call


def overlapping(first, second):
    """The two arrays as copies, the second beginning in the last bytes of the first."""
    begin = max(first.nbytes - 1, 0) // 8 * 8
    raw = np.empty(begin + max(first.nbytes, second.nbytes) + 8, np.uint8)
    one = raw[: first.nbytes].view(first.dtype).reshape(first.shape)
    two = raw[begin : begin + second.nbytes].view(second.dtype).reshape(second.shape)
    one[...] = first
    two[...] = second
    return one, two


def refused_at_last(function, arguments, named):
    """Arguments with which the call passes every check but that for overlapping arrays."""
    places = [at for at, value in enumerate(arguments) if getattr(value, "size", 0)]
    for first in reversed(places):
        for second in places:
            if first == second or not isinstance(arguments[second], np.ndarray):
                continue
            changed = list(arguments)
            changed[first], changed[second] = overlapping(arguments[first], arguments[second])
            if changed[second].dtype.kind in "iu" and first > second:
                changed[second][...] = arguments[second]
            try:
                function(*changed, **named)
            except ArrayError as error:
                if "overlaps" in str(error):
                    return changed
            except fastnplm.Error:
                continue
    raise RuntimeError(f"no two arrays of {function.__name__} can be laid over one another")


def seconds_of(work, times):
    """Median of so many timings of ``work``."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return float(np.median(found))


def raised(**named):
    """What a refused call does beside its checks."""
    raise ArrayError(f"{'one'} overlaps {'other'}; pass arrays of their own")


def refused(function, arguments, named):
    try:
        function(*arguments, **named)
    except ArrayError:
        return
    raise RuntimeError(f"{function.__name__} was not refused")


def measure(workload, rounds):
    """Seconds of a step, of its kernels' checks and of the loop's, and the share of both."""
    words = ["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(workload.vocabulary - 3)]
    shares = workloads.zipf(workload.vocabulary)
    counts = np.maximum(np.rint(shares * workload.vocabulary), 1).astype(np.int64)
    vocabulary = fastnplm.Vocabulary(words, [1, 0, *sorted(counts[2:].tolist(), reverse=True)])
    ids = np.random.default_rng(0).choice(workload.vocabulary - 3, TOKENS, p=_rest(shares)) + 3
    lines = (" ".join(words[i] for i in ids[low : low + 20]) for low in range(0, TOKENS, 20))
    recorder = Recorder()
    with fastnplm.Corpus.prepare(lines, vocabulary=vocabulary) as corpus:
        model = fastnplm.NPLM(
            vocabulary, context=workload.context, dim=workload.dim, hidden=workload.hidden
        )
        losses = {"softmax": fastnplm.Softmax(), "ns": fastnplm.NegativeSampling(10)}
        model.adopt(losses[workload.loss])
        loaded, kernels.load = kernels.load, lambda name="auto": recorder
        try:
            step = fastnplm.Step(model, workload.optimizer, workload.batch, threads=1)
        finally:
            kernels.load = loaded
        contexts = np.empty((workload.batch, workload.context), np.int32)
        targets = np.empty(workload.batch, np.int32)
        positions = np.random.default_rng(1).permutation(len(corpus))[: workload.batch]
        interrupts = Interrupts()
        interrupts.__enter__()

        def looks():
            corpus.check()
            interrupts.check()
            _ = not loss < 700.0

        def batch():
            nonlocal loss
            recorder.form_contexts(
                corpus.tokens, positions, vocabulary.start_id, vocabulary.end_id, contexts, targets
            )
            loss = step(contexts, targets)
            looks()

        loss = 0.0
        batch()
        recorder.calls = []
        batch()
        calls, recorder.calls = recorder.calls, None
        on = seconds_of(batch, rounds)
        error = seconds_of(lambda: refused(raised, (), {"threads": 1}), 1000)
        per_kernel = {}
        for function, arguments, named in calls:
            changed = refused_at_last(function, arguments, named)
            taken = seconds_of(lambda f=function, c=changed, n=named: refused(f, c, n), 200)
            name = function.__name__
            per_kernel[name] = per_kernel.get(name, 0.0) + max(taken - error, 0.0)
        loop = seconds_of(looks, 200)
        interrupts.__exit__()
    checks = sum(per_kernel.values()) + loop
    return {
        "workload": workload.name, "on": on, "off": on - checks, "checks": checks, "loop": loop,
        "kernels": per_kernel, "share": checks / (on - checks),
    }  # fmt: skip


def _rest(shares):
    return shares[3:] / shares[3:].sum()


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m bench.checks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", help="write the results to this file")
    given = parser.parse_args(argv)
    results = [measure(workloads.SIZES[name], given.rounds) for name in NAMES]
    print(f"{'':10}{'on, ms':>10}{'off, ms':>10}{'checks, us':>12}{'overhead':>10}")
    for found in results:
        print(
            f"{found['workload']:10}{found['on'] * 1e3:10.3f}{found['off'] * 1e3:10.3f}"
            f"{found['checks'] * 1e6:12.1f}{found['share']:10.2%}"
        )
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
