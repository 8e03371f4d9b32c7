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

ORDERS = (2, 3)  # how many of the last words each feature reads
LR, DROPOUT = 0.15, 0.6
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, odd


def require_n_grams(network, lr, dropout):
    """Refuse settings of the hashed n-grams for a network that has none."""
    for name, value in (("hashed_lr", lr), ("hashed_dropout", dropout)):
        if value is not None and not network.hashed:
            raise SettingsError(
                f"{name} is {value}, but the model has no hashed n-grams; make it with hashed"
            )


def rows_of(contexts, buckets):
    """The rows of each context's n-grams: int32 (B, len(ORDERS)), each in [0, buckets).

    contexts : ids (B, N), N at least ``max(ORDERS)``, the nearest word last. Part of the format
    of saved models: with another hash they are other models.
    """
    rows = np.empty((len(contexts), len(ORDERS)), np.int32)
    for column, order in enumerate(ORDERS):
        state = np.full(len(contexts), order, np.uint64)
        for word in contexts[:, -order:].T.astype(np.uint64):
            state = (state ^ word) * _MULTIPLIER
            state ^= state >> np.uint64(32)
        rows[:, column] = state % np.uint64(buckets)
    return rows


def add(contexts, table, features):
    """Add to ``features`` (B, W), in place, the rows of ``table`` (buckets, W) for each context."""
    for column in rows_of(contexts, len(table)).T:
        features += table[column]


class HashedStep:
    """The n-grams of a training step: rows gathered, left out, updated; buffers reused.

    Whatever the optimiser, the table follows plain descent on the sum of the examples' losses, not
    their mean: a row is read by few examples of a batch and in few batches, so its gradient must
    not shrink as batches grow, and moments of it would be stale whenever it is next read.

    table : of the network, (buckets, W), updated in place
    lr : rate of the sum's descent, None for LR
    share : of the n-grams left out of a step (None for DROPOUT), rounded to a multiple of 1/256;
        the vectors of the others grow by 1 / (1 - share)
    """

    def __init__(self, table, batch_size, kernels, threads, lr=None, share=None):
        self.table, self.width = table, table.shape[1]
        self.lr = LR if lr is None else lr
        share = DROPOUT if share is None else share
        self._limit = min(round(share * 256), 255)
        self._kernels, self._threads = kernels, threads
        self._rows = arrays.zeros((batch_size, len(ORDERS), self.width), table.dtype)
        self._no_slots = arrays.zeros((0, *table.shape), table.dtype)

    def find(self, contexts, generator):
        """The table's rows that the next step reads: int32 (B * len(ORDERS),)."""
        self._ids = rows_of(contexts, len(self.table)).reshape(-1)
        self._kept = None
        if self._limit:
            bits = np.frombuffer(generator.bytes(len(self._ids)), np.uint8)
            scale = self.table.dtype.type(256 / (256 - self._limit))
            self._kept = ((bits >= self._limit) * scale).reshape(-1, len(ORDERS), 1)
        return self._ids

    def forward(self, features):
        """Add what was found to ``features`` (B, W) in place."""
        rows = self._rows[: len(features)]
        self._kernels.gather_rows(self._ids, self.table, self._flat(rows), threads=self._threads)
        if self._kept is not None:
            rows *= self._kept
        features += rows.sum(axis=1)

    def backward(self, grad, factor, decay):
        """Descend on the rows that were found.

        grad : of the features (B, W), of the mean loss; factor : of the schedule; decay : of each
        visited row, as the optimiser's ``hyper`` has it
        """
        rows = self._rows[: len(grad)]
        rows[:] = grad[:, None]
        if self._kept is not None:
            rows *= self._kept
        hyper = np.array([self.lr * factor * len(grad), decay, 0, 0, 0, 1])
        self._kernels.scatter_update(
            self._ids, self._flat(rows), "sgd", hyper, self.table, self._no_slots,
            threads=self._threads,
        )  # fmt: skip

    def _flat(self, rows):
        return rows.reshape(-1, self.width)
