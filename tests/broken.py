"""Kernels broken on purpose, one defect each: the judges must reject every one of them.

A twin is the NumPy kernels with one function replaced. Each is a mistake somebody could make.
"""

from types import SimpleNamespace

import numpy as np

from fastnplm.kernels import reference

TWINS = {}  # name -> (kernel whose cases must reject it, module)


def twin(kernel):
    """Register the decorated function as a twin's version of ``kernel``."""

    def register(function):
        module = SimpleNamespace(**vars(reference))
        setattr(module, kernel, function)
        TWINS[function.__name__] = (kernel, module)
        return function

    return register


# --- contexts and embedding ---------------------------------------------------------------------


@twin("form_contexts")
def context_reaches_into_the_sentence_before(**a):
    reference.form_contexts(**{**a, "end_id": -5})


@twin("form_contexts")
def context_is_newest_first(**a):
    reference.form_contexts(**a)
    a["contexts"][:] = a["contexts"][:, ::-1].copy()


@twin("gather_contexts")
def gather_takes_the_targets_row_too(**a):
    reference.gather_contexts(**a)
    if a["contexts"].size:
        dim = a["embedding"].shape[1]
        a["inputs"][:, -dim:] = a["embedding"][a["targets"]]


@twin("gather_rows")
def last_row_of_an_odd_batch_not_gathered(ids, table, rows, threads=1):
    reference.gather_rows(ids, table, rows)
    if len(rows) % 2:
        rows[-1] = 0


@twin("gather_rows")
def last_id_of_the_vocabulary_taken_for_the_one_before(ids, table, rows, threads=1):
    reference.gather_rows(np.minimum(ids, len(table) - 2).astype(np.int32), table, rows)


@twin("scatter_update")
def duplicates_overwritten(ids, grads, rule, hyper, table, slots, threads=1):
    last = {word: row for row, word in enumerate(ids.tolist())}
    keep = np.array(list(last.values()), dtype=np.intp)
    some = np.ascontiguousarray(grads[keep])
    reference.scatter_update(ids[keep], some, rule, hyper, table, slots)


@twin("scatter_update")
def a_step_for_each_duplicate(ids, grads, rule, hyper, table, slots, threads=1):
    for row in range(len(ids)):
        reference.scatter_update(
            ids[row : row + 1], grads[row : row + 1], rule, hyper, table, slots
        )


@twin("scatter_update")
def every_row_decays(ids, grads, rule, hyper, table, slots, threads=1):
    reference.scatter_update(ids, grads, rule, hyper, table, slots)
    others = np.setdiff1d(np.arange(len(table)), ids)
    table[others] *= np.float32(1 - hyper[1])


@twin("scatter_update")
def step_one_thousandth_too_long(ids, grads, rule, hyper, table, slots, threads=1):
    hyper = hyper * [1.001, 1, 1, 1, 1, 1]
    reference.scatter_update(ids, grads, rule, hyper, table, slots)


@twin("dense_update")
def epsilon_inside_the_root(grad, rule, hyper, parameter, slots, threads=1):
    if rule != "adagrad":
        return reference.dense_update(grad, rule, hyper, parameter, slots)
    parameter *= np.float32(1 - hyper[1])
    slots[0] += grad * grad
    parameter -= np.float32(hyper[0]) * grad / np.sqrt(slots[0] + np.float32(hyper[2]))
    return None


@twin("dense_update")
def second_moment_takes_the_first_ones_rate(grad, rule, hyper, parameter, slots, threads=1):
    reference.dense_update(grad, rule, hyper[[0, 1, 2, 3, 3, 5]], parameter, slots)


@twin("dense_update")
def decay_after_the_step(grad, rule, hyper, parameter, slots, threads=1):
    reference.dense_update(grad, rule, hyper * [1, 0, 1, 1, 1, 1], parameter, slots)
    parameter *= np.float32(1 - hyper[1])


# --- the hidden layer ---------------------------------------------------------------------------


@twin("bias_tanh")
def tanh_clamped_at_four(bias, hidden, threads=1):
    reference.bias_tanh(bias, hidden)
    np.clip(hidden, np.float32(np.tanh(-4)), np.float32(np.tanh(4)), out=hidden)


@twin("bias_tanh")
def tanh_hides_nan(bias, hidden, threads=1):
    reference.bias_tanh(bias, hidden)
    hidden[np.isnan(hidden)] = 1


@twin("tanh_backward")
def bias_gradient_misses_the_last_example(hidden, grad_bias, grad_hidden, threads=1):
    reference.tanh_backward(hidden, grad_bias, grad_hidden)
    if len(hidden) > 1:
        grad_bias -= grad_hidden[-1]


@twin("tanh_backward")
def derivative_of_the_logistic(hidden, grad_bias, grad_hidden, threads=1):
    grad_hidden *= hidden * (1 - hidden)
    grad_hidden.sum(axis=0, out=grad_bias)


