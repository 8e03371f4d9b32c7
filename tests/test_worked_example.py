"""A tiny network whose every number was worked out by hand in a tutorial: one step reproduces it.

N=3, M=3, H=4, V=11, learning rate 0.1, one example: ``<s> <s> <s>`` -> 我. The expected figures are
the tutorial's own, but where its rounding slipped (the loss and the gradient on the hidden layer)
they are those that its formulas give.
"""

import numpy as np
import pytest

import fastnplm
from fastnplm.kernels import NAMES, load

WORDS = ["<s>", "我", "喜欢", "机器", "学习", "深度", "他", "讨厌", "传统", "方法", "</s>"]
EMBEDDING = np.array(
    [
        [0.05, -0.08, 0.03, -0.07, 0.02, -0.04, 0.06, -0.09, 0.01, -0.05, 0.04],
        [-0.06, 0.07, -0.02, 0.08, -0.03, 0.05, -0.07, 0.04, -0.01, 0.09, -0.02],
        [0.03, -0.04, 0.09, -0.05, 0.07, -0.06, 0.02, -0.03, 0.08, -0.07, 0.01],
    ]
).T
HIDDEN_WEIGHT = np.array(
    [
        [0.01, -0.02, 0.03, -0.04, 0.05, -0.06, 0.07, -0.08, 0.09],
        [-0.01, 0.02, -0.03, 0.04, -0.05, 0.06, -0.07, 0.08, -0.09],
        [0.02, -0.03, 0.04, -0.05, 0.06, -0.07, 0.08, -0.09, 0.01],
        [-0.02, 0.03, -0.04, 0.05, -0.06, 0.07, -0.08, 0.09, -0.01],
    ]
)
OUTPUT_WEIGHT = np.array(
    [
        [0.01, -0.02, 0.03, -0.04],
        [0.02, -0.03, 0.04, -0.05],
        [0.03, -0.04, 0.05, -0.06],
        [0.04, -0.05, 0.06, -0.07],
        [0.05, -0.06, 0.07, -0.08],
        [0.06, -0.07, 0.08, -0.09],
        [0.07, -0.08, 0.09, -0.01],
        [0.08, -0.09, 0.01, -0.02],
        [0.09, -0.01, 0.02, -0.03],
        [-0.01, 0.02, -0.03, 0.04],
        [-0.02, 0.03, -0.04, 0.05],
    ]
)

Z = [0.0068, -0.0068, 0.0055, -0.0055]
Y = [
    0.000589, 0.000835, 0.001081, 0.001327, 0.001573, 0.001819, 0.001570, 0.001321, 0.000955,
    -0.000589, -0.000835,
]  # fmt: skip
P = [
    0.090883, 0.090905, 0.090928, 0.090950, 0.090972, 0.090995, 0.090972, 0.090949, 0.090916,
    0.090776, 0.090754,
]  # fmt: skip
LOSS = 2.397938
GRAD_HIDDEN = [0.018205, -0.006392, -0.005424, 0.017242]

NEW_EMBEDDING = EMBEDDING.copy()
NEW_EMBEDDING[0] = [0.050015, -0.060013, 0.029807]
NEW_HIDDEN_WEIGHT = np.array(
    [
        [0.009909, -0.019891, 0.029945, -0.040091, 0.050109, -0.060055, 0.069909, -0.079891,
         0.089945],
        [-0.009968, 0.019962, -0.029981, 0.040032, -0.050038, 0.060019, -0.069968, 0.079962,
         -0.089981],
        [0.020027, -0.030033, 0.040016, -0.049973, 0.059967, -0.069984, 0.080027, -0.090033,
         0.010016],
        [-0.020086, 0.030103, -0.040052, 0.049914, -0.059897, 0.069948, -0.080086, 0.090103,
         -0.010052],
    ]
)  # fmt: skip
NEW_OUTPUT_WEIGHT = np.array(
    [
        [0.009938, -0.019938, 0.029950, -0.039950],
        [0.020618, -0.030618, 0.040500, -0.050500],
        [0.029938, -0.039938, 0.049950, -0.059950],
        [0.039938, -0.049938, 0.059950, -0.069950],
        [0.049938, -0.059938, 0.069950, -0.079950],
        [0.059938, -0.069938, 0.079950, -0.089950],
        [0.069938, -0.079938, 0.089950, -0.009950],
        [0.079938, -0.089938, 0.009950, -0.019950],
        [0.089938, -0.009938, 0.019950, -0.029950],
        [-0.010062, 0.020062, -0.030050, 0.040050],
        [-0.020062, 0.030062, -0.040050, 0.050050],
    ]
)


