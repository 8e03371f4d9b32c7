"""What counts as a whole number among what a user may give."""

import numpy as np
import pytest

from fastnplm.whole import is_whole


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
