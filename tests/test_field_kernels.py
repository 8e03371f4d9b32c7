"""Field cases of the kernels, each with its right values."""

import math
import sys

import cases
import judges
import numpy as np
import oracle
import pytest
from test_kernel_arguments import EVERYONE, others_of

from fastnplm.errors import ArrayError, IdError
from fastnplm.kernels import reference

F = np.float32
SGD = np.array([0.125, 0, 0, 0, 0, 1.0])
HYPER = {
    "sgd": SGD,
    "momentum": np.array([0.125, 2**-10, 0, 0.875, 0, 1]),
    "adagrad": np.array([0.125, 2**-10, 2**-20, 0, 0, 1]),
    "rmsprop": np.array([0.125, 2**-10, 2**-20, 0, 0.875, 1]),
    "adam": np.array([0.125, 2**-10, 2**-20, 0.875, 0.96875, 1.5]),
}
everyone = pytest.mark.parametrize("subject", EVERYONE)


def slots(rule, *shape):
    return np.zeros((cases.SLOTS[rule], *shape), F)


# --- large tables and types of ids --------------------------------------------------------------


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs pages committed lazily")
@everyone
def test_fc_17_row_times_width_beyond_2_to_the_31(subject):
    vocabulary, width = 70_000_000, 32
    rows = np.array([0, 67_108_863, 67_108_864, 69_999_999], np.int32)
    sample = np.random.default_rng(17).integers(0, vocabulary, 1000)
    seen = np.unique(np.concatenate([rows, rows[:-1] + 1, rows[1:] - 1, sample]))
    try:
        table, bias = np.zeros((vocabulary, width), F), np.zeros(vocabulary, F)
    except MemoryError:
        pytest.skip("this system does not commit pages lazily")
    grads = np.outer(np.arange(1, 5), np.ones(width)).astype(F)
    with subject() as module:
        module.scatter_update(rows, grads, "sgd", SGD, table, slots("sgd", vocabulary, width))
        wanted = {row: -0.125 * (i + 1) for i, row in enumerate(rows.tolist())}
        for row in seen.tolist():
            assert (table[row] == wanted.get(row, 0.0)).all(), row
        table[rows] = 0
        # target 0, noise the three others: scores 0, so gradients -1/2 and 1/2 times hidden
        arguments = {
            "hidden": np.ones((1, width), F),
            "targets": rows[:1],
            "weights": np.ones(1, F),
            "noise": rows[None, 1:],
            "block": 1,
            "skip_target": False,
            "offsets": np.zeros(0, F),
            "rule": "sgd",
            "hyper": SGD,
            "losses": np.empty(1),
            "grad_hidden": np.empty((1, width), F),
            "output_weight": table,
            "output_bias": bias,
            "weight_slots": slots("sgd", vocabulary, width),
            "bias_slots": slots("sgd", vocabulary),
        }
        judges.call(module, "negative_step", arguments)
        wanted = dict.fromkeys(rows.tolist(), -0.0625) | {0: 0.0625}
        for row in seen.tolist():
            assert (table[row] == wanted.get(row, 0.0)).all(), row
            assert bias[row] == wanted.get(row, 0.0), row
        assert arguments["losses"][0] == pytest.approx(4 * math.log(2), rel=1e-6)


@everyone
def test_fc_19_ids_of_other_widths_are_one_documented_error(subject):
    ids = np.array([3, 1, 2, 1])
    table = np.arange(20, dtype=F).reshape(4, 5)
    with subject() as module:
        for name in "bhilqBHILQp":
            rows = np.full((4, 5), -1, F)
            given = ids.astype(name)
            if given.dtype == np.int32:
                module.gather_rows(given, table, rows)
                assert (rows == table[ids]).all()
            else:
                with pytest.raises(ArrayError, match=rf"ids has dtype {given.dtype}.*int32"):
                    module.gather_rows(given, table, rows)
                assert (rows == -1).all()


# --- extreme scores -----------------------------------------------------------------------------


def _as_cross_entropy(module, target):
    logits, losses = np.array([[1000, 0, -1000]], F), np.empty(1)
    zeros = np.zeros(3, F)
    module.softmax_cross_entropy(np.array([target], np.int32), np.ones(1, F), zeros, losses, logits)
    return losses[0], logits[0]


