"""One check a kernel: what each refuses, by the rules of ``contract``, before it writes.

Shared by ``reference`` and ``jitted``. ``floats`` are the dtypes that floating arrays may have;
all floating arrays of a call have the same one.
"""

import numpy as np

from . import contract
from .contract import apart, array, ids


def form_contexts(tokens, positions, contexts, targets):
    array("tokens", tokens, (np.uint16, np.int32), (None,))
    array("positions", positions, np.int64, (None,))
    array("contexts", contexts, np.int32, (len(positions), None), written=True)
    array("targets", targets, np.int32, (len(positions),), written=True)
    apart({"contexts": contexts, "targets": targets}, {"tokens": tokens, "positions": positions})
    contract.positions("positions", positions, len(tokens))


def gather_rows(floats, rows_ids, table, rows):
    array("table", table, floats, (None, None))
    ids("ids", rows_ids, len(table), (None,))
    array("rows", rows, table.dtype, (len(rows_ids), table.shape[1]), written=True)
    apart({"rows": rows}, {"ids": rows_ids, "table": table})


def gather_contexts(floats, tokens, positions, embedding, contexts, targets, inputs):
    """The ids that the contexts come to hold are for the kernel to check."""
    array("embedding", embedding, floats, (None, None))
    form_contexts(tokens, positions, contexts, targets)
    batch, context = contexts.shape
    array("inputs", inputs, embedding.dtype, (batch, context * embedding.shape[1]), written=True)
    apart(
        {"inputs": inputs, "contexts": contexts, "targets": targets},
        {"tokens": tokens, "positions": positions, "embedding": embedding},
    )


def scatter_update(floats, rows_ids, grads, rule, hyper, table, slots):
    count = contract.rule(rule, hyper)
    array("table", table, floats, (None, None), written=True)
    ids("ids", rows_ids, len(table), (None,))
    array("grads", grads, table.dtype, (len(rows_ids), table.shape[1]))
    array("slots", slots, table.dtype, (count, *table.shape), written=True)
    apart({"table": table, "slots": slots}, {"ids": rows_ids, "grads": grads, "hyper": hyper})


def dense_update(floats, grad, rule, hyper, parameter, slots):
    count = contract.rule(rule, hyper)
    array("parameter", parameter, floats, None, written=True)
    array("grad", grad, parameter.dtype, parameter.shape)
    array("slots", slots, parameter.dtype, (count, *parameter.shape), written=True)
    apart({"parameter": parameter, "slots": slots}, {"grad": grad, "hyper": hyper})


def bias_tanh(floats, bias, hidden):
    array("hidden", hidden, floats, (None, None), written=True)
    array("bias", bias, hidden.dtype, (hidden.shape[1],))
    apart({"hidden": hidden}, {"bias": bias})


def tanh_backward(floats, hidden, grad_bias, grad_hidden):
    array("hidden", hidden, floats, (None, None))
    array("grad_hidden", grad_hidden, hidden.dtype, hidden.shape, written=True)
    array("grad_bias", grad_bias, hidden.dtype, (hidden.shape[1],), written=True)
    apart({"grad_hidden": grad_hidden, "grad_bias": grad_bias}, {"hidden": hidden})


def dropout(floats, mask, values):
    array("values", values, floats, None, written=True)
    array("mask", mask, np.uint8, values.shape)
    apart({"values": values}, {"mask": mask})


def layer_forward(floats, inputs, weight, bias, hidden):
    array("inputs", inputs, floats, (None, None))
    array("weight", weight, inputs.dtype, (None, inputs.shape[1]))
    array("bias", bias, inputs.dtype, (len(weight),))
    array("hidden", hidden, inputs.dtype, (len(inputs), len(weight)), written=True)
    apart({"hidden": hidden}, {"inputs": inputs, "weight": weight, "bias": bias})


