"""Each kernel of each module under pytest-benchmark, compared with float64 before it is timed."""

import itertools

import pytest

from bench import kernel_check, kernels, workloads

SIZE = workloads.SIZES["S"]
CASES = {case.name: case for case in kernels.cases(SIZE)}
MODULES = kernels.modules()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("name", CASES)
def test_kernel(benchmark, name, module):
    case = CASES[name]
    kernel_check.check(case, module, MODULES[module])
    # On arrays of its own: the next module is checked on those it was given.
    turn = itertools.cycle(case.fresh().calls(MODULES[module], 1))
    benchmark.group = f"kernel {name} {SIZE.name}"
    benchmark.extra_info |= {"flops": case.flops, "bytes": case.moved}
    benchmark.pedantic(lambda call: call(), setup=lambda: ((next(turn),), {}), rounds=20,
                       warmup_rounds=1)  # fmt: skip