def _as_step(module, target, keep):
    arguments = {
        "hidden": np.ones((1, 1), F),
        "targets": np.array([target], np.int32),
        "weights": np.ones(1, F),
        "rule": "momentum",  # the gradient stays in the state
        "hyper": np.array([0, 0, 0, 0, 0, 1.0]),
        "precision": "float32",
        "losses": np.empty(1),
        "grad_hidden": np.empty((1, 1), F),
        "output_weight": np.array([[1000], [0], [-1000]], F),
        "output_bias": np.zeros(3, F),
        "weight_slots": slots("momentum", 3, 1),
        "bias_slots": slots("momentum", 3),
    }
    judges.call(module, "softmax_step", arguments, keep=keep)
    assert (arguments["weight_slots"][0, :, 0] == arguments["bias_slots"][0]).all()
    return arguments["losses"][0], arguments["bias_slots"][0]


@everyone
def test_fc_22_softmax_of_extreme_scores(subject):
    with subject() as module:
        for target, log_p in enumerate([0.0, -1000.0, -2000.0]):
            for loss, grad in (
                _as_cross_entropy(module, target),
                _as_step(module, target, keep=True),
                _as_step(module, target, keep=False),
            ):
                assert loss == pytest.approx(-log_p, rel=1e-6, abs=1e-12)
                p = grad + np.eye(3)[target]
                assert p.sum() == pytest.approx(1, rel=1e-6)
                assert p == pytest.approx([1, 0, 0], abs=1e-6)
                assert np.isfinite(grad).all()
                if target:  # confidently wrong: not skipped
                    assert grad[target] == pytest.approx(-1, abs=1e-6)
            log_z, score = np.empty(1), np.empty(1)
            module.softmax_forward(
                np.ones((1, 1), F), np.array([target], np.int32),
                np.array([[1000], [0], [-1000]], F), np.zeros(3, F), log_z, score,
            )  # fmt: skip
            assert score[0] - log_z[0] == pytest.approx(log_p, rel=1e-6, abs=1e-12)


@everyone
def test_fc_22_logistic_of_extreme_scores(subject):
    def logistic(z):
        return 1 / (1 + math.exp(-z)) if z > -700 else 0.0

    with subject() as module:
        for z in (-1000.0, -88.8, 0.0, 88.8, 1000.0):
            for block in (1, 32):
                # as a target: loss -log s(z), gradient s(z) - 1; as noise beside a target that
                # is sure: loss -log s(-z), gradient s(z)
                arguments = {
                    "hidden": np.array([[1.0, 0.0], [0.0, 1.0]], F),
                    "targets": np.array([0, 1], np.int32),
                    "weights": np.ones(2, F),
                    "noise": np.full((2 if block == 1 else 1, 1), 2, np.int32),
                    "block": block,
                    "skip_target": False,
                    "offsets": np.zeros(0, F),
                    "rule": "sgd",
                    "hyper": SGD,
                    "losses": np.empty(2),
                    "grad_hidden": np.empty((2, 2), F),
                    "output_weight": np.array([[z, 1], [1, 2000], [-2000, z]], F),
                    "output_bias": np.zeros(3, F),
                    "weight_slots": slots("sgd", 3, 2),
                    "bias_slots": slots("sgd", 3),
                }
                judges.call(module, "negative_step", arguments)
                losses, grads = arguments["losses"], arguments["grad_hidden"]
                as_target = max(-z, 0) + math.log1p(math.exp(-abs(z)))
                as_noise = max(z, 0) + math.log1p(math.exp(-abs(z)))
                assert losses == pytest.approx([as_target, as_noise], rel=1e-6, abs=1e-37)
                down = (logistic(z) - 1) * np.array([z, 1.0])
                assert grads[0] == pytest.approx(down, rel=1e-6, abs=1e-30)
                down = logistic(z) * np.array([-2000.0, z])
                assert grads[1] == pytest.approx(down, rel=1e-6, abs=1e-30)