def layer_backward(
    floats, inputs, hidden, weight, grad_hidden, grad_weight, grad_bias, grad_inputs
):
    array("inputs", inputs, floats, (None, None))
    kind = inputs.dtype
    array("weight", weight, kind, (None, inputs.shape[1]))
    array("hidden", hidden, kind, (len(inputs), len(weight)))
    array("grad_hidden", grad_hidden, kind, hidden.shape, written=True)
    array("grad_weight", grad_weight, kind, weight.shape, written=True)
    array("grad_bias", grad_bias, kind, (len(weight),), written=True)
    array("grad_inputs", grad_inputs, kind, inputs.shape, written=True)
    apart(
        {
            "grad_hidden": grad_hidden,
            "grad_weight": grad_weight,
            "grad_bias": grad_bias,
            "grad_inputs": grad_inputs,
        },
        {"inputs": inputs, "hidden": hidden, "weight": weight},
    )


def words_forward(floats, contexts, embedding, weight, bias, scratch, hidden, precision, size):
    array("embedding", embedding, floats, (None, None))
    contract.precision(precision, embedding.dtype)
    kind = embedding.dtype
    ids("contexts", contexts, len(embedding), (None, None))
    array("weight", weight, kind, (None, contexts.shape[1] * embedding.shape[1]))
    array("bias", bias, kind, (len(weight),))
    array("hidden", hidden, kind, (len(contexts), len(weight)), written=True)
    contract.scratch(scratch, size)
    apart(
        {"hidden": hidden, "scratch": scratch},
        {"contexts": contexts, "embedding": embedding, "weight": weight, "bias": bias},
    )


def words_backward(
    floats,
    contexts,
    hidden,
    weight,
    rule,
    hyper,
    scratch,
    grad_hidden,
    grad_weight,
    grad_bias,
    embedding,
    slots,
    precision,
    size,
):
    count = contract.rule(rule, hyper)
    array("embedding", embedding, floats, (None, None), written=True)
    contract.precision(precision, embedding.dtype)
    kind = embedding.dtype
    array("slots", slots, kind, (count, *embedding.shape), written=True)
    ids("contexts", contexts, len(embedding), (None, None))
    array("weight", weight, kind, (None, contexts.shape[1] * embedding.shape[1]))
    array("hidden", hidden, kind, (len(contexts), len(weight)))
    array("grad_hidden", grad_hidden, kind, hidden.shape, written=True)
    array("grad_weight", grad_weight, kind, weight.shape, written=True)
    array("grad_bias", grad_bias, kind, (len(weight),), written=True)
    contract.scratch(scratch, size)
    apart(
        {
            "grad_hidden": grad_hidden,
            "grad_weight": grad_weight,
            "grad_bias": grad_bias,
            "embedding": embedding,
            "slots": slots,
            "scratch": scratch,
        },
        {"contexts": contexts, "hidden": hidden, "weight": weight, "hyper": hyper},
    )


def softmax_cross_entropy(floats, targets, weights, bias, losses, logits):
    array("logits", logits, floats, (None, None), written=True)
    batch, vocabulary = logits.shape
    ids("targets", targets, vocabulary, (batch,))
    array("weights", weights, logits.dtype, (batch,))
    array("bias", bias, logits.dtype, (vocabulary,))
    array("losses", losses, np.float64, (batch,), written=True)
    apart(
        {"logits": logits, "losses": losses},
        {"targets": targets, "weights": weights, "bias": bias},
    )


def softmax_step(
    floats,
    hidden,
    targets,
    weights,
    rule,
    hyper,
    precision,
    scratch,
    losses,
    grad_hidden,
    output_weight,
    output_bias,
    weight_slots,
    bias_slots,
    size,
):
    array("output_weight", output_weight, floats, (None, None), written=True)
    contract.precision(precision, output_weight.dtype)
    _output_layer(
        floats,
        {"hidden": hidden, "targets": targets, "weights": weights},
        rule,
        hyper,
        scratch,
        losses,
        grad_hidden,
        output_weight,
        output_bias,
        weight_slots,
        bias_slots,
        size,
    )


