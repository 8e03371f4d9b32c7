"""Hashed n-grams: a vector for the last two words, one for the last three, below the scores.

Bengio's direct connections let each word reach the scores past the hidden layer; these let pairs
and triples of neighbours do so, as the n-gram features of Mikolov et al. 2011 ("Strategies for
training large scale neural network language models"). There each n-gram has a weight for every
word, here a vector that is added to the layer below the scores. There are more n-grams than a
table holds, so an n-gram's row is a hash of its words, and those that meet in a row share it.
"""

import numpy as np

from . import arrays
from .errors import SettingsError
from .layers import Mask
from .numeric import is_whole

ORDERS = (2, 3)  # how many of the last words each feature reads
LR, DROPOUT = 0.15, 0.6
MOST = (
    8  # examples of a batch that count in full for a row: with more it takes their mean, MOST-fold
)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, odd


def require_table(hashed, context, hidden):
    """Raise SettingsError unless a network of these sizes can have ``hashed`` rows (0: none)."""
    if not is_whole(hashed, 0) or hashed >= 1 << 31:
        raise SettingsError(
            f"hashed is {hashed!r}; expected a whole number of rows below 2**31, or 0 for no"
            " n-grams"
        )
    if hashed and (context < max(ORDERS) or not hidden):
        raise SettingsError(
            f"hashed n-grams need a context of at least {max(ORDERS)} words and hidden units, but"
            f" context is {context} and hidden is {hidden}"
        )


def require_n_grams(hashed, lr, dropout):
    """Raise SettingsError for settings of n-grams (None: not given) if there are no such rows."""
    for name, value in (("hashed_lr", lr), ("hashed_dropout", dropout)):
        if value is not None and not hashed:
            raise SettingsError(
                f"{name} is {value}, but the model has no hashed n-grams; make it with them"
                " (hashed=200000)"
            )


def settings(lr, dropout):
    """The settings of n-grams by name, with the defaults for those that are None."""
    return {
        "hashed_lr": LR if lr is None else lr,
        "hashed_dropout": DROPOUT if dropout is None else dropout,
    }


def rows_of(contexts, size):
    """The rows of each context's n-grams in a table of ``size`` rows: int32 (B, len(ORDERS)).

    contexts : ids int32 (B, N), N at least ``max(ORDERS)``, the nearest word last; size : from 1 to
    2**31 - 1. Part of the format of saved models: with another hash they are other models.
    """
    rows = np.empty((len(contexts), len(ORDERS)), np.int32)
    for column, order in enumerate(ORDERS):
        state = np.full(len(contexts), order, np.uint64)
        for word in contexts[:, -order:].T.astype(np.uint64):
            state = (state ^ word) * _MULTIPLIER
            state ^= state >> np.uint64(32)
        rows[:, column] = state % np.uint64(size)
    return rows


def add(contexts, table, features):
    """Add to ``features`` (B, W), in place, the rows of ``table`` (rows, W) for each context.

    contexts : ids int32 (B, N); table and features : of one float dtype.
    """
    for column in rows_of(contexts, len(table)).T:
        features += table[column]


class HashedStep:
    """The n-grams of a training step: rows found, gathered, left out, updated; buffers reused.

    Whatever the optimiser, the table follows plain descent on the sum of the examples' losses, not
    their mean: a row is read by few examples of a batch and in few batches, so its gradient must
    not shrink as batches grow, and moments of it would be stale whenever it is next read. But what
    begins every sentence may be in hundreds of examples of a large batch, and a step as long as
    their sum would diverge: beyond MOST a row takes MOST times the mean of its examples.

    table : of the network, float (rows, W), updated in place
    lr : rate of that descent; share : of the n-grams left out of a step (inverted dropout)
    """

    def __init__(self, table, batch_size, kernels, threads, lr, share):
        self.table, self.width, self.lr = table, table.shape[1], lr
        self._mask = Mask(share)
        self._kernels, self._threads = kernels, threads
        self._rows = arrays.zeros((batch_size, len(ORDERS), self.width), table.dtype)
        self._no_slots = arrays.zeros((0, *table.shape), table.dtype)

    def find(self, contexts, generator):
        """Choose what the next ``forward`` and ``backward`` read and leave out.

        Returns the rows, int32 (B * len(ORDERS),).
        """
        self._ids = rows_of(contexts, len(self.table)).reshape(-1)
        self._kept = np.ones((len(contexts), len(ORDERS), 1), self.table.dtype)
        self._mask.draw(generator, self._kept.shape)
        self._mask.apply(self._kernels, self._kept, self._threads)
        return self._ids

    def forward(self, features):
        """Add what was found to ``features`` (B, W) in place."""
        rows = self._rows[: len(features)]
        self._kernels.gather_rows(self._ids, self.table, self._flat(rows), threads=self._threads)
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is told of later
            rows *= self._kept
            features += rows.sum(axis=1)

    def backward(self, grad, share, factor, decay):
        """Descend on the rows that were found.

        grad : (B, W) of the features, of the mean loss in which each example has its ``share``
        (B,); factor : of the schedule; decay : of each visited row, as in the optimiser's ``hyper``
        """
        rows = self._rows[: len(grad)]
        rows[:] = grad[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            rows *= self._kept * self._limits()
        # The effective number of examples (Kish): B where all weigh the same.
        examples = 1 / np.square(share, dtype=np.float64).sum()
        hyper = np.array([self.lr * factor * examples, decay, 0, 0, 0, 1])
        self._kernels.scatter_update(
            self._ids, self._flat(rows), "sgd", hyper, self.table, self._no_slots,
            threads=self._threads,
        )  # fmt: skip

    def _limits(self):
        """1 for an n-gram whose row at most MOST of the batch's examples read, less beyond."""
        _, which = np.unique(self._ids, return_inverse=True)
        read = np.bincount(which.reshape(-1), weights=self._kept.reshape(-1) > 0)
        limits = np.minimum(1, MOST / np.maximum(read, 1))
        return limits[which].reshape(self._kept.shape).astype(self.table.dtype)

    def _flat(self, rows):
        return rows.reshape(-1, self.width)
