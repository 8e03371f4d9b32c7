"""Learning-rate schedules against their formulas."""

import itertools
import math

import pytest

from fastnplm.errors import SettingsError
from fastnplm.schedule import Schedule


def test_cosine_is_half_a_cosine():
    schedule = Schedule("cosine")
    assert [schedule.factor(1 + t, 4) for t in range(4)] == pytest.approx(
        [0.5 * (1 + math.cos(math.pi * t / 4)) for t in range(4)]
    )


def test_linear_never_rises_and_ends_within_one_step_of_its_floor():
    schedule = Schedule("linear", floor=0.001)
    factors = [schedule.factor(update, 1000) for update in range(1, 1001)]
    assert all(a >= b for a, b in itertools.pairwise(factors))
    assert 0.001 <= factors[-1] <= 0.001 + 1 / 1000


def test_inverse_is_bengios():
    schedule = Schedule("inverse", decay_rate=0.5)
    assert [schedule.factor(update, 10) for update in (1, 2, 3)] == [1, 1 / 1.5, 1 / 2]


def test_warmup_rises_linearly_to_one():
    schedule = Schedule("constant", warmup=0.5)
    assert [schedule.factor(update, 8) for update in range(1, 6)] == [0.25, 0.5, 0.75, 1, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "cosinus"}, "schedule is 'cosinus'; expected one of"),
        ({"warmup": 1.0}, "warmup is 1.0"),
        ({"floor": -0.1}, "floor is -0.1"),
        ({"decay_rate": float("nan")}, "decay_rate is nan"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        Schedule(**settings)