def negative_step(
    floats,
    hidden,
    targets,
    weights,
    noise,
    block,
    offsets,
    rule,
    hyper,
    scratch,
    losses,
    grad_hidden,
    output_weight,
    output_bias,
    weight_slots,
    bias_slots,
    size,
):
    contract.block(block)
    array("output_weight", output_weight, floats, (None, None), written=True)
    array("targets", targets, np.int32, (None,))
    ids("noise", noise, len(output_weight), (-(-len(targets) // block), None))
    array("offsets", offsets, output_weight.dtype, (None,))
    if len(offsets):
        array("offsets", offsets, output_weight.dtype, (len(output_weight),))
    _output_layer(
        floats,
        {
            "hidden": hidden,
            "targets": targets,
            "weights": weights,
            "noise": noise,
            "offsets": offsets,
        },
        rule,
        hyper,
        scratch,
        losses,
        grad_hidden,
        output_weight,
        output_bias,
        weight_slots,
        bias_slots,
        size,
    )


def _output_layer(
    floats,
    read,
    rule,
    hyper,
    scratch,
    losses,
    grad_hidden,
    output_weight,
    output_bias,
    weight_slots,
    bias_slots,
    size,
):
    """What the two steps of an output layer have in common; ``read`` holds the inputs."""
    count = contract.rule(rule, hyper)
    array("output_weight", output_weight, floats, (None, None), written=True)
    vocabulary, width = output_weight.shape
    kind = output_weight.dtype
    hidden = array("hidden", read["hidden"], kind, (None, width))
    batch = len(hidden)
    ids("targets", read["targets"], vocabulary, (batch,))
    array("weights", read["weights"], kind, (batch,))
    array("losses", losses, np.float64, (batch,), written=True)
    array("grad_hidden", grad_hidden, kind, (batch, width), written=True)
    array("output_bias", output_bias, kind, (vocabulary,), written=True)
    array("weight_slots", weight_slots, kind, (count, vocabulary, width), written=True)
    array("bias_slots", bias_slots, kind, (count, vocabulary), written=True)
    contract.scratch(scratch, size)
    apart(
        {
            "losses": losses,
            "grad_hidden": grad_hidden,
            "output_weight": output_weight,
            "output_bias": output_bias,
            "weight_slots": weight_slots,
            "bias_slots": bias_slots,
            "scratch": scratch,
        },
        {**read, "hyper": hyper},
    )


def softmax_forward(
    floats, hidden, targets, output_weight, output_bias, log_normalizer, target_score
):
    array("output_weight", output_weight, floats, (None, None))
    vocabulary, width = output_weight.shape
    array("hidden", hidden, output_weight.dtype, (None, width))
    ids("targets", targets, vocabulary, (len(hidden),))
    array("output_bias", output_bias, output_weight.dtype, (vocabulary,))
    array("log_normalizer", log_normalizer, np.float64, (len(hidden),), written=True)
    array("target_score", target_score, np.float64, (len(hidden),), written=True)
    apart(
        {"log_normalizer": log_normalizer, "target_score": target_score},
        {
            "hidden": hidden,
            "targets": targets,
            "output_weight": output_weight,
            "output_bias": output_bias,
        },
    )


def softmax_top_k(floats, hidden, output_weight, output_bias, best, scores):
    array("output_weight", output_weight, floats, (None, None))
    vocabulary, width = output_weight.shape
    array("hidden", hidden, output_weight.dtype, (None, width))
    array("output_bias", output_bias, output_weight.dtype, (vocabulary,))
    array("ids", best, np.int32, (len(hidden), None), written=True)
    array("scores", scores, output_weight.dtype, best.shape, written=True)
    contract.top(best.shape[1], vocabulary)
    apart(
        {"ids": best, "scores": scores},
        {"hidden": hidden, "output_weight": output_weight, "output_bias": output_bias},
    )


def draw_noise(bits, threshold, alias, noise):
    array("bits", bits, np.uint64, (None,))
    array("threshold", threshold, np.uint32, (None,))
    ids("alias", alias, len(threshold), (len(threshold),))
    array("noise", noise, np.int32, (len(bits),), written=True)
    apart({"noise": noise}, {"bits": bits, "threshold": threshold, "alias": alias})
    if len(bits) and not len(threshold):
        contract.empty_table()
