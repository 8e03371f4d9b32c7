"""Measure what the processor can do at most: ``probe.c``, compiled for where it runs."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from .contenders import UnavailableError

LANES, CHAINS = 16, 12
ROUNDS = 1_000_000


@functools.cache
def library():
    """The compiled probe as a ctypes library; raises UnavailableError without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise UnavailableError("no C compiler to build the probe with")
    source = Path(__file__).with_name("probe.c")
    folder = tempfile.mkdtemp(prefix="fastnplm-probe-")
    target = Path(folder) / "probe.so"
    command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UnavailableError(f"the probe does not compile: {done.stderr.strip()[:200]}")
    found = ctypes.CDLL(str(target))
    shutil.rmtree(folder)
    size, pointer = ctypes.c_ssize_t, ctypes.c_void_p
    found.fused_multiply_adds.argtypes = [size, ctypes.c_float]
    found.fused_multiply_adds.restype = ctypes.c_float
    if hasattr(found, "bfloat16_dots"):
        found.bfloat16_dots.argtypes = [size, ctypes.c_float]
        found.bfloat16_dots.restype = ctypes.c_float
    found.copy.argtypes = [size, pointer, pointer]
    found.modify.argtypes = [size, ctypes.c_float, pointer]
    return found


def multiply_add_peak(precision="float32"):
    """Operations a second of one thread; None where the processor has no such instruction."""
    name = "fused_multiply_adds" if precision == "float32" else "bfloat16_dots"
    call = getattr(library(), name, None)
    if call is None:
        return None
    operations = (2 if precision == "float32" else 4) * LANES * CHAINS * ROUNDS
    return operations / _best(lambda: call(ROUNDS, 0.5))


def bandwidth(megabytes, kind="copy"):
    """Bytes a second of one thread, reads and writes counted, over arrays of ``megabytes``."""
    count = int(megabytes * 2**20 / 4) // (4 * LANES) * 4 * LANES
    values = np.ones(count, np.float32)
    repeats = max(1, int(64 / megabytes))
    if kind == "copy":
        target = np.zeros(count, np.float32)
        arguments = (library().copy, count, values.ctypes.data, target.ctypes.data)
    else:
        arguments = (library().modify, count, 1.0, values.ctypes.data)

    def run():
        for _ in range(repeats):
            arguments[0](*arguments[1:])

    run()
    return 2 * 4 * count * repeats / _best(run)


def _best(call, times=5):
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


class MultiplyAdds:
    """A contender that only multiplies and adds, in registers: what threads can gain at most."""

    parameters = None

    def __init__(self, workload, threads):
        self._call = library().fused_multiply_adds
        self._pool = ThreadPoolExecutor(threads)
        self._parts = [ROUNDS // threads] * threads

    def step(self, contexts, targets, rate):
        for done in self._pool.map(lambda count: self._call(count, 0.5), self._parts):
            assert done == done
        return 0.0


CONTENDERS = {"probe": MultiplyAdds}
