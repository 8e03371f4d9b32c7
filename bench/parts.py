"""Where a step's time goes: the share of each kernel, and of the Python around them."""

import collections
import statistics
import time

from fastnplm.step import Step

from . import rounds, workloads


class _Timed:
    """A kernel module whose functions add their time to ``seconds``, by name."""

    def __init__(self, module):
        self._module = module
        self.seconds = collections.Counter()

    def __getattr__(self, name):
        found = getattr(self._module, name)
        if not callable(found):
            return found

        def timed(*arguments, **settings):
            start = time.perf_counter()
            try:
                return found(*arguments, **settings)
            finally:
                self.seconds[name] += time.perf_counter() - start

        return timed


def measure(workload, kernels="native", threads=1, count=5, lock=None):
    """Median seconds of each part of a step, over ``count`` rounds: a dict by kernel name.

    "rest" is what the step takes beyond its kernels: drawing random bits, and Python.
    """
    network = workloads.network(workload)
    timed = _Timed(network.kernels(kernels))
    network.kernels = lambda name: timed
    step = Step(
        network, workload.optimizer, workload.batch, threads=threads, buffer_mib=workload.buffer
    )
    batches = workloads.Batches(workload)
    found = []
    for _ in range(count):
        with rounds.quiet(lock):
            step(*batches.next())
            timed.seconds.clear()
            start = time.perf_counter()
            steps = 0
            while steps < 1 or time.perf_counter() - start < 0.3:
                step(*batches.next())
                steps += 1
            whole = (time.perf_counter() - start) / steps
        parts = {name: seconds / steps for name, seconds in timed.seconds.items()}
        parts["rest"] = whole - sum(parts.values())
        found.append(parts)
    return {name: statistics.median(parts[name] for parts in found) for name in found[0]}