# --- sums, empty batches, duplicates ------------------------------------------------------------


@everyone
def test_fc_24_sums_of_many_losses(subject):
    """Losses come out in double precision and float32 is refused: no sum of theirs can stop."""
    value, count = float(F(0.1)), 30_000_000
    weight = np.zeros((2, 1), F)
    with subject() as module:
        for batch in (1, 1024):
            # p(target) = e^-0.1
            bias = np.array([0, math.log(math.expm1(value))], F)
            log_z, score = np.empty(batch), np.empty(batch)
            module.softmax_forward(
                np.zeros((batch, 1), F), np.zeros(batch, np.int32), weight, bias, log_z, score
            )
            one = float((log_z - score).sum())
            assert one / batch == pytest.approx(value, rel=1e-6)
            total = 0.0
            for _ in range(count // batch if batch > 1 else 1_000_000):
                total += one
            if batch == 1:  # the other 29 million: what one more adds to a total that large
                assert (count * value + one) - count * value == pytest.approx(one, rel=1e-7)
            else:
                assert total / (count // batch * batch) == pytest.approx(one / batch, rel=1e-9)
        with pytest.raises(ArrayError, match="float64"):
            module.softmax_cross_entropy(
                np.zeros(1, np.int32), np.ones(1, F), np.zeros(2, F), np.empty(1, F),
                np.zeros((1, 2), F),
            )  # fmt: skip


@pytest.mark.parametrize("rule", cases.RULES)
@pytest.mark.parametrize("kernel", ["softmax_step", "negative_step"])
@everyone
def test_fc_25_a_batch_in_which_nothing_is_to_be_predicted(subject, kernel, rule):
    start = {"softmax_step": "B33 H17 V201", "negative_step": "B65 H17 V50 K5 block 8"}[kernel]
    wanted = f"{kernel}[{start} {rule} "
    case = next(c for c in cases.every() if str(c).startswith(wanted))
    with subject() as module:
        for keep in (True, False) if kernel == "softmax_step" else (True,):
            arguments = judges.arrays_of(case)
            weights = arguments["weights"].copy()
            arguments["weights"][:] = 0
            before = {name: arguments[name].copy() for name in case.updated}
            judges.call(module, kernel, arguments, keep=keep)
            assert (arguments["losses"] == 0).all()
            assert (arguments["grad_hidden"] == 0).all()
            for name, value in before.items():
                assert arguments[name].tobytes() == value.tobytes(), name
            arguments["weights"][:] = weights  # the next batch is as if nothing had been
            judges.call(module, kernel, arguments, keep=keep)
            plain = judges.run(module, case, keep=keep)
            for name in case.outputs:
                assert arguments[name].tobytes() == plain[name].tobytes(), name


CONTEXTS = np.array([[5, 5, 5, 5], [5, 6, 5, 6]], np.int32)


def _network(rng):
    return {
        "embedding": rng.standard_normal((8, 3)),
        "weight": rng.standard_normal((4, 12)) / 3,
        "bias": rng.standard_normal(4),
        "output_weight": rng.standard_normal((8, 4)),
        "output_bias": rng.standard_normal(8),
    }


def _output(loss):
    """The inputs of a loss's output layer beside hidden and parameters."""
    inputs = {
        "targets": np.array([2, 2], np.int32),
        "weights": np.array([0.5, 0.25]),
        "rule": "sgd",
        "hyper": np.array([1.0, 0, 0, 0, 0, 1]),
        "weight_slots": np.zeros((0, 8, 4)),
        "bias_slots": np.zeros((0, 8)),
    }
    if loss == "softmax":
        return "softmax_step", inputs
    offsets = np.log(3 * np.arange(1, 9) / 36) if loss == "nce" else np.zeros(0)
    noise = np.array([[2, 7, 7], [0, 2, 5]], np.int32)
    return "negative_step", inputs | {
        "noise": noise,
        "block": 1,
        "skip_target": loss == "ns without the target",
        "offsets": offsets,
    }


def _loss(loss, parameters):
    kernel, inputs = _output(loss)
    hidden = oracle.words_forward(
        CONTEXTS, parameters["embedding"], parameters["weight"], parameters["bias"]
    )["hidden"][0]
    output = {name: parameters[name] for name in ("output_weight", "output_bias")}
    losses = getattr(oracle, kernel)(hidden=hidden, **inputs, **output)["losses"][0]
    return float(losses @ inputs["weights"])


def _gradients(loss, parameters):
    """What the kernels (float64) move each parameter by at learning rate 1."""
    p = {name: value.copy() for name, value in parameters.items()}
    kernel, inputs = _output(loss)
    hidden, none = np.empty((2, 4)), np.zeros(0, np.uint8)
    reference.words_forward(CONTEXTS, p["embedding"], p["weight"], p["bias"], none, hidden)
    grad_hidden, grads = np.empty((2, 4)), {"weight": np.empty((4, 12)), "bias": np.empty(4)}
    if kernel == "softmax_step":
        inputs["precision"] = "float32"
    getattr(reference, kernel)(
        hidden=hidden, scratch=none, losses=np.empty(2), grad_hidden=grad_hidden,
        output_weight=p["output_weight"], output_bias=p["output_bias"], **inputs,
    )  # fmt: skip
    reference.words_backward(
        CONTEXTS, hidden, p["weight"], "sgd", inputs["hyper"], none, grad_hidden,
        grads["weight"], grads["bias"], p["embedding"], np.zeros((0, 8, 3)),
    )  # fmt: skip
    for name in ("embedding", "output_weight", "output_bias"):
        grads[name] = parameters[name] - p[name]
    return grads


@pytest.mark.parametrize("loss", ["softmax", "ns", "ns without the target", "nce"])
def test_fc_26_gradients_of_a_word_several_times_in_a_context(loss):
    parameters = _network(np.random.default_rng(26))
    grads = _gradients(loss, parameters)
    step = 1e-5
    for name, value in parameters.items():
        numeric = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            sides = []
            for sign in (1, -1):
                moved = {**parameters, name: value.copy()}
                moved[name][index] += sign * step
                sides.append(_loss(loss, moved))
            numeric[index] = (sides[0] - sides[1]) / (2 * step)
        size = np.abs(numeric).max()
        assert size > 1e-3
        assert grads[name] == pytest.approx(numeric, rel=1e-6, abs=1e-6 * size), name
    untouched = [row for row in range(8) if row not in (5, 6)]
    assert (grads["embedding"][untouched] == 0).all()


@everyone
def test_fc_26_a_row_receives_the_sum_over_its_occurrences(subject):
    grads = np.arange(1, 9, dtype=F)[:, None] * np.ones((1, 3), F)
    with subject() as module:
        table = np.zeros((8, 3), F)
        module.scatter_update(CONTEXTS.reshape(-1), grads, "sgd", SGD, table, slots("sgd", 8, 3))
    assert (table[5] == -0.125 * (1 + 2 + 3 + 4 + 5 + 7)).all()
    assert (table[6] == -0.125 * (6 + 8)).all()


@pytest.mark.parametrize("rule", cases.RULES)
@everyone
def test_fc_32_rows_not_in_the_batch_and_their_state_stay(subject, rule):
    rng = np.random.default_rng(32)
    vocabulary, width, units = 1000, 6, 5
    table = rng.standard_normal((vocabulary, width)).astype(F)
    state = cases.slots_like(rng, rule, vocabulary, width)
    weight = rng.standard_normal((units, 2 * width)).astype(F)
    before = table.copy(), state.copy()
    others = np.setdiff1d(np.arange(vocabulary), [10, 11, 12])
    with subject() as module:
        scratch = np.empty(module.words_scratch(7, 2, width, units), np.uint8)
        for _ in range(200):
            contexts = rng.integers(10, 13, size=(7, 2)).astype(np.int32)
            hidden = np.tanh(rng.standard_normal((7, units))).astype(F)
            grad = rng.standard_normal((7, units)).astype(F)
            module.words_backward(
                contexts, hidden, weight, rule, HYPER[rule], scratch, grad,
                np.empty_like(weight), np.empty(units, F), table, state,
            )  # fmt: skip
    assert (table[others] == before[0][others]).all()
    assert (state[:, others] == before[1][:, others]).all()
    assert (table[10:13] != before[0][10:13]).all()
    assert np.isfinite(table).all()


# --- ids and arrays that are not as documented --------------------------------------------------


@pytest.mark.parametrize("bad", [-1, 100, 2**31, -(2**31), 2**63 - 1])
@everyone
def test_fc_43_ids_out_of_range_in_each_role(subject, bad):
    count, limit = 100_000, 100
    fits = -(2**31) <= bad < 2**31
    rng = np.random.default_rng(43)
    table = rng.standard_normal((limit, 2)).astype(F)
    kept = table.copy()
    with subject() as module:
        for at in (0, count - 1):
            ids = rng.integers(0, limit, count).astype(np.int32 if fits else np.int64)
            ids[at] = bad
            good = np.zeros(count, np.int32)
            few = np.zeros((count, 1), F)
            output = {
                "hidden": few,
                "weights": np.ones(count, F),
                "rule": "sgd",
                "hyper": SGD,
                "losses": np.zeros(count),
                "grad_hidden": np.zeros((count, 1), F),
                "output_weight": table[:, :1].copy(),
                "output_bias": np.zeros(limit, F),
                "weight_slots": slots("sgd", limit, 1),
                "bias_slots": slots("sgd", limit),
            }
            sampled = {"block": 1, "skip_target": False, "offsets": np.zeros(0, F)}
            layer = {"embedding": table, "weight": np.ones((1, 4), F), "bias": np.zeros(1, F)}
            calls = [
                ("gather_rows", {"ids": ids, "table": table, "rows": np.zeros((count, 2), F)}),
                (
                    "scatter_update",
                    {"ids": ids, "grads": np.ones((count, 2), F), "rule": "sgd", "hyper": SGD,
                     "table": table, "slots": slots("sgd", limit, 2)},
                ),
                (
                    "words_forward",
                    {"contexts": ids.reshape(-1, 2), **layer,
                     "hidden": np.zeros((count // 2, 1), F)},
                ),
                ("softmax_step", {**output, "targets": ids, "precision": "float32"}),
                ("negative_step", {**output, **sampled, "targets": ids, "noise": good[:, None]}),
                ("negative_step", {**output, **sampled, "targets": good, "noise": ids[:, None]}),
            ]  # fmt: skip
            for kernel, arguments in calls:
                before = {k: v.copy() for k, v in arguments.items() if isinstance(v, np.ndarray)}
                # softmax_step would ask for 40 MB here, and is refused before it needs any
                with pytest.raises(IdError if fits else ArrayError) as caught:
                    judges.call(module, kernel, arguments, keep=False)
                if fits:
                    text = str(caught.value)
                    assert all(str(number) in text for number in (bad, at, limit)), text
                for name, value in before.items():
                    assert arguments[name].tobytes() == value.tobytes(), (kernel, name)
    assert (table == kept).all()


@everyone
def test_fc_44_unusual_matrices_and_ids(subject):
    rng = np.random.default_rng(44)
    matrix = rng.standard_normal((50, 8)).astype(F)
    ids = rng.integers(0, 50, 50).astype(np.int32)
    with subject() as module:
        plain = np.empty((50, 8), F)
        module.gather_rows(ids, matrix, plain)
        others = [(kind, other, matrix) for kind, other in others_of(ids)]
        others += [(kind, ids, other) for kind, other in others_of(matrix)]
        for kind, some_ids, some_matrix in others:
            if kind == "one row more":
                continue
            kept = [np.array(value, copy=True) for value in (some_ids, some_matrix)]
            rows = np.zeros((50, 8), F)
            with pytest.raises(ArrayError) as caught:
                module.gather_rows(some_ids, some_matrix, rows)
            assert "\n" not in str(caught.value)
            assert (rows == 0).all()
            for value, before in zip((some_ids, some_matrix), kept, strict=True):
                assert np.array(value).tobytes() == before.tobytes(), kind
        for array in (ids, matrix):
            array.flags.writeable = False
        rows = np.zeros((50, 8), F)
        module.gather_rows(ids, matrix, rows)
        assert (rows == plain).all()
