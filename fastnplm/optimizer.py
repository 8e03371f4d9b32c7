"""Optimisers: a rule of the kernels with its numbers, and the state that training keeps for it."""

import dataclasses

import numpy as np

from . import arrays
from .errors import SettingsError
from .kernels.contract import SLOTS
from .numeric import is_number, is_positive, is_share

_ROWS = 1 << 10  # rows at a time where a whole table is gone through: the cache holds them


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """One of the kernels' rules with its numbers.

    rule : sgd, momentum, adagrad, rmsprop or adam (the formulas: kernels/reference.py)
    lr : the learning rate before the schedule's factor; gradients are means over a batch
    beta1 : momentum's or Adam's decay of the first moment
    beta2 : RMSProp's or Adam's decay of the second moment
    epsilon : added to the root of the second moment
    weight_decay : decoupled decay (Loshchilov and Hutter 2019): each step multiplies weights
        (never biases) by 1 - rate * weight_decay. For sgd this equals L2 regularisation.
    l1 : each step moves weights (never biases) towards 0 by rate * l1, and those that would
        cross 0 to 0 itself: the proximal step of an L1 penalty (Duchi and Singer 2009), after the
        rule's own. Not together with weight_decay.

    Rows of the embedding (and, for a sampled loss, of the output weight) that a batch does not
    name keep their values and their state ("lazy" updates): for sgd and adagrad the same as the
    dense rule; for momentum, rmsprop and adam the moments of a row decay only when it is visited.
    """

    rule: str
    lr: float
    beta1: float = 0.0
    beta2: float = 0.0
    epsilon: float = 0.0
    weight_decay: float = 0.0
    l1: float = 0.0

    def __post_init__(self):
        if self.rule not in SLOTS:
            raise SettingsError(
                f"optimizer is {self.rule!r}; expected one of {', '.join(DEFAULTS)}"
            )
        if not is_positive(self.lr):
            raise SettingsError(f"lr is {self.lr!r}; expected a positive number")
        if not is_number(self.weight_decay, 0):
            raise SettingsError(
                f"weight_decay is {self.weight_decay!r}; expected a number of at least 0"
            )
        if not is_number(self.l1, 0):
            raise SettingsError(f"l1 is {self.l1!r}; expected a number of at least 0")
        if self.l1 and self.weight_decay:
            raise SettingsError(
                "l1 and weight_decay do not commute, so rows that are seldom visited could not"
                " catch up exactly; choose one of them"
            )
        if not (is_share(self.beta1) and is_share(self.beta2)):
            raise SettingsError(f"betas are {self.beta1!r}, {self.beta2!r}; expected [0, 1)")

    @property
    def shrinks(self):
        """Whether steps make weights smaller beside what their gradients do."""
        return bool(self.weight_decay or self.l1)

    @property
    def slots(self):
        """How many arrays of state each parameter needs."""
        return SLOTS[self.rule]

    def hyper(self, factor, update, decayed=True):
        """The kernels' six numbers for update number ``update`` (from 1) at ``lr * factor``."""
        rate = self.lr * factor
        decay = rate * self.weight_decay if decayed else 0.0
        correction = 1.0
        step = rate
        if self.rule == "adam":
            step = rate / (1 - self.beta1**update)
            correction = 1 / np.sqrt(1 - self.beta2**update)
        return np.array([step, decay, self.epsilon, self.beta1, self.beta2, correction])


DEFAULTS = {
    "sgd": Optimizer("sgd", lr=0.5),
    "momentum": Optimizer("momentum", lr=0.05, beta1=0.9),
    "adagrad": Optimizer("adagrad", lr=0.05, epsilon=1e-8),
    "rmsprop": Optimizer("rmsprop", lr=0.001, beta2=0.99, epsilon=1e-8),
    "adam": Optimizer("adam", lr=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8),
}


def resolve(optimizer, lr=None, weight_decay=None, l1=None):
    """An Optimizer from a name or an Optimizer, with its rate and penalties put in."""
    if isinstance(optimizer, str):
        if optimizer not in DEFAULTS:
            raise SettingsError(
                f"optimizer is {optimizer!r}; expected one of {', '.join(DEFAULTS)}"
            )
        optimizer = DEFAULTS[optimizer]
    given = {"lr": lr, "weight_decay": weight_decay, "l1": l1}
    changes = {
        name: float(value) if is_number(value) else value
        for name, value in given.items()
        if value is not None
    }
    return dataclasses.replace(optimizer, **changes)


class State:
    """The optimiser's arrays for each parameter, float of the parameter's dtype, and the count.

    slots : dict of arrays (S, *parameter.shape); updates : steps taken.
    """

    def __init__(self, optimizer, parameters):
        self.updates = 0
        self.slots = {
            name: arrays.zeros((optimizer.slots, *value.shape), value.dtype)
            for name, value in parameters.items()
        }


class _Lazy:
    """What each step does to a whole table, put off for a row until the row is next read."""

    def __init__(self, rows):
        self.total = 0.0  # sum of what all steps so far do
        self.seen = np.zeros(rows)  # the same sum when each row was last brought up to date

    def refresh(self, ids, table):
        """Bring the rows ``ids`` of ``table`` up to date before they are read; returns them."""
        rows = np.unique(ids)
        behind = rows[self.seen[rows] != self.total]
        if len(behind):
            values = table[behind]
            self._catch_up(values, self.total - self.seen[behind])
            table[behind] = values
        self.seen[rows] = self.total
        return rows

    def finish(self, table):
        """Bring every row up to date."""
        for low in range(0, len(table), _ROWS):
            missed = self.total - self.seen[low : low + _ROWS]
            if missed.any():
                self._catch_up(table[low : low + _ROWS], missed)
        self.seen[:] = self.total


class LazyDecay(_Lazy):
    """Exact decoupled weight decay for a table of which each step reads only some rows.

    A row not visited for some steps would have been multiplied by 1 - decay at each of them; the
    product of these factors is applied when the row is next read (``refresh``) and for all rows
    at the end (``finish``): the dense result up to rounding, at the cost of the rows touched.
    ``total`` is a sum of log(1 - decay).
    """

    def step(self, rows, decay):
        """Count one step's decay; the kernel has already applied it to ``rows``."""
        self.total += np.log1p(-decay)
        self.seen[rows] = self.total

    def _catch_up(self, values, missed):
        values *= np.exp(missed).astype(values.dtype)[:, None]


class LazyShrinkage(_Lazy):
    """The same for L1: a row not visited for some steps shrinks by the sum of their amounts.

    Shrinking by a and then by b is shrinking by a + b, so the result is the dense one up to
    rounding (Tsuruoka et al. 2009 keep such a sum for each weight). No kernel shrinks, so a
    visited row, too, is a step behind until it is next read. ``total`` is a sum of amounts.
    """

    def step(self, rows, amount):
        """Count one step's shrinkage, which every row still lacks."""
        self.total += amount

    def _catch_up(self, values, missed):
        shrink(values, missed.astype(values.dtype)[:, None])


def shrink(values, amount):
    """Move ``values`` towards 0 by ``amount`` (a number or an array that fits), not beyond."""
    np.copysign(np.maximum(np.abs(values) - amount, 0), values, out=values)
