"""Every kernel module before its three judges."""

import inspect

import broken
import cases
import judges
import pytest
from subjects import MODULES, SUBJECTS

from fastnplm.kernels import reference

EVERY = [
    pytest.param(case, id=str(case), marks=[pytest.mark.slow] if case.slow else [])
    for case in cases.every()
]
BF16 = [pytest.param(case, id=str(case)) for case in cases.bf16_cases()]
TOP_K = [pytest.param(case, exact, id=str(case)) for case, exact in cases.top_k_cases()]


@pytest.mark.parametrize("case", EVERY)
def test_the_specification_is_the_oracles(case):
    judges.check_yardstick(case)


@pytest.mark.parametrize(("case", "exact"), TOP_K)
def test_the_specifications_best_words(case, exact):
    judges.check_top_k(reference, case, exact)


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("case", EVERY)
def test_subject_errs_no_more_than_numpy(subject, case):
    with subject() as module:
        judges.check(module, case)


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("case", BF16)
def test_bf16_errs_no_more_than_rounded_inputs(subject, case):
    with subject() as module:
        for keep in (True, False):
            judges.judge_bf16(case, judges.run(module, case, keep=keep))


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize(("case", "exact"), TOP_K)
def test_best_words(subject, case, exact):
    with subject() as module:
        judges.check_top_k(module, case, exact)


@pytest.mark.parametrize("name", broken.TWINS)
def test_a_broken_twin_is_rejected(name):
    kernel, module = broken.TWINS[name]
    rejected = 0
    for case in cases.every():
        if case.kernel == kernel and not case.slow:
            try:
                judges.check(module, case)
            except judges.FAILURES:
                rejected += 1
    assert rejected, f"no case of {kernel} rejects {name}"


def test_modules_have_the_same_functions_and_arguments():
    for name in judges.PUBLIC:
        wanted = inspect.signature(getattr(reference, name))
        for module in MODULES:
            assert inspect.signature(getattr(module, name)) == wanted, (module.__name__, name)
