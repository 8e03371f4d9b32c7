"""What kernels refuse, before they write: bad ids, arrays of another kind, arrays that overlap.

And what may not matter: threads, read-only inputs, what scratch holds.
"""

import contextlib
import inspect

import broken
import cases
import judges
import numpy as np
import pytest
from subjects import HAS_NATIVE, SUBJECTS

from fastnplm.errors import ArrayError, IdError, SettingsError
from fastnplm.kernels import reference

INT32_MIN = np.iinfo(np.int32).min
EVERYONE = [pytest.param(lambda: contextlib.nullcontext(reference), id="reference"), *SUBJECTS]
KERNELS = sorted(cases.small())
#  kernel: {argument: where its limit is}
IDS = {
    "gather_rows": {"ids": "table"},
    "scatter_update": {"ids": "table"},
    "words_forward": {"contexts": "embedding"},
    "words_backward": {"contexts": "embedding"},
    "softmax_cross_entropy": {"targets": "bias"},
    "softmax_step": {"targets": "output_weight"},
    "softmax_forward": {"targets": "output_weight"},
    "negative_step": {"targets": "output_weight", "noise": "output_weight"},
    "draw_noise": {"alias": "threshold"},
    "form_contexts": {"positions": "tokens"},
    "gather_contexts": {"positions": "tokens", "tokens": "embedding"},
}
ROLES = [(kernel, name) for kernel, roles in IDS.items() for name in roles]


def arrays_of(module, kernel):
    """The arguments of a modest case, with scratch enough for one row more."""
    arguments = judges.arrays_of(cases.small()[kernel])
    if "scratch" in inspect.signature(getattr(reference, kernel)).parameters:
        size = judges.scratch_bytes(module, kernel, arguments, 1, keep=True)
        arguments["scratch"] = np.zeros(2 * size + 64, dtype=np.uint8)
    return arguments


def arrays(arguments):
    return [name for name, value in arguments.items() if isinstance(value, np.ndarray)]


def refused(module, kernel, arguments, error, writable=()):
    """The call raises ``error`` and every array stays bit for bit; the error's text."""
    before = {n: np.array(v, copy=True) for n, v in arguments.items() if isinstance(v, np.ndarray)}
    with pytest.raises(error) as caught:
        judges.call(module, kernel, arguments)
    for name, value in before.items():
        if name not in writable:
            assert np.asarray(arguments[name]).tobytes() == value.tobytes(), f"{name} was changed"
    return str(caught.value)


@pytest.mark.parametrize("subject", EVERYONE)
@pytest.mark.parametrize(("kernel", "name"), ROLES)
def test_a_bad_id_is_refused_and_named(subject, kernel, name):
    limit = len(judges.arrays_of(cases.small()[kernel])[IDS[kernel][name]])
    # a stream of tokens is of an unsigned type here, and read only where a position names it
    bad_ids = (limit, limit + 1) if name == "tokens" else (-1, limit, limit + 1, INT32_MIN)
    with subject() as module:
        for bad in bad_ids:
            for last in (False, True):
                arguments = judges.arrays_of(cases.small()[kernel])
                flat = arguments[name].reshape(-1)
                at = flat.size - 1 if last else 0
                if name == "tokens":
                    at = int(arguments["positions"][-1 if last else 0])
                flat[at] = bad
                # a context is formed before its words are known to be bad; they are not gathered
                formed = ("contexts", "targets") if name == "tokens" else ()
                with _saying(f"{kernel}: {name} holds {bad} at {at}"):
                    text = refused(module, kernel, arguments, IdError, formed)
                    assert str(bad) in text, text
                    assert str(limit) in text, text
                    assert name == "tokens" or f"position {at}" in text, text


@pytest.mark.parametrize("name", ["lets_the_limit_through", "writes_before_it_looks"])
def test_the_id_tests_reject_a_broken_twin(name):
    kernel, module = broken.CARELESS[name]
    accepted = []
    for bad in (-1, 1):
        arguments = judges.arrays_of(cases.small()[kernel])
        arguments["ids"][-1] = -1 if bad < 0 else len(arguments["table"])
        try:
            refused(module, kernel, arguments, IdError)
        except (AssertionError, pytest.fail.Exception):
            accepted.append(bad)
    assert accepted


def _misaligned(value):
    raw = np.empty(value.nbytes + 1, dtype=np.uint8)
    moved = raw[1:].view(value.dtype).reshape(value.shape)
    moved[...] = value
    return moved


def _strided(value):
    wide = np.zeros((*value.shape[:-1], value.shape[-1] * 2), dtype=value.dtype)
    wide[..., ::2] = value
    return wide[..., ::2]