@twin("dropout")
def dropped_by_multiplying(mask, scale, values, threads=1):
    values *= mask * np.float32(scale)  # a NaN that is dropped stays


@twin("layer_forward")
def bias_forgotten(inputs, weight, bias, hidden, linear=False, threads=1):
    reference.layer_forward(inputs, weight, np.zeros_like(bias), hidden, linear)


@twin("layer_forward")
def tanh_where_none_was_asked_for(inputs, weight, bias, hidden, linear=False, threads=1):
    reference.layer_forward(inputs, weight, bias, hidden)


@twin("layer_backward")
def slope_of_tanh_in_a_linear_layer(linear=False, **a):
    reference.layer_backward(**a)


@twin("layer_backward")
def input_gradient_from_the_wrong_side_of_tanh(**a):
    before = a["grad_hidden"].copy()
    reference.layer_backward(**a)
    np.matmul(before, a["weight"], out=a["grad_inputs"])


@twin("words_forward")
def two_positions_exchanged(contexts, **a):
    reference.words_forward(np.ascontiguousarray(contexts[:, ::-1]), **a)


@twin("words_backward")
def only_distinct_words_of_a_context_count(contexts, hidden, weight, rule, hyper, scratch, **a):
    old, old_slots = a["embedding"].copy(), a["slots"].copy()
    reference.words_backward(contexts, hidden, weight, rule, hyper, scratch, **a)
    dim = old.shape[1]
    grads = (a["grad_hidden"] @ weight).reshape(-1, dim)
    a["embedding"][:], a["slots"][:] = old, old_slots
    duplicates_overwritten(contexts.reshape(-1), grads, rule, hyper, a["embedding"], a["slots"])


# --- the output layer: exact softmax ------------------------------------------------------------


@twin("softmax_cross_entropy")
def loss_off_by_a_constant(**a):
    reference.softmax_cross_entropy(**a)
    a["losses"] += 1e-3


@twin("softmax_cross_entropy")
def ignored_examples_count(weights, **a):
    weights = np.where(weights == 0, np.float32(1e-3), weights)
    reference.softmax_cross_entropy(weights=weights, **a)


@twin("softmax_step")
def loss_of_the_step_off_by_a_constant(**a):
    reference.softmax_step(**a)
    a["losses"] += 1e-3


@twin("softmax_step")
def last_row_of_an_odd_batch_skipped(**a):
    old = a["grad_hidden"].copy()
    reference.softmax_step(**a)
    if len(old) % 2:
        a["grad_hidden"][-1] = 0


@twin("softmax_step")
def new_weights_used_for_grad_hidden(**a):
    inner = {**a, "grad_hidden": a["grad_hidden"].copy()}
    old_weight, old_bias = a["output_weight"].copy(), a["output_bias"].copy()
    reference.softmax_step(**inner)
    scores = a["hidden"] @ old_weight.T
    losses = a["losses"].copy()
    reference.softmax_cross_entropy(a["targets"], a["weights"], old_bias, losses, scores)
    np.matmul(scores, a["output_weight"], out=a["grad_hidden"])


@twin("softmax_step")
def one_hot_applied_after_the_rule(**a):
    """For Adagrad and its like the target's part must be inside the gradient."""
    width, vocabulary = a["hidden"].shape[1], len(a["output_bias"])
    rule, hyper, weights = a["rule"], a["hyper"], a["weights"][:, None]
    scores = a["hidden"] @ a["output_weight"].T + a["output_bias"]
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p *= weights / p.sum(axis=1, keepdims=True)
    hot = np.zeros((len(scores), vocabulary), np.float32)
    hot[np.arange(len(scores)), a["targets"]] = -a["weights"]
    learning_rate = np.float32(hyper[0])
    after = learning_rate * (hot.T @ a["hidden"]).reshape(vocabulary, width)
    bias_after = learning_rate * hot.sum(axis=0)
    new, new_bias = a["output_weight"].copy(), a["output_bias"].copy()
    slots, bias_slots = a["weight_slots"].copy(), a["bias_slots"].copy()
    reference.softmax_step(**a)
    reference.dense_update(p.T @ a["hidden"], rule, hyper, new, slots)
    undecayed = hyper * [1, 0, 1, 1, 1, 1]
    reference.dense_update(p.sum(axis=0), rule, undecayed, new_bias, bias_slots)
    a["output_weight"][:], a["output_bias"][:] = new - after, new_bias - bias_after
    a["weight_slots"][:], a["bias_slots"][:] = slots, bias_slots


@twin("softmax_step")
def last_word_of_the_vocabulary_has_no_step(**a):
    last = a["output_weight"][-1:].copy()
    reference.softmax_step(**a)
    a["output_weight"][-1:] = last


@twin("softmax_step")
def bias_decays(**a):
    reference.softmax_step(**a)
    if a["weights"].any():
        a["output_bias"] *= np.float32(1 - a["hyper"][1])


