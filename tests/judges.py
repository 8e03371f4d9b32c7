"""Three judges for a kernel: the float64 oracle, the float32 NumPy yardstick, and the subject.

A subject's error against the oracle may be at most the larger of 4 times the yardstick's (row by
row: the largest of the row) and 8 units in the last place of the sum of absolute terms (element
by element; the oracle carries it). NaNs and infinities are compared first and must be the same.
A value that no rounding enters (a copied row, a row no id names) must come out bit for bit.
"""

import functools
import inspect

import numpy as np
import oracle
from cases import Case

from fastnplm.kernels import reference

GUARD = 4096  # bytes before and after the scratch that nobody may write
ULPS = 8
TIMES_YARDSTICK = 4
YARDSTICK_ULPS = 64  # the yardstick's own bound: sums of a thousand terms, one after another
BF16_UNIT = 2.0**-8

PUBLIC = tuple(
    name
    for name, value in vars(reference).items()
    if inspect.isfunction(value) and not name.startswith("_")
)
FAILURES = (AssertionError, IndexError, ValueError, TypeError, FloatingPointError, RuntimeWarning)


def run(module, case, dtype=np.float32, threads=1, keep=True):
    """Call the kernel on fresh copies; the dict of the arrays it writes."""
    arguments = arrays_of(case, dtype)
    given = {name: np.copy(value) for name, value in arguments.items() if name in case.inputs}
    call(module, case.kernel, arguments, threads, keep)
    for name, value in given.items():
        same = value.tobytes() == np.asarray(arguments[name]).tobytes()
        assert same, f"{case}: the input {name} was changed"
    return {name: arguments[name] for name in case.outputs}


def arrays_of(case, dtype=np.float32):
    """The arguments of a case but scratch and threads; written arrays begin as rubbish."""

    def fresh(value):
        if not isinstance(value, np.ndarray):
            return value
        return value.astype(dtype) if value.dtype == np.float32 else value.copy()

    arguments = {name: fresh(v) for name, v in {**case.inputs, **case.updated}.items()}
    for name, (kind, shape) in case.written.items():
        rubbish = np.empty(shape, dtype=kind or dtype)
        rubbish.view(np.uint8).fill(0xA5)
        if rubbish.dtype.kind == "f":
            rubbish.fill(np.nan)
        arguments[name] = rubbish
    return arguments


def call(module, kernel, arguments, threads=1, keep=True):
    """Call a kernel by keyword, with a scratch of just the bytes it asks for between guards."""
    arguments = dict(arguments)
    parameters = inspect.signature(getattr(reference, kernel)).parameters
    if "threads" in parameters:
        arguments["threads"] = threads
    guarded = None
    if "scratch" in parameters and "scratch" not in arguments:
        size = scratch_bytes(module, kernel, arguments, threads, keep)
        guarded = np.full(size + 2 * GUARD + 1, 0xFF, dtype=np.uint8)
        arguments["scratch"] = guarded[GUARD + 1 : GUARD + 1 + size]
    getattr(module, kernel)(**arguments)
    if guarded is not None:
        outside = np.concatenate([guarded[: GUARD + 1], guarded[len(guarded) - GUARD :]])
        assert (outside == 0xFF).all(), f"{kernel} wrote outside its scratch"


def scratch_bytes(module, kernel, arguments, threads, keep):
    """What the kernel's own scratch function answers."""
    if kernel == "softmax_step":
        vocabulary, hidden = arguments["output_weight"].shape
        return module.softmax_step_scratch(
            len(arguments["hidden"]), hidden, vocabulary, arguments["precision"], keep, threads
        )
    if kernel == "negative_step":
        batch, hidden = arguments["hidden"].shape
        negatives = arguments["noise"].shape[1]
        return module.negative_step_scratch(batch, arguments["block"], negatives, hidden, threads)
    batch, context = arguments["contexts"].shape
    dim = arguments["embedding"].shape[1]
    precision = arguments.get("precision", "float32")
    return module.words_scratch(batch, context, dim, len(arguments["weight"]), precision, threads)


@functools.cache
def truth(kernel, label, key):
    """The oracle's answer (kept: every subject is held against the same one)."""
    case = key.case
    arguments = {**case.inputs, **case.updated}
    arguments.pop("precision", None)
    if kernel in ("form_contexts", "gather_contexts"):
        arguments["context"] = case.written["contexts"][1][1]
    return getattr(oracle, kernel)(**arguments)


class _Key:
    """Lets a case, which holds arrays, be the key of a cache: one case, one key."""

    def __init__(self, case):
        self.case = case

    def __hash__(self):
        return hash((self.case.kernel, self.case.label))

    def __eq__(self, other):
        return str(self.case) == str(other.case)


def oracle_of(case):
    return truth(case.kernel, case.label, _Key(case))


@functools.cache
def _yardstick(key):
    return run(reference, key.case)


def yardstick_of(case):
    """What float32 NumPy makes of the case."""
    return _yardstick(_Key(case))


