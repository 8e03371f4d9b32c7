"""Whole steps under pytest-benchmark: each is compared with float64 before it is timed.

``pytest bench`` times contenders one after the other in one process: good for a glance and for
comparing commits (``--benchmark-autosave``). Ratios for print come from ``python -m bench``.
"""

import dataclasses
import functools

import pytest

from bench import check, steps, worker, workloads
from bench.contenders import UnavailableError

SIZES = ("tiny", "S", "ns-50k")
NAMES = tuple(dict.fromkeys(name for size in SIZES for name in steps.contenders(
    workloads.SIZES[size]) if not name.endswith(" tuned") or name == "numpy tuned"))  # fmt: skip


@functools.cache
def expected(size):
    return check.Expected.compute(workloads.SIZES[size])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_step(benchmark, name, size):
    workload = workloads.SIZES[size]
    if name not in steps.contenders(workload):
        pytest.skip(f"{name} is no contender at {size}")
    try:
        contender = worker.make(name, workload, 1)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    if contender.parameters is not None:
        expected(size).check(name, contender)
    batches = workloads.Batches(workload)
    benchmark.group = f"step {size}"
    benchmark.extra_info |= dataclasses.asdict(workload)
    benchmark.pedantic(
        lambda contexts, targets: contender.step(contexts, targets, workloads.LEARNING_RATE),
        setup=lambda: (batches.next(), {}), rounds=10, warmup_rounds=2,
    )  # fmt: skip