@twin("softmax_step")
def ignored_batch_still_steps(**a):
    few = np.where(a["weights"] == 0, np.float32(1e-30), a["weights"])
    reference.softmax_step(**{**a, "weights": few})
    a["losses"][a["weights"] == 0] = 0
    a["grad_hidden"][a["weights"] == 0] = 0


@twin("softmax_step")
def scores_not_shifted_by_their_maximum(**a):
    reference.softmax_step(**a)
    scores = a["hidden"] @ a["output_weight"].T + a["output_bias"]
    with np.errstate(all="ignore"):
        lost = np.isinf(np.exp(scores, dtype=np.float32).sum(axis=1)) & (a["weights"] != 0)
    a["losses"][lost] = np.inf


@twin("softmax_step")
def scratch_outgrown(**a):
    reference.softmax_step(**a)
    base = a["scratch"].base
    base[len(base) - 2000] = 0


@twin("softmax_step")
def input_scribbled_on(**a):
    reference.softmax_step(**a)
    a["hidden"] *= np.float32(0.5)


@twin("softmax_forward")
def target_counted_twice(**a):
    reference.softmax_forward(**a)
    z, s = a["log_normalizer"], a["target_score"]
    with np.errstate(all="ignore"):
        z += np.log1p(np.exp(s - z))


@twin("softmax_forward")
def tile_ends_one_early(hidden, targets, output_weight, output_bias, **a):
    bias = output_bias.copy()
    bias[4095::4096] = -1e4
    reference.softmax_forward(hidden, targets, output_weight, bias, **a)


# --- the output layer: sampled losses -----------------------------------------------------------


@twin("draw_noise")
def threshold_included(bits, threshold, alias, noise, threads=1):
    reference.draw_noise(bits, np.maximum(threshold, 1 << 31).astype(np.uint32), alias, noise)


@twin("draw_noise")
def drawn_from_the_low_bits(bits, threshold, alias, noise, threads=1):
    reference.draw_noise(bits << np.uint64(32), threshold, alias, noise)


@twin("negative_step")
def noise_equal_to_target_skipped(**a):
    reference.negative_step(**{**a, "skip_target": True})


@twin("negative_step")
def skip_not_heeded(**a):
    reference.negative_step(**{**a, "skip_target": False})


@twin("negative_step")
def wrong_block(**a):
    """The noise of the next block for the last example of each."""
    block, noise = a["block"], a["noise"]
    if len(noise) < 2:
        return reference.negative_step(**a)
    rows = (np.arange(len(a["hidden"])) + 1) // block
    each = np.ascontiguousarray(noise[np.minimum(rows, len(noise) - 1)])
    return reference.negative_step(**{**a, "block": 1, "noise": each})


@twin("negative_step")
def duplicate_noise_counted_once(**a):
    noise = a["noise"].copy()
    rest = []
    for row in noise:
        rest.append([w for i, w in enumerate(row) if w not in row[:i]])
    shortest = min(map(len, rest), default=0)
    few = np.array([r[:shortest] for r in rest], np.int32).reshape(len(noise), shortest)
    reference.negative_step(**{**a, "noise": few})


@twin("negative_step")
def offsets_forgotten(**a):
    reference.negative_step(**{**a, "offsets": a["offsets"][:0]})


@twin("negative_step")
def sigmoid_clamped_at_six(**a):
    """The gradient of a score beyond 6 is dropped, as tables of the logistic do."""
    small = np.clip(a["output_bias"], -6, 6)
    inner = {**a, "output_bias": small}
    reference.negative_step(**inner)
    a["output_bias"] += small - np.clip(a["output_bias"], -6, 6)


@twin("negative_step")
def ignored_examples_touch_their_rows(**a):
    few = np.where(a["weights"] == 0, np.float32(1e-30), a["weights"])
    reference.negative_step(**{**a, "weights": few})
    a["losses"][a["weights"] == 0] = 0
    a["grad_hidden"][a["weights"] == 0] = 0


# --- what only tests of refusal see -------------------------------------------------------------


def _gather_with_a_row_too_many(ids, table, rows, threads=1):
    inside = np.where(ids == len(table), 0, ids).astype(np.int32)  # as `id > V` does
    reference.gather_rows(inside, table, rows)


def _scatter_that_writes_first(ids, grads, rule, hyper, table, slots, threads=1):
    good = np.clip(ids, 0, len(table) - 1)
    reference.scatter_update(good, grads, rule, hyper, table, slots)
    if not np.array_equal(good, ids):
        reference.scatter_update(ids, grads, rule, hyper, table, slots)


CARELESS = {
    "lets_the_limit_through": (
        "gather_rows",
        SimpleNamespace(**{**vars(reference), "gather_rows": _gather_with_a_row_too_many}),
    ),
    "writes_before_it_looks": (
        "scatter_update",
        SimpleNamespace(**{**vars(reference), "scatter_update": _scatter_that_writes_first}),
    ),
}
