"""Learning-rate schedules: the factor on the rate at each update, a function of the update alone.

``plateau`` is the exception that follows the validation perplexity; training drives it.
"""

import dataclasses
import math

from .errors import SettingsError
from .numeric import is_number, is_share

NAMES = ("constant", "inverse", "linear", "cosine", "plateau")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The factor on the learning rate over ``total`` updates.

    constant : 1
    inverse : 1 / (1 + decay_rate * t) (Bengio et al. 2003, section 4, with r = 1e-8 an example)
    linear : from 1 down to ``floor``
    cosine : from 1 down to ``floor`` along half a cosine (Loshchilov and Hutter 2017)
    plateau : 1 until the validation perplexity stops falling, then halved (``training``)

    warmup : share of the updates over which the factor first rises linearly from 0.
    """

    name: str = "cosine"
    warmup: float = 0.0
    floor: float = 0.0
    decay_rate: float = 1e-5

    def __post_init__(self):
        if self.name not in NAMES:
            raise SettingsError(f"schedule is {self.name!r}; expected one of {', '.join(NAMES)}")
        if not is_share(self.warmup):
            raise SettingsError(f"warmup is {self.warmup!r}; expected a share in [0, 1)")
        if not (is_number(self.floor, 0) and self.floor <= 1):
            raise SettingsError(f"floor is {self.floor!r}; expected a share in [0, 1]")
        if not is_number(self.decay_rate, 0):
            raise SettingsError(f"decay_rate is {self.decay_rate!r}; expected at least 0")

    def factor(self, update, total):
        """The factor for update number ``update`` (from 1) of ``total``."""
        done = (update - 1) / max(total, 1)
        if done < self.warmup:
            return update / max(self.warmup * total, 1.0)
        if self.name == "inverse":
            return 1 / (1 + self.decay_rate * (update - 1))
        if self.name in ("constant", "plateau"):
            return 1.0
        rest = min(1.0, (done - self.warmup) / (1 - self.warmup))
        falling = 1 - rest if self.name == "linear" else 0.5 * (1 + math.cos(math.pi * rest))
        return self.floor + (1 - self.floor) * falling


def resolve(schedule):
    """A Schedule from a name or a Schedule."""
    return Schedule(schedule) if isinstance(schedule, str) else schedule
