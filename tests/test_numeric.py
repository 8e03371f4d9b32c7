"""What counts as a number among what a user may give, and that settings refuse the rest."""

import dataclasses
import math

import numpy as np
import pytest

import fastnplm
from fastnplm import query
from fastnplm.errors import SettingsError
from fastnplm.numeric import is_endless, is_number, is_positive, is_share, is_whole


@pytest.mark.parametrize("value", [1, 7, 2.0, np.int32(3), np.float64(4.0), 2**70])
def test_whole_numbers_of_any_type(value):
    assert is_whole(value)


@pytest.mark.parametrize(
    "value",
    [
        0, -1, 1.5, True, False, float("nan"), float("inf"), -float("inf"), "3", b"3", None, [], {},
        np.array([1, 2]), 1j,
    ],
)  # fmt: skip
def test_anything_else_is_not_one_and_raises_nothing(value):
    assert not is_whole(value)


def test_the_least_is_allowed():
    assert is_whole(0, 0)
    assert not is_whole(-1, 0)
    assert not is_whole(4, 5)


@pytest.mark.parametrize("value", [0, -1.5, np.float32(0.25), np.int64(3)])
def test_numbers_of_any_type(value):
    assert is_number(value)


NONE = ["0.1", b"1", None, [], {}, np.array([0.1, 0.2]), 1j, True, math.nan, math.inf, 10**400]


@pytest.mark.parametrize("value", NONE)
def test_what_is_no_number(value):
    assert not is_number(value)
    assert not is_positive(value)
    assert not is_share(value)


def test_what_is_endless():
    assert is_endless(math.inf)
    assert is_endless(np.float64("inf"))
    assert not any(is_endless(value) for value in (1e308, -math.inf, math.nan, "inf", [math.inf]))


@pytest.mark.parametrize("name", ["clip", "buffer_mib"])
def test_a_limit_may_be_endless(name):
    assert fastnplm.Settings(**{name: math.inf}).checked() is not None


def test_the_ends_of_ranges():
    assert is_number(0, 0)
    assert not is_number(-1e-9, 0)
    assert not is_positive(0)
    assert is_share(0)
    assert not is_share(1)


NUMBERS = [
    field.name
    for field in dataclasses.fields(fastnplm.Settings)
    if "float" in str(field.type) and field.name != "loss"
]


@pytest.mark.parametrize("name", [*NUMBERS, "batch_size", "epochs", "negatives", "patience"])
@pytest.mark.parametrize("value", ["0.1", [0.1], math.nan, {}])
def test_a_setting_that_is_no_number_is_refused_in_one_line(name, value):
    settings = {"loss": "nce"} if name == "negatives" else {}
    for optimizer in (None, "adam"):
        given = fastnplm.Settings(**settings, optimizer=optimizer, **{name: value})
        with pytest.raises(SettingsError, match=f"^{name} is .*; expected [^\n]*$"):
            given.checked("valid")


@pytest.mark.parametrize(
    "make",
    [
        lambda value: fastnplm.Schedule(warmup=value),
        lambda value: fastnplm.Schedule(floor=value),
        lambda value: fastnplm.Schedule(decay_rate=value),
        lambda value: fastnplm.NCE(power=value),
        lambda value: fastnplm.NCE(value),
        lambda value: fastnplm.Optimizer("adam", lr=0.1, beta1=value),
        lambda value: fastnplm.Optimizer("adam", lr=value),
        lambda value: query.check_sampling(1, value, None, None),
        lambda value: query.check_sampling(1, 1.0, None, value),
    ],
)
def test_no_object_takes_what_is_no_number(make):
    for value in ("0.1", [0.1], math.nan):
        with pytest.raises(SettingsError, match="; expected "):
            make(value)
