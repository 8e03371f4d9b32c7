"""Every kernel module before its three judges."""

import inspect

import broken
import cases
import judges
import numpy as np
import pytest
from subjects import MODULES, SUBJECTS

from fastnplm.kernels import reference

CASES = {}
for _case in cases.every():
    CASES.setdefault((_case.kernel, _case.slow), []).append(_case)
GROUPS = [
    pytest.param(kernel, slow, id=f"{kernel} large" if slow else kernel, marks=marks)
    for kernel, slow in CASES
    for marks in ([pytest.mark.slow] if slow else [],)
]

LARGE = [pytest.param(False, id="small"), pytest.param(True, id="large", marks=pytest.mark.slow)]


def each(given, check):
    """Check every case; the failure says which ones did not pass, and how."""
    failures = []
    for case in given:
        try:
            check(case)
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, f"{len(failures)} of {len(given)} cases fail\n" + "\n".join(failures)


@pytest.mark.parametrize(("kernel", "slow"), GROUPS)
def test_the_specification_is_the_oracles(kernel, slow):
    each(CASES[kernel, slow], judges.check_yardstick)


@pytest.mark.parametrize("large", LARGE)
def test_the_specifications_best_words(large):
    each(list(cases.top_k_cases(large)), lambda pair: judges.check_top_k(reference, *pair))


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize(("kernel", "slow"), GROUPS)
def test_subject_errs_no_more_than_numpy(subject, kernel, slow):
    with subject() as module:
        each(CASES[kernel, slow], lambda case: judges.check(module, case))


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("large", LARGE)
@pytest.mark.parametrize("keep", [True, False], ids=["scores kept", "scores again"])
def test_bf16_errs_no_more_than_rounded_inputs(subject, keep, large):
    def check(case):
        judges.judge_bf16(case, judges.run(module, case, keep=keep))

    with subject() as module:
        each(list(cases.bf16_cases(large)), check)


@pytest.mark.parametrize("large", LARGE)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_best_words(subject, large):
    with subject() as module:
        each(list(cases.top_k_cases(large)), lambda pair: judges.check_top_k(module, *pair))


@pytest.mark.parametrize("name", broken.TWINS)
def test_a_broken_twin_is_rejected(name):
    kernel, module = broken.TWINS[name]

    def rejects(case):
        try:
            judges.check(module, case)
        except judges.FAILURES:
            return True
        return False

    assert any(map(rejects, CASES[kernel, False])), f"no case of {kernel} rejects {name}"


def test_modules_have_the_same_functions_and_arguments():
    for name in judges.PUBLIC:
        wanted = inspect.signature(getattr(reference, name))
        for module in MODULES:
            assert inspect.signature(getattr(module, name)) == wanted, (module.__name__, name)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_large_vocabulary_loses_no_digit(subject):
    """Examples that are nearly alike round alike, so their sum shows a long chain of additions.

    The gradient of the hidden layer's bias is such a sum at the start of training.
    """
    rng = np.random.default_rng(0)
    batch, width, size = 300, 200, 50_000  # panels enough for threads: the words stay one group
    hidden = (0.001 * rng.standard_normal((batch, width))).astype(np.float32)
    weight = rng.uniform(-0.005, 0.005, (size, width)).astype(np.float32)
    bias = -np.log(np.arange(1.0, size + 1)).astype(np.float32)
    targets = rng.integers(0, size, batch).astype(np.int32)
    hyper = np.array([1e-3, 0, 0, 0, 0, 1.0])

    def summed(module, dtype):
        needed = module.softmax_step_scratch(batch, width, size, keep=True)
        grad = np.empty((batch, width), dtype)
        module.softmax_step(
            hidden.astype(dtype), targets, np.full(batch, 1 / batch, dtype), "sgd", hyper,
            "float32", np.empty(needed, np.uint8), np.empty(batch), grad, weight.astype(dtype),
            bias.astype(dtype), np.zeros((0, size, width), dtype), np.zeros((0, size), dtype),
        )  # fmt: skip
        return grad.sum(axis=0, dtype=np.float64)

    true = summed(reference, np.float64)
    allowed = 4 * np.sqrt(np.mean((summed(reference, np.float32) - true) ** 2))
    with subject() as module:
        assert np.sqrt(np.mean((summed(module, np.float32) - true) ** 2)) <= allowed
