"""The cases the kernels are judged on: shapes that are multiples of nothing, and hard values.

A case holds its arguments by the kernel's names. Values are made from the case's label, so they
are the same in every run and for every module. The numbers of ``hyper`` are exact in float32.
"""

import dataclasses
import functools
import zlib

import numpy as np

RULES = ("sgd", "momentum", "adagrad", "rmsprop", "adam")
SLOTS = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adam": 2}
#        learning_rate, decay, epsilon, beta1, beta2, correction
HYPER = np.array([0.125, 2**-10, 2**-7, 0.875, 1 - 2**-7, 1.5])


@dataclasses.dataclass(frozen=True)
class Case:
    """``inputs`` are only read, ``updated`` are changed in place, ``written`` only written.

    Floating arrays stand here as float32; ``written`` holds (dtype, shape), None for the dtype
    that the floating arrays have.
    """

    kernel: str
    label: str
    inputs: dict
    updated: dict
    written: dict
    slow: bool = False

    def __str__(self):
        return f"{self.kernel}[{self.label}]"

    @functools.cached_property
    def outputs(self):
        return (*self.updated, *self.written)


def random(label):
    """The random generator of a case."""
    return np.random.default_rng(zlib.crc32(label.encode()))


def floats(rng, *shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def zipf_ids(rng, limit, *shape):
    """Ids with many duplicates, the first and the last row among them."""
    ids = np.minimum(rng.zipf(1.3, size=shape) - 1, limit - 1).astype(np.int32)
    if ids.size > 1:
        ids.flat[0], ids.flat[-1] = limit - 1, 0
    return ids


def slots_like(rng, rule, *shape, zero=False):
    """Optimiser's state as in the middle of training: positive, but for momentum."""
    state = np.abs(floats(rng, SLOTS[rule], *shape)) + np.float32(0.125)
    if rule == "momentum" and state.size:
        state *= np.where(rng.random(state.shape) < 0.5, -1, 1).astype(np.float32)
    return np.zeros_like(state) if zero else state


# --- contexts and embedding ---------------------------------------------------------------------


def _stream(rng, length, limit, dtype):
    tokens = rng.integers(3, limit, size=length)
    tokens[rng.random(length) < 0.2] = 2
    tokens[-1:] = 2
    return tokens.astype(dtype)


def _context_cases():
    for batch, context, dim, limit, dtype in [
        (1, 1, 1, 4, np.uint16),
        (3, 31, 30, 11, np.int32),
        (257, 4, 30, 301, np.uint16),
        (257, 1, 3, 70000, np.int32),
        (3, 1, 301, 301, np.int32),
        (1, 31, 1, 65536, np.uint16),
        (0, 3, 5, 7, np.uint16),
    ]:
        label = f"B{batch} N{context} M{dim} V{limit} {np.dtype(dtype).name}"
        rng = random(label)
        tokens = _stream(rng, 1000, limit, dtype)
        positions = rng.integers(0, len(tokens), size=batch)
        if batch > 2:
            positions[:3] = 0, len(tokens) - 1, 1
        tokens[tokens >= limit] = 2
        both = {"tokens": tokens, "positions": positions, "start_id": 1, "end_id": 2}
        written = {
            "contexts": (np.int32, (batch, context)),
            "targets": (np.int32, (batch,)),
        }
        yield Case("form_contexts", label, both, {}, written)
        inputs = {**both, "embedding": floats(rng, limit, dim)}
        written = {**written, "inputs": (None, (batch, context * dim))}
        yield Case("gather_contexts", label, inputs, {}, written)


def _gather_cases():
    for rows, dim, limit in [(1, 1, 2), (3, 30, 11), (257, 301, 2), (1000, 31, 10007), (0, 3, 5)]:
        label = f"R{rows} M{dim} V{limit}"
        rng = random(label)
        table = floats(rng, limit, dim)
        table[0, 0] = np.nan
        inputs = {"ids": zipf_ids(rng, limit, rows), "table": table}
        yield Case("gather_rows", label, inputs, {}, {"rows": (None, (rows, dim))})


def _scatter_cases():
    shapes = [(1, 1, 2), (3, 30, 11), (257, 31, 11), (1000, 7, 10007), (0, 3, 5)]
    for rule in RULES:
        for rows, dim, limit in [*shapes, (70, 301, 50)]:
            for zero in (False, True) if (rows, dim) == (3, 30) else (False,):
                label = f"R{rows} M{dim} V{limit} {rule}{' zero state' if zero else ''}"
                rng = random(label)
                inputs = {
                    "ids": zipf_ids(rng, limit, rows),
                    "grads": floats(rng, rows, dim),
                    "rule": rule,
                    "hyper": HYPER,
                }
                updated = {
                    "table": floats(rng, limit, dim),
                    "slots": slots_like(rng, rule, limit, dim, zero=zero),
                }
                yield Case("scatter_update", label, inputs, updated, {})
        for shape in [(1,), (301,), (11, 7), (3, 5, 31), (257, 201)]:
            label = f"{shape} {rule}"
            rng = random(label)
            inputs = {"grad": floats(rng, *shape), "rule": rule, "hyper": HYPER}
            updated = {
                "parameter": floats(rng, *shape),
                "slots": slots_like(rng, rule, *shape),
            }
            yield Case("dense_update", label, inputs, updated, {})


# --- the hidden layer ---------------------------------------------------------------------------


def _hidden_cases():
    for batch, width, scale in [
        (1, 1, 1), (3, 50, 1), (257, 201, 1), (257, 1, 3), (3, 201, 1e4), (0, 5, 1), (33, 17, 1e-4),
    ]:  # fmt: skip
        label = f"B{batch} H{width} scale {scale:g}"
        rng = random(label)
        scores = floats(rng, batch, width, scale=scale)
        if batch == 3:
            scores[1, 7] = np.nan
            scores[2, :5] = 0.0, -0.0, 1e-30, np.inf, -np.inf
        inputs = {"bias": floats(rng, width)}
        yield Case("bias_tanh", label, inputs, {"hidden": scores}, {})
        hidden = np.tanh(floats(rng, batch, width, scale=scale))
        yield Case(
            "tanh_backward",
            label,
            {"hidden": hidden},
            {"grad_hidden": floats(rng, batch, width)},
            {"grad_bias": (None, (width,))},
        )
        mask = (rng.random((batch, width)) < 0.7).astype(np.uint8)
        values = floats(rng, batch, width)
        values[mask == 0] = np.nan
        yield Case("dropout", label, {"mask": mask, "scale": 1.25}, {"values": values}, {})


def _layer_cases():
    for batch, context, dim, width, limit in [
        (1, 1, 1, 1, 2),
        (3, 31, 30, 50, 11),
        (257, 1, 30, 50, 301),
        (3, 2, 31, 17, 10007),
        (3, 1, 301, 201, 11),
        (257, 2, 1, 1, 2),
        (65, 4, 30, 17, 11),
        (0, 2, 3, 5, 4),
    ]:
        label = f"B{batch} N{context} M{dim} H{width} V{limit}"
        rng = random(label)
        embedding = floats(rng, limit, dim)
        contexts = zipf_ids(rng, limit, batch, context)
        layer = {
            "weight": floats(rng, width, context * dim, scale=(context * dim) ** -0.5),
            "bias": floats(rng, width),
        }
        inputs = floats(rng, batch, context * dim)
        shape = {"hidden": (None, (batch, width))}
        for form, linear in (("", {}), (" linear", {"linear": True})):
            given = {"inputs": inputs, **layer, **linear}
            yield Case("layer_forward", label + form, given, {}, shape)
        words = {"contexts": contexts, "embedding": embedding, **layer}
        yield Case("words_forward", label, words, {}, shape)
        hidden = np.tanh(floats(rng, batch, width))
        grad_hidden = {"grad_hidden": floats(rng, batch, width)}
        written = {
            "grad_weight": (None, (width, context * dim)),
            "grad_bias": (None, (width,)),
        }
        back = {"hidden": hidden, "weight": layer["weight"]}
        for form, linear in (("", {}), (" linear", {"linear": True})):
            yield Case(
                "layer_backward",
                label + form,
                {"inputs": inputs, **back, **linear},
                grad_hidden,
                {**written, "grad_inputs": (None, (batch, context * dim))},
            )
        for rule in RULES if batch == 65 else ("sgd", "adam"):
            yield Case(
                "words_backward",
                f"{label} {rule}",
                {"contexts": contexts, **back, "rule": rule, "hyper": HYPER},
                {
                    **grad_hidden,
                    "embedding": embedding,
                    "slots": slots_like(rng, rule, limit, dim),
                },
                written,
            )


# --- the output layer: exact softmax ------------------------------------------------------------


def _weights(rng, batch, ignored):
    weights = np.full(batch, 1 / max(batch, 1), dtype=np.float32)
    if ignored == "some":
        weights *= (1 + rng.random(batch)).astype(np.float32)
        weights[rng.random(batch) < 0.3] = 0
        weights[:1] = 0
    elif ignored == "all":
        weights[:] = 0
    return weights


def _softmax_values(rng, batch, width, limit, kind):
    """hidden, output_weight, output_bias of one kind of scores."""
    hidden = np.tanh(floats(rng, batch, width))
    weight = floats(rng, limit, width, scale=width**-0.5)
    bias = floats(rng, limit)
    if kind == "extreme":  # scores of about +-1e4
        bias[rng.random(limit) < 0.5] += np.float32(1e4)
        bias[rng.random(limit) < 0.3] -= np.float32(2e4)
    elif kind == "large":  # the products are large, not the bias
        weight *= np.float32(300)
    elif kind == "equal":
        weight[:], bias[:] = weight[0], bias[0]
    elif kind == "nan":
        hidden[batch // 2, -1] = np.nan
    elif kind == "nan weight":
        weight[limit // 2, 0] = np.nan
    elif kind == "infinite bias":  # words that can never be
        bias[1::2] = -np.inf
    elif kind == "only the last":  # whole tiles of words that can never be
        bias[: limit - 3] = -np.inf
    elif kind == "one sure":
        bias[limit // 2] = 200
    return hidden, weight, bias


def _make_possible(targets, limit, kind):
    """Keep targets off the words whose bias is minus infinity."""
    if kind == "infinite bias":
        targets -= targets % 2
    elif kind == "only the last":
        targets[:] = limit - 1 - targets % 3


def _softmax_case(batch, width, limit, rule, kind="plain", ignored="none", precision="float32"):
    label = f"B{batch} H{width} V{limit} {rule} {kind} ignored {ignored} {precision}"
    rng = random(label)
    hidden, weight, bias = _softmax_values(rng, batch, width, limit, kind)
    targets = rng.integers(0, limit, size=batch).astype(np.int32)
    targets[-1:], targets[:1] = limit - 1, 0
    _make_possible(targets, limit, kind)
    return Case(
        "softmax_step",
        label,
        {
            "hidden": hidden,
            "targets": targets,
            "weights": _weights(rng, batch, ignored),
            "rule": rule,
            "hyper": HYPER,
            "precision": precision,
        },
        {
            "output_weight": weight,
            "output_bias": bias,
            "weight_slots": slots_like(rng, rule, limit, width),
            "bias_slots": slots_like(rng, rule, limit),
        },
        {"losses": (np.float64, (batch,)), "grad_hidden": (None, (batch, width))},
        slow=batch * width * limit > 5e5,
    )


SOFTMAX_SHAPES = [
    (1, 1, 2),
    (3, 201, 11),
    (257, 50, 11),
    (257, 1, 2),
    (1, 50, 10007),
    (3, 7, 10007),
    (33, 3, 1030),
    (65, 17, 1111),
]


def _softmax_step_cases():
    for batch, width, limit in SOFTMAX_SHAPES:
        few = RULES if limit < 1100 else ("sgd", "adam") if width < 50 else ("sgd",)
        for rule in few:
            yield _softmax_case(batch, width, limit, rule)
    for rule in RULES:
        yield _softmax_case(33, 17, 201, rule, ignored="some")
        yield _softmax_case(8, 5, 11, rule, ignored="all")
    for kind in ("extreme", "large", "equal", "nan", "nan weight", "infinite bias", "one sure"):
        for rule in ("sgd", "adam"):
            yield _softmax_case(33, 17, 301, rule, kind=kind)
    for rule in ("sgd", "adagrad"):
        yield _softmax_case(3, 5, 5000, rule, kind="only the last")
    yield _softmax_case(257, 201, 1009, "momentum")
    yield _softmax_case(257, 50, 4999, "adagrad", ignored="some")
    yield _softmax_case(0, 5, 11, "sgd")


def bf16_cases(large):
    """Judged by a rule of their own: the yardstick is NumPy with its inputs rounded.

    large : those whose scalar loops take more than a moment, or the others.
    """
    for rule in RULES:
        size = (33, 50, 301) if large else (5, 33, 41)
        yield _softmax_case(*size, rule, precision="bf16")
    large_sizes = [(257, 201, 11), (3, 201, 2111), (65, 17, 1111)]
    for batch, width, limit in large_sizes if large else [(1, 31, 11), (33, 17, 67)]:
        yield _softmax_case(batch, width, limit, "sgd", precision="bf16")
        yield _softmax_case(batch, width, limit, "adam", ignored="some", precision="bf16")
    for case in _layer_cases():
        if case.kernel.startswith("words") and large == (case.inputs["contexts"].size > 200):
            inputs = case.inputs | {"precision": "bf16"}
            yield dataclasses.replace(case, label=f"{case.label} bf16", inputs=inputs)


def _softmax_other_cases():
    kinds = ("plain", "extreme", "large", "equal", "nan", "infinite bias", "one sure")
    for batch, width, limit in [*SOFTMAX_SHAPES, (3, 5, 5000)]:
        few = ("only the last",) if limit == 5000 else ("plain",)
        for kind in kinds if (batch, width) == (33, 3) else few:
            label = f"B{batch} H{width} V{limit} {kind}"
            rng = random(label)
            hidden, weight, bias = _softmax_values(rng, batch, width, limit, kind)
            targets = rng.integers(0, limit, size=batch).astype(np.int32)
            _make_possible(targets, limit, kind)
            output = {"hidden": hidden, "output_weight": weight, "output_bias": bias}
            yield Case(
                "softmax_forward",
                label,
                {**output, "targets": targets},
                {},
                {"log_normalizer": (np.float64, (batch,)), "target_score": (np.float64, (batch,))},
            )
            yield Case(
                "softmax_cross_entropy",
                label,
                {"targets": targets, "weights": _weights(rng, batch, "some"), "bias": bias},
                {"logits": hidden @ weight.T},
                {"losses": (np.float64, (batch,))},
            )


def top_k_cases(large):
    """(case, exact): exact when the scores are small integers, so that ties are ties.

    large : those whose scalar loops take more than a moment, or the others.
    """
    large_sizes = [(3, 50, 10007, 31), (257, 3, 1030, 7), (3, 5, 5000, 5000)]
    small_sizes = [(1, 1, 2, 2), (5, 201, 11, 11), (33, 17, 301, 1), (35, 3, 530, 530)]
    for batch, width, limit, k in large_sizes if large else small_sizes:
        for exact in (False, True):
            label = f"B{batch} H{width} V{limit} k{k}{' integers' if exact else ''}"
            rng = random(label)
            hidden, weight, bias = _softmax_values(rng, batch, width, limit, "plain")
            if exact:
                hidden, weight, bias = (
                    rng.integers(-2, 3, size=a.shape).astype(np.float32)
                    for a in (hidden, weight, bias)
                )
                bias[limit // 2] = np.nan
            yield (
                Case(
                    "softmax_top_k",
                    label,
                    {"hidden": hidden, "output_weight": weight, "output_bias": bias},
                    {},
                    {"ids": (np.int32, (batch, k)), "scores": (None, (batch, k))},
                ),
                exact,
            )


# --- the output layer: sampled losses -----------------------------------------------------------


def _noise_cases():
    for rows, limit in [(1, 1), (3, 2), (257, 11), (5000, 10007), (0, 4)]:
        label = f"R{rows} V{limit}"
        rng = random(label)
        bits = rng.integers(0, 2**64, size=rows, dtype=np.uint64)
        if rows > 2:
            bits[:3] = 0, 2**64 - 1, 2**63
        inputs = {
            "bits": bits,
            "threshold": rng.integers(0, 2**32, size=limit, dtype=np.uint32),
            "alias": rng.integers(0, limit, size=limit).astype(np.int32),
        }
        yield Case("draw_noise", label, inputs, {}, {"noise": (np.int32, (rows,))})


def _negative_case(batch, width, limit, negatives, block, rule, **options):
    kind = options.get("kind", "plain")
    skip, offset = options.get("skip", False), options.get("offset", False)
    ignored = options.get("ignored", "none")
    label = f"B{batch} H{width} V{limit} K{negatives} block {block} {rule} {options}"
    rng = random(label)
    hidden, weight, bias = _softmax_values(rng, batch, width, limit, kind)
    targets = zipf_ids(rng, limit, batch)
    noise = zipf_ids(rng, limit, -(-batch // block), negatives)
    if noise.shape[1] > 1 and batch:
        noise[0, 0] = targets[0]  # equal to a target
        noise[-1, -1] = noise[-1, 0]  # duplicate noise
    offsets = floats(rng, limit) - np.float32(3) if offset else np.zeros(0, np.float32)
    return Case(
        "negative_step",
        label,
        {
            "hidden": hidden,
            "targets": targets,
            "weights": _weights(rng, batch, ignored),
            "noise": noise,
            "block": block,
            "skip_target": skip,
            "offsets": offsets,
            "rule": rule,
            "hyper": HYPER,
        },
        {
            "output_weight": weight,
            "output_bias": bias,
            "weight_slots": slots_like(rng, rule, limit, width),
            "bias_slots": slots_like(rng, rule, limit),
        },
        {"losses": (np.float64, (batch,)), "grad_hidden": (None, (batch, width))},
    )


def _negative_cases():
    for rule in RULES:
        for block in (1, 8, 32):
            yield _negative_case(65, 17, 50, 5, block, rule)
        yield _negative_case(33, 50, 301, 7, 1, rule, skip=True, offset=True, ignored="some")
        yield _negative_case(33, 50, 301, 7, 32, rule, skip=True, offset=True, ignored="some")
    for batch, width, limit, negatives in [
        (1, 1, 2, 1), (3, 201, 11, 31), (257, 50, 10007, 3), (257, 1, 2, 2), (1, 50, 2, 0),
        (3, 31, 10007, 100), (0, 3, 5, 2), (129, 201, 301, 5),
    ]:  # fmt: skip
        for block in (1, 3, 1000):
            yield _negative_case(batch, width, limit, negatives, block, "sgd")
        yield _negative_case(batch, width, limit, negatives, 32, "adam", offset=True)
    for block in (1, 32):
        yield _negative_case(33, 5, 11, 0, block, "adagrad")
        yield _negative_case(33, 5, 2, 4, block, "sgd", skip=True)
        yield _negative_case(8, 5, 11, 4, block, "adam", ignored="all")
        for kind in ("extreme", "large", "equal", "nan"):
            yield _negative_case(33, 17, 50, 6, block, "sgd", kind=kind)


@functools.cache
def every():
    """All cases judged by the float32 rule, as a tuple."""
    return tuple(
        case
        for group in (
            _context_cases, _gather_cases, _scatter_cases, _hidden_cases, _layer_cases,
            _softmax_step_cases, _softmax_other_cases, _noise_cases, _negative_cases,
        )
        for case in group()
    )  # fmt: skip


@functools.cache
def small():
    """One modest case of each kernel, by the kernel's name: for tests of what is refused."""
    chosen = {}
    wanted = {
        "form_contexts": "B257", "gather_contexts": "B257", "gather_rows": "R1000",
        "scatter_update": "R257 M31 V11 adam", "dense_update": "(11, 7) adam",
        "bias_tanh": "B257 H201", "tanh_backward": "B257 H201", "dropout": "B257 H201",
        "layer_forward": "B65", "layer_backward": "B65", "words_forward": "B65",
        "words_backward": "B65 N4 M30 H17 V11 adam", "softmax_cross_entropy": "B65",
        "softmax_forward": "B65", "softmax_step": "B33 H17 V201 adam", "draw_noise": "R257",
        "negative_step": "B33 H50 V301 K7 block 1 adam",
    }  # fmt: skip
    for case in every():
        if case.kernel not in chosen and case.label.startswith(wanted[case.kernel]):
            chosen[case.kernel] = case
    chosen["softmax_top_k"] = next(c for c, exact in top_k_cases(large=False) if "B33" in c.label)
    return chosen
