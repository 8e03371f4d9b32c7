"""A contender in a process of its own: ``python -m bench.worker`` reads orders, line by line.

So every contender has its own allocator, thread pool and BLAS, and its peak memory is its own.
"""

import json
import os
import sys
import time


def make(name, workload, threads):
    """The contender ``name`` for ``workload``; raises UnavailableError with the reason."""
    if name.startswith("torch"):  # imported here alone: it brings an OpenMP of its own
        from . import torch_contenders

        known = torch_contenders.CONTENDERS | torch_contenders.SAMPLED
    elif workload.loss == "softmax":
        from . import contenders, probe

        known = contenders.CONTENDERS | probe.CONTENDERS
    else:
        from . import probe, sampled

        known = sampled.CONTENDERS | probe.CONTENDERS
    return known[name](workload, threads)


class _Served:
    """The orders a worker takes, as methods; each returns what goes back as JSON."""

    def start(self, contender, workload, threads):
        from .contenders import UnavailableError
        from .workloads import Batches, Workload

        self.name = contender
        workload = Workload(**workload)
        try:
            self.contender = make(contender, workload, threads)
        except UnavailableError as reason:
            return {"unavailable": str(reason)}
        self.batches = Batches(workload)
        return {"checkable": self.contender.parameters is not None}

    def check(self, folder):
        from .check import Expected

        Expected.load(folder).check(self.name, self.contender)
        return {"checked": True}

    def run(self, warm_seconds, steps, rate):
        """Steps until ``warm_seconds`` have passed, then timed ones."""
        start = time.perf_counter()
        while time.perf_counter() - start < warm_seconds:
            self.contender.step(*self.batches.next(), rate)
        seconds = []
        for _ in range(steps):
            contexts, targets = self.batches.next()
            start = time.perf_counter()
            self.contender.step(contexts, targets, rate)
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds}

    def memory(self, steps, rate):
        """Bytes that steps need beyond the parameters and the imported libraries."""
        for value in self.contender.parameters.values():
            value.sum()  # pages that were never touched are not resident yet
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak begins again from here
        before = _status("VmRSS")
        for _ in range(steps):
            self.contender.step(*self.batches.next(), rate)
        return {"extra_bytes": _status("VmHWM") - before}


def _status(field):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def main():
    """Serve orders from standard input until it closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not look like an answer
    served = _Served()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(served, order.pop("order"))(**order)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
