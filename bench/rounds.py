"""Interleaved rounds: every contender runs in every round, so ratios come from one run."""

import contextlib
import dataclasses
import fcntl
import glob
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

from . import workloads

TCMALLOC = "/usr/lib/*/libtcmalloc_minimal.so.4"
TIMED_SECONDS = 0.3  # of steps of a contender in a round, and at least one step
MOST_STEPS = 60


@dataclasses.dataclass
class Result:
    """One contender in one setting: the median step of each round, in seconds."""

    contender: str
    workload: workloads.Workload
    threads: int
    seconds: list = dataclasses.field(default_factory=list)
    unavailable: str | None = None
    checked: bool = False

    @property
    def median(self):
        return statistics.median(self.seconds)

    def record(self):
        """The result as it goes into the JSON."""
        found = dataclasses.asdict(self)
        if self.seconds:
            low, middle, high = quartiles(self.seconds)
            found |= {"quartiles": [low, high], "median": middle}
            found["tokens_per_second"] = self.workload.batch / middle
        return found


def quartiles(values):
    """(lower quartile, median, upper quartile), of a single value thrice that value."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


class Worker:
    """A contender's process. A name ending in " tuned" is its contender with tcmalloc preloaded
    and transparent huge pages asked for."""

    def __init__(self, name, workload, threads):
        self.name, self.workload, self.threads = name, workload, threads
        environment = dict(os.environ)
        for pool in ("OPENBLAS", "OMP", "MKL", "NUMBA"):
            environment[f"{pool}_NUM_THREADS"] = str(threads)
        contender = name
        self.unavailable = None
        if name.startswith("torch") and name.endswith(" tuned"):
            contender = name.removesuffix(" tuned")
            libraries = glob.glob(TCMALLOC)
            environment["THP_MEM_ALLOC_ENABLE"] = "1"
            environment["LD_PRELOAD"] = libraries[0] if libraries else ""
            if not libraries:
                self.unavailable = "libtcmalloc_minimal is not installed"
                return
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment,
        )  # fmt: skip
        answer = self.order(
            "start", contender=contender, workload=dataclasses.asdict(workload), threads=threads
        )
        self.checkable = answer.get("checkable", False)
        self.unavailable = answer.get("unavailable")
        self._step_seconds = None

    def order(self, order, **arguments):
        """Send an order, wait for the answer; an error there is one here."""
        self._process.stdin.write(json.dumps({"order": order} | arguments) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with code {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}, {self.workload.name}: {answer['error']}")
        return answer

    def round(self, warm_seconds, rate=workloads.LEARNING_RATE):
        """The median step of one round, in seconds, after warming up."""
        if self._step_seconds is None:
            warm_seconds = max(warm_seconds, 1e-9)  # the first step touches fresh memory
            seconds = self.order("run", warm_seconds=warm_seconds, steps=1, rate=rate)["seconds"]
            self._step_seconds = seconds[0]
            warm_seconds = 0
        steps = math.ceil(TIMED_SECONDS / self._step_seconds)
        steps = min(max(steps, 1), MOST_STEPS)
        answer = self.order("run", warm_seconds=warm_seconds, steps=steps, rate=rate)
        return statistics.median(answer["seconds"])

    def close(self):
        if getattr(self, "_process", None) is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()


@contextlib.contextmanager
def quiet(lock):
    """Hold ``lock`` (a file's path, or None) exclusively, so that others can keep out of the way.

    The same lock as flock(1) takes.
    """
    if lock is None:
        yield
        return
    with open(lock, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def measure(entries, rounds=5, lock=None, check=True, rate=workloads.LEARNING_RATE, tell=None):
    """Time ``entries``, a list of (contender, workload, threads), in interleaved rounds.

    Every checkable contender is compared with the float64 step first. The order turns by one
    each round, so that nobody always follows the same neighbour. Returns a list of Result.
    ``lock`` is held during a round, never longer; ``tell`` is called with progress, a line each.
    """
    tell = tell or (lambda line: print(line, file=sys.stderr))
    workers, results = [], []
    with contextlib.ExitStack() as stack:
        expected = {}
        for name, workload, threads in entries:
            result = Result(name, workload, threads)
            results.append(result)
            worker = Worker(name, workload, threads)
            stack.callback(worker.close)
            result.unavailable = worker.unavailable
            if worker.unavailable:
                tell(f"{name}: {worker.unavailable}")
                continue
            workers.append((worker, result))
            if check and worker.checkable:
                folder = _expected(workload, expected, stack)
                worker.order("check", folder=folder)
                result.checked = True
        for number in range(rounds):
            began = time.perf_counter()
            turn = number % max(len(workers), 1)
            with quiet(lock):
                for worker, result in workers[turn:] + workers[:turn]:
                    # Virtual cores may share a physical one after a rest, for up to half a second.
                    warm = 0.6 if worker.threads > 1 else 0.1
                    if number and (worker._step_seconds or 0) > 0.5:
                        warm = 0.0 if worker.threads == 1 else 1e-9
                    result.seconds.append(worker.round(warm, rate))
            tell(f"round {number + 1} of {rounds}: {time.perf_counter() - began:.1f} s")
    return results


def _expected(workload, known, stack):
    key = dataclasses.replace(workload, buffer_mib=None)
    if key not in known:
        from .check import Expected

        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fastnplm-bench-"))
        Expected.compute(workload).save(folder)
        known[key] = folder
    return known[key]


def ratios(results, subject, peer):
    """Quartiles of ``peer``'s time over ``subject``'s, round by round: how much faster."""
    pairs = zip(subject.seconds, peer.seconds, strict=True)
    return quartiles([other / mine for mine, other in pairs])