def example(dtype):
    vocabulary = fastnplm.Vocabulary.from_words(WORDS)
    model = fastnplm.NPLM(
        vocabulary, context=3, dim=3, hidden=4, dtype=dtype, output_bias="zeros", seed=None
    )
    model.embedding = EMBEDDING
    model.hidden_weight = HIDDEN_WEIGHT
    model.output_weight = OUTPUT_WEIGHT
    start, target = vocabulary["<s>"], vocabulary["我"]
    return model, [[start, start, start]], [target]


def same_digits(found, printed, digits, dtype):
    """Equal to a printed figure: half a unit of its last digit away, but for rounding."""
    slack = 4 * np.finfo(dtype).eps * np.abs(printed).max()
    np.testing.assert_allclose(found, printed, rtol=0, atol=0.5 * 10.0**-digits + slack)


def check_updated(model):
    same_digits(model.embedding, NEW_EMBEDDING, 6, model.dtype)
    same_digits(model.hidden_weight, NEW_HIDDEN_WEIGHT, 6, model.dtype)
    same_digits(model.output_weight, NEW_OUTPUT_WEIGHT, 6, model.dtype)
    untouched = slice(1, None)
    np.testing.assert_array_equal(
        model.embedding[untouched], EMBEDDING[untouched].astype(model.dtype)
    )


def subjects():
    """Each kernel module in float32, and the reference in float64."""
    for name in NAMES:
        if name != "auto":
            yield pytest.param((name, "float32"), id=name)
    yield pytest.param(("reference", "float64"), id="float64")


@pytest.fixture(params=subjects())
def subject(request):
    name, dtype = request.param
    try:
        load(name)
    except fastnplm.Error as error:
        pytest.skip(str(error))
    return name, dtype


def test_each_stage_has_the_printed_figures(subject):
    name, dtype = subject
    model, contexts, targets = example(dtype)
    activations = model.forward(contexts, kernels=name)
    same_digits(activations.inputs[0], np.tile(EMBEDDING[0], 3), 9, model.dtype)
    same_digits(activations.preactivation[0], Z, 4, model.dtype)
    same_digits(activations.hidden[0], Z, 4, model.dtype)
    same_digits(activations.scores[0], Y, 6, model.dtype)
    same_digits(model.distribution(contexts[0]), P, 6, model.dtype)
    gradients = model.backward(activations, targets, kernels=name)
    same_digits(gradients.losses, [LOSS], 6, model.dtype)
    same_digits(gradients.hidden[0], GRAD_HIDDEN, 6, model.dtype)
    model.apply(gradients, learning_rate=0.1)
    check_updated(model)


def test_a_training_step_has_the_printed_figures(subject):
    name, dtype = subject
    model, contexts, targets = example(dtype)
    step = fastnplm.Step(
        model, fastnplm.Optimizer("sgd", lr=0.1), batch_size=1, kernels=name, threads=1
    )
    loss = step(np.array(contexts, np.int32), np.array(targets, np.int32))
    same_digits(loss, LOSS, 6, model.dtype)
    check_updated(model)
    same_digits(model.hidden_bias, -0.1 * np.array(GRAD_HIDDEN), 6, model.dtype)
    onehot = np.eye(len(WORDS))[targets[0]]
    same_digits(model.output_bias, 0.1 * (onehot - P), 6, model.dtype)


def test_the_three_starts_of_the_sentence_add_up():
    model, contexts, targets = example("float64")
    gradients = model.backward(model.forward(contexts), targets)
    assert gradients.embedding_ids.tolist() == [0]
    parts = gradients.inputs.reshape(3, 3)
    np.testing.assert_allclose(gradients.embedding_rows[0], parts.sum(axis=0), rtol=1e-12)
    # One position alone, or the last overwriting the others, is another number.
    moved = EMBEDDING[0] - 0.1 * parts
    assert not np.isclose(moved, NEW_EMBEDDING[0], atol=1e-6, rtol=0).all(axis=1).any()