def judge(case, subject, yardstick=None, ulps=ULPS, dtype=np.float32):
    """Raise AssertionError unless the subject's arrays are right; the rule stands above."""
    for name, (values, terms) in oracle_of(case).items():
        got = subject[name]
        where = f"{case}: {name}"
        assert got.shape == values.shape, f"{where} has shape {got.shape}, not {values.shape}"
        if terms is None:
            wrong = ~_same(got.astype(np.float64), values)
            assert not wrong.any(), f"{where} differs {_first(wrong, got, values)}"
            continue
        _compare_special(where, got, values)
        finite = np.isfinite(values)
        error = _error(got, values, finite)
        allowed = ulps * _units(terms, dtype)
        if yardstick is not None:
            theirs = _error(yardstick[name], values, finite)
            theirs = TIMES_YARDSTICK * _largest_of_row(theirs)
            allowed = np.where(terms == 0, 0, np.maximum(allowed, theirs))
        wrong = error > allowed
        assert not wrong.any(), (
            f"{where} is off by {error[wrong].max():.3g} where {allowed[wrong].min():.3g} is"
            f" allowed, {wrong.sum()} of {wrong.size} {_first(wrong, got, values)}"
        )


def judge_bf16(case, subject):
    """The rule for bfloat16 products: the oracle sees the inputs as given, the yardstick rounds.

    What the weights moved by is compared, not the weights: these are float32 throughout. A row
    may be so short that the yardstick is right by luck; one bfloat16 unit of the terms that pass
    through a product is allowed beside it.
    """
    yardstick = yardstick_of(case)
    for name, (values, terms) in oracle_of(case).items():
        where = f"{case}: {name}"
        got = subject[name]
        _compare_special(where, got, values)
        rounded = terms.copy()
        if name.startswith(("output_", "embedding")):
            rounded -= np.abs(case.updated[name].astype(np.float64)) * (1 - 2.0**-9)
        every = np.isfinite(values)
        error = _error(got, values, every)
        theirs = _largest_of_row(_error(yardstick[name], values, every))
        allowed = np.maximum(TIMES_YARDSTICK * theirs, ULPS * _units(terms, np.float32))
        allowed = np.maximum(allowed, BF16_UNIT * np.maximum(rounded, 0))
        wrong = error > allowed
        assert not wrong.any(), (
            f"{where} is off by {error[wrong].max():.3g} where {allowed[wrong].min():.3g} is"
            f" allowed, {wrong.sum()} of {wrong.size} {_first(wrong, got, values)}"
        )


def check(module, case, threads=1):
    """Run and judge a case (both forms of scratch, where there are two)."""
    for keep in (True, False) if case.kernel == "softmax_step" else (True,):
        judge(case, run(module, case, threads=threads, keep=keep), yardstick_of(case))


@functools.cache
def _ranking(key):
    """True scores, their terms, and the words of each row from the best on."""
    scores, terms = oracle.scores_of(**key.case.inputs)
    lowest = np.where(np.isnan(scores), -np.inf, scores).tolist()
    orders = [sorted(range(len(row)), key=lambda j, row=row: (-row[j], j)) for row in lowest]
    return scores, terms, orders


def check_top_k(module, case: Case, exact: bool):
    """Scores by falling order, each the score of its id; with exact scores ties by smaller id."""
    got = run(module, case)
    ids, scores = got["ids"], got["scores"]
    true, terms, orders = _ranking(_Key(case))
    for row, order in enumerate(orders):
        mine, best = ids[row].tolist(), order[: ids.shape[1]]
        assert len(set(mine)) == len(mine), f"{case}: row {row} names a word twice"
        if exact:
            assert mine == best, f"{case}: row {row} is {mine[:9]}, not {best[:9]}"
            assert _same(scores[row], true[row, best]).all(), f"{case}: row {row} has other scores"
            continue
        allowed = ULPS * _units(terms[row], np.float32)
        assert (np.abs(scores[row] - true[row, mine]) <= allowed[mine]).all(), (
            f"{case}: a score of row {row} is not that of its word"
        )
        assert (np.diff(scores[row]) <= 0).all(), f"{case}: row {row} does not fall"
        short = true[row, best] - true[row, mine]
        assert (np.abs(short) <= allowed[mine] + allowed[best]).all(), (
            f"{case}: row {row} leaves out a better word"
        )


def check_yardstick(case):
    """The specification in float64 must be the oracle's, and in float32 near it."""
    judge(case, run(reference, case, dtype=np.float64), dtype=np.float64, ulps=YARDSTICK_ULPS)
    judge(case, yardstick_of(case), ulps=YARDSTICK_ULPS)


def _same(left, right):
    return (left == right) | (np.isnan(left) & np.isnan(right))


def _compare_special(where, got, values):
    """NaN where the oracle has NaN, an infinity where it has one, and nowhere else."""
    for kind, special in (
        ("NaN", np.isnan),
        ("infinity", np.isposinf),
        ("minus infinity", np.isneginf),
    ):
        wrong = special(got) != special(values)
        assert not wrong.any(), f"{where}: {kind} misplaced {_first(wrong, got, values)}"


def _error(got, values, finite):
    error = np.zeros(values.shape)
    np.subtract(got, values, out=error, where=finite, dtype=np.float64)
    return np.abs(error, out=error)


def _units(terms, dtype):
    """One unit in the last place of each sum of terms; below the normal range it is that range.

    (A kernel may round what is smaller than any normal number to zero.)
    """
    info = np.finfo(dtype)
    size = np.where(np.isfinite(terms), terms, 0).astype(np.float64)
    return np.where(size > 0, np.maximum(size * float(info.eps), float(info.tiny)), 0)


def _largest_of_row(error):
    """The largest of each row; a vector is one row."""
    if not error.size:
        return error
    return error.max(axis=-1, keepdims=True)


def _first(wrong, got, values):
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"(first at {where}: {got[where]!r}, true {values[where]!r})"
