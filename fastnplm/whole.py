"""Whole numbers among what a user may give: counts, sizes, seeds."""

from typing import Any


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether ``value`` is a whole number of at least ``least``, of any type but bool.

    Anything else is simply not one: NaN, infinity, a string, an array.
    """
    if isinstance(value, bool):
        return False
    try:
        return bool(value >= least and int(value) == value)
    except (TypeError, ValueError, OverflowError):
        return False
