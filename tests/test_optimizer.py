"""Each optimiser's rule against a closed form, and lazy weight decay against the dense one."""

import math

import numpy as np
import pytest

from fastnplm import optimizer as optimizers
from fastnplm.errors import SettingsError
from fastnplm.kernels import reference


def _two_steps(optimizer, gradients, start=1.0):
    """The parameter after one step on each of ``gradients``, by the kernels' rule."""
    parameter = np.array([start])
    slots = np.zeros((optimizer.slots, 1))
    for update, gradient in enumerate(gradients, start=1):
        hyper = optimizer.hyper(1.0, update)
        reference.dense_update(np.array([float(gradient)]), optimizer.rule, hyper, parameter, slots)
    return parameter[0]


def test_sgd():
    assert _two_steps(optimizers.resolve("sgd", lr=0.1), [2, 3]) == pytest.approx(1 - 0.2 - 0.3)


def test_momentum():
    found = _two_steps(optimizers.Optimizer("momentum", lr=0.1, beta1=0.9), [2, 3])
    assert found == pytest.approx(1 - 0.1 * 2 - 0.1 * (0.9 * 2 + 3))


def test_adagrad():
    found = _two_steps(optimizers.Optimizer("adagrad", lr=0.1, epsilon=1e-6), [2, 3])
    assert found == pytest.approx(
        1 - 0.1 * 2 / (2 + 1e-6) - 0.1 * 3 / (math.sqrt(13) + 1e-6), rel=1e-12
    )


def test_rmsprop():
    found = _two_steps(optimizers.Optimizer("rmsprop", lr=0.1, beta2=0.9, epsilon=1e-6), [2, 3])
    first, second = 0.1 * 4, 0.9 * 0.1 * 4 + 0.1 * 9
    assert found == pytest.approx(
        1 - 0.1 * 2 / (math.sqrt(first) + 1e-6) - 0.1 * 3 / (math.sqrt(second) + 1e-6), rel=1e-12
    )


def test_adam():
    optimizer = optimizers.Optimizer("adam", lr=0.1, beta1=0.9, beta2=0.99, epsilon=1e-6)
    moment, square = 0.9 * 0.1 * 2 + 0.1 * 3, 0.99 * 0.01 * 4 + 0.01 * 9
    first = 0.1 * 2 / (2 + 1e-6)  # bias-corrected, the first step is lr times the sign
    second = 0.1 * (moment / (1 - 0.81)) / (math.sqrt(square / (1 - 0.9801)) + 1e-6)
    assert _two_steps(optimizer, [2, 3]) == pytest.approx(1 - first - second, rel=1e-12)


@pytest.mark.parametrize("name", sorted(optimizers.DEFAULTS))
def test_weight_decay_is_decoupled(name):
    plain = optimizers.resolve(name, lr=0.1)
    decayed = optimizers.resolve(name, lr=0.1, weight_decay=0.5)
    assert _two_steps(decayed, [2]) == pytest.approx(_two_steps(plain, [2]) - 0.05, rel=1e-12)


def test_lazy_decay_equals_dense_decay():
    generator = np.random.default_rng(3)
    table, dense = (np.linspace(1, 2, 12).reshape(6, 2) for _ in range(2))
    lazy = optimizers.LazyDecay(6)
    nothing = np.zeros((0, 6, 2))
    for update in range(50):
        ids = generator.integers(0, 6, 3).astype(np.int32)
        grads = generator.normal(size=(3, 2))
        decay = 0.01 + 0.001 * update
        hyper = np.array([0.1, decay, 0, 0, 0, 1])
        rows = lazy.refresh(ids, table)
        reference.scatter_update(ids, grads, "sgd", hyper, table, nothing)
        lazy.step(rows, decay)
        dense *= 1 - decay
        np.subtract.at(dense, ids, 0.1 * grads)
    lazy.finish(table)
    assert table == pytest.approx(dense, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optimizers.resolve("adamw"), "optimizer is 'adamw'; expected one of sgd"),
        (lambda: optimizers.resolve("sgd", lr=0), "lr is 0.0; expected a positive number"),
        (lambda: optimizers.resolve("sgd", lr=math.nan), "lr is nan"),
        (lambda: optimizers.resolve("sgd", weight_decay=-1), "weight_decay is -1.0"),
        (lambda: optimizers.Optimizer("adam", lr=1, beta1=1.0), "betas are 1.0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(call, message):
    with pytest.raises(SettingsError, match=message):
        call()
