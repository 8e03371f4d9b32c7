"""Numbers among what a user may give: counts and sizes, rates and shares.

Anything else is simply not one: NaN, infinity, a string, an array, True.
"""

import math
from typing import Any


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether ``value`` is a whole number of at least ``least``, of any type but bool."""
    if isinstance(value, bool):
        return False
    try:
        return bool(value >= least and int(value) == value)
    except (TypeError, ValueError, OverflowError):
        return False


def is_number(value: Any, least: float = -math.inf) -> bool:
    """Whether ``value`` is a finite number of at least ``least``, of any type but bool."""
    if isinstance(value, bool):
        return False
    try:
        return math.isfinite(value) and bool(value >= least)
    except (TypeError, ValueError, OverflowError):
        return False


def is_positive(value: Any) -> bool:
    """Whether ``value`` is a finite number above 0."""
    return is_number(value, 0) and value > 0


def is_endless(value: Any) -> bool:
    """Whether ``value`` is infinity, which some limits may be: there is none then."""
    return isinstance(value, float) and value == math.inf


def is_share(value: Any) -> bool:
    """Whether ``value`` is a number in [0, 1)."""
    return is_number(value, 0) and value < 1