OTHERS = {  # name -> what is made of an array
    "another dtype": lambda v: v.astype(np.float16 if v.dtype.kind == "f" else np.int8),
    "wider dtype": lambda v: v.astype(np.longdouble if v.dtype == np.float64 else np.float64),
    "opposite byte order": lambda v: v.astype(v.dtype.newbyteorder()),
    "column-major": np.asfortranarray,
    "every second column": _strided,
    "reversed": lambda v: np.ascontiguousarray(v[::-1])[::-1],
    "zero stride": lambda v: np.broadcast_to(v[:1], v.shape),
    "misaligned": _misaligned,
    "list": lambda v: v.tolist(),
    "one row more": lambda v: np.concatenate([v, v[:1]]),
    "one dimension more": lambda v: v[None],
}


def others_of(value):
    """(what is odd about it, the array made odd), for whatever can be."""
    for kind, make in OTHERS.items():
        if kind in ("opposite byte order", "misaligned") and value.itemsize == 1:
            continue
        other = make(value)
        same_layout = isinstance(other, np.ndarray) and (
            other.dtype == value.dtype
            and other.dtype.isnative
            and other.shape == value.shape
            and other.flags.c_contiguous
            and other.flags.aligned
        )
        if not same_layout:
            yield kind, other


@contextlib.contextmanager
def _saying(what):
    """A failure inside says what was tried."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"{what}: {error!r}") from error


def _may_differ(module, kernel, name, kind):
    """Sizes that no other argument fixes, so that one more of them is a right call.

    And the one floating array of a call, which ``reference`` takes in float64 too.
    """
    free = {
        ("form_contexts", "tokens"),
        ("gather_contexts", "tokens"),
        ("gather_contexts", "embedding"),
        ("gather_rows", "table"),
        ("bias_tanh", "hidden"),
        ("words_forward", "embedding"),
    }
    if kind == "one dimension more":
        return (kernel, name) in {("dense_update", "parameter"), ("dropout", "values")}
    if kind == "wider dtype":
        return module is reference and (kernel, name) == ("dropout", "values")
    return kind == "one row more" and ((kernel, name) in free or name == "scratch")


@pytest.mark.parametrize("subject", EVERYONE)
@pytest.mark.parametrize("kernel", KERNELS)
def test_other_arrays_are_refused(subject, kernel):
    """FC-44 and FC-19: one clean error for each array that is not as documented."""
    with subject() as module:
        given = arrays_of(module, kernel)
        for name in arrays(given):
            for kind, other in others_of(given[name]):
                if not _may_differ(module, kernel, name, kind):
                    arguments = {**arrays_of(module, kernel), name: other}
                    with _saying(f"{kernel}: {name} as {kind}"):
                        refused(module, kernel, arguments, ArrayError)


@pytest.mark.parametrize("subject", EVERYONE)
@pytest.mark.parametrize("kernel", KERNELS)
def test_read_only_arrays_are_read_and_never_written(subject, kernel):
    case = cases.small()[kernel]
    with subject() as module:
        plain = judges.run(module, case)
        arguments = judges.arrays_of(case)
        for name in case.inputs:
            if isinstance(arguments[name], np.ndarray):
                arguments[name].flags.writeable = False
        judges.call(module, kernel, arguments)
        for name in case.outputs:
            assert arguments[name].tobytes() == plain[name].tobytes()
        for name in case.outputs:
            arguments = judges.arrays_of(case)
            arguments[name].flags.writeable = False
            assert "read-only" in refused(module, kernel, arguments, ArrayError)


@pytest.mark.parametrize("subject", EVERYONE)
@pytest.mark.parametrize("kernel", KERNELS)
def test_written_arrays_that_overlap_are_refused(subject, kernel):
    with subject() as module:
        given = arrays_of(module, kernel)
        written = [n for n in given if n in cases.small()[kernel].outputs or n == "scratch"]
        for name in written:
            for other in arrays(given):
                arguments = arrays_of(module, kernel)
                first, second = arguments[name], arguments[other]
                if name == other or not first.size or not second.size:
                    continue
                # the second begins in the last element of the first
                raw = np.empty(first.nbytes + second.nbytes + 8, dtype=np.uint8)
                begin = (first.nbytes - 1) // 8 * 8
                one = raw[: first.nbytes].view(first.dtype).reshape(first.shape)
                two = raw[begin : begin + second.nbytes].view(second.dtype).reshape(second.shape)
                one[...] = first
                two[...] = second
                arguments[name], arguments[other] = one, two
                with _saying(f"{kernel}: {name} over {other}"):
                    refused(module, kernel, arguments, ArrayError)


@pytest.mark.parametrize("subject", EVERYONE)
def test_words_that_name_nothing_are_refused(subject):
    with subject() as module:
        for kernel, changes in [
            ("dense_update", {"rule": "adamw"}),
            ("scatter_update", {"rule": "SGD"}),
            ("words_backward", {"rule": ""}),
            ("softmax_step", {"rule": None}),
            ("softmax_step", {"precision": "float16"}),
            ("negative_step", {"rule": "lion"}),
            ("negative_step", {"block": 0}),
            ("negative_step", {"block": -1}),
        ]:
            arguments = {**judges.arrays_of(cases.small()[kernel]), **changes}
            if "block" in changes:  # the size of scratch is not the question here
                arguments["scratch"] = np.empty(1 << 20, dtype=np.uint8)
            refused(module, kernel, arguments, SettingsError)


@pytest.mark.parametrize("subject", EVERYONE)
@pytest.mark.parametrize(
    "kernel", ["words_forward", "words_backward", "softmax_step", "negative_step"]
)
def test_scratch_too_short_is_refused(subject, kernel):
    arguments = judges.arrays_of(cases.small()[kernel])
    with subject() as module:
        size = judges.scratch_bytes(module, kernel, arguments, 1, keep=False)
        if size:
            arguments["scratch"] = np.empty(size - 1, dtype=np.uint8)
            assert str(size) in refused(module, kernel, arguments, ArrayError, ("scratch",))


@pytest.mark.parametrize("subject", EVERYONE)
def test_best_of_none_or_of_too_many_is_refused(subject):
    case = cases.small()["softmax_top_k"]
    with subject() as module:
        for count in (0, len(case.inputs["output_weight"]) + 1):
            arguments = judges.arrays_of(case)
            batch = len(arguments["hidden"])
            arguments["ids"] = np.zeros((batch, count), dtype=np.int32)
            arguments["scores"] = np.zeros((batch, count), dtype=np.float32)
            assert str(count) in refused(module, "softmax_top_k", arguments, ArrayError)


THREADED = [
    name for name in KERNELS if "threads" in inspect.signature(getattr(reference, name)).parameters
]
MORE = {  # shapes at which a kernel may well divide its work
    "softmax_step": [("B65 H17 V1111", "adam"), ("B257 H50 V11", "sgd"), ("B3 H7 V10007", "sgd")],
    "negative_step": [("B257 H50 V10007", ""), ("B65 H17 V50", "momentum")],
    "words_backward": [("B257", ""), ("B3 N31", "")],
    "words_forward": [("B257 N1 M30", "")],
    "scatter_update": [("R1000", "adam"), ("R257", "")],
    "softmax_forward": [("B3 H7 V10007", ""), ("B257 H50", "")],
}


@pytest.mark.parametrize("subject", EVERYONE)
@pytest.mark.parametrize("kernel", THREADED)
def test_threads_do_not_change_a_bit(subject, kernel):
    chosen = [cases.small()[kernel]]
    for start, word in MORE.get(kernel, []):
        chosen += [
            c
            for c in cases.every()
            if c.kernel == kernel and c.label.startswith(start) and word in c.label and not c.slow
        ][:2]
    with subject() as module:
        for case in chosen:
            for keep in (True, False) if kernel == "softmax_step" else (True,):
                one = judges.run(module, case, threads=1, keep=keep)
                for threads in (2, 3, 7):
                    many = judges.run(module, case, threads=threads, keep=keep)
                    for name, value in one.items():
                        same = value.tobytes() == many[name].tobytes()
                        assert same, f"{case}: {name} differs with {threads} threads"


@pytest.mark.parametrize("subject", EVERYONE)
def test_an_examples_score_does_not_depend_on_theothers_of(subject):
    case = next(
        c for c in cases.every() if c.kernel == "softmax_forward" and c.label.startswith("B257 H50")
    )
    rng = np.random.default_rng(3)
    with subject() as module:
        alone = judges.run(module, case)
        arguments = judges.arrays_of(case)
        kept = np.arange(0, 257, 7)
        others = np.setdiff1d(np.arange(257), kept)
        arguments["hidden"][others] = rng.permutation(arguments["hidden"][others])
        judges.call(module, "softmax_forward", arguments)
        for name in case.outputs:
            assert (arguments[name][kept] == alone[name][kept]).all()


@pytest.mark.skipif(not HAS_NATIVE, reason="the native kernels are not built")
def test_random_arguments_are_refused_or_answered(request, capsys):
    """Also FC-43 and FC-44 in breadth; `python tests/arguments.py 1000000` for more."""
    import arguments

    calls = 2 * request.config.getoption("executions")
    counts = arguments.main(calls, seed=1)
    with capsys.disabled():
        print(f"\n{counts}", end=" ")
    assert counts["calls"] == calls
    assert min(counts["refused"], counts["answered"]) > calls // 4


@pytest.mark.skipif(not HAS_NATIVE, reason="the native kernels are not built")
@pytest.mark.parametrize("careless", ["answers wrongly", "writes before it looks"])
def test_the_random_arguments_reject_a_broken_twin(careless, monkeypatch):
    import arguments

    def answers(*_, bias, hidden, **__):
        hidden += bias  # neither tanh nor a check

    def writes(*_, bias, hidden, **__):
        np.asarray(hidden).reshape(-1)[:1] = 7
        raise ArrayError("too late")

    broken_kernel = answers if careless == "answers wrongly" else writes
    monkeypatch.setattr(arguments.native, "bias_tanh", broken_kernel, raising=True)
    with pytest.raises((AssertionError, ValueError)):
        arguments.main(500, seed=1)
