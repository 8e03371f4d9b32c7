"""The mean of the weights along a run, which predicts better than the last of them.

Polyak and Juditsky 1992 average over the whole run; here later weights count for more, as in the
polynomial-decay averaging of Shamir and Zhang 2013: the mean over the times 0..u of the weights
then held, each time t counted as t ** (1 / share - 1). About the last ``share`` of the run so far
decides it, there is no moment to choose at which averaging begins, and it is ready at any time.
"""

import math

from . import arrays

_ROWS = 1 << 10  # rows at a time: the temporary arrays stay in the cache
_LEAST = 16  # batches between two visits, at least
_COST = 300.0  # parameters visited that cost as much as a thirtieth of a step's product


class Average:
    """The running mean of a network's weights, brought forward by a visit every few batches.

    Between two visits the weights count as those of the later one, so no row, however seldom it
    is trained, is averaged otherwise than densely.

    network : whose trainable arrays are averaged; share : above 0 and below 1
    batch_size, batches : of the run: examples a batch, batches an epoch
    """

    def __init__(self, network, share, batch_size, batches):
        self.network, self.share, self.batches = network, share, batches
        self.every = interval(network, batch_size)
        self.values = {
            name: arrays.zeros(value.shape, value.dtype)
            for name, value in network.trainable.items()
        }

    def due(self, updates):
        """Whether the weights are to be visited after this update."""
        return updates % self.every == 0 or updates % self.batches == 0

    def visit(self, updates):
        """Count the present weights for the time since the last visit; they must be up to date."""
        amount = self.amount(updates)
        for value, mean in self._blocks():
            mean += amount * (value - mean)

    def amount(self, updates):
        """How much of the new mean the weights of this visit are: 1 - (last / updates)^(1/share).

        ``last`` is the visit before, a function of ``updates`` like all of this: a checkpoint has
        nothing to remember but the mean itself.
        """
        before = updates - 1
        last = max(before // self.every * self.every, before // self.batches * self.batches)
        return 1 - (last / updates) ** (1 / self.share)

    def exchange(self):
        """Put the mean in the place of the weights, and these in its place."""
        for value, mean in self._blocks():
            kept = value.copy()
            value[:] = mean
            mean[:] = kept

    def begin_again(self):
        """The mean becomes the present weights."""
        for value, mean in self._blocks():
            mean[:] = value

    def arrays(self):
        """The mean by name, live: what a checkpoint keeps beside the parameters."""
        return {f"average.{name}": value for name, value in self.values.items()}

    def _blocks(self):
        for name, value in self.network.trainable.items():
            mean = self.values[name]
            for low in range(0, len(value), _ROWS):
                yield value[low : low + _ROWS], mean[low : low + _ROWS]


def interval(network, batch_size):
    """Batches between two visits: so many that these cost a few hundredths of the run."""
    size = sum(value.size for value in network.trainable.values())
    product = batch_size * network.context * network.dim * max(network.hidden, 1)
    return max(_LEAST, math.ceil(_COST * size / product))
