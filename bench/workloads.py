"""What is timed: networks, batches of Zipf-distributed ids, and their initial parameters."""

import dataclasses

import numpy as np

CONTEXT = 4
LEARNING_RATE = 0.1


@dataclasses.dataclass(frozen=True)
class Workload:
    """One step's sizes: V words, M wide embedding, H hidden units, B examples, N context words.

    loss : "softmax", "ns" or "nce"; negatives : K; shared : examples that share their noise
    optimizer : name of the rule; buffer_mib : room for the scores of the exact softmax
    """

    name: str
    vocabulary: int
    dim: int
    hidden: int
    batch: int
    context: int = CONTEXT
    loss: str = "softmax"
    negatives: int = 10
    shared: int = 1
    optimizer: str = "sgd"
    buffer_mib: int | None = None

    @property
    def buffer(self):
        """MiB that surely hold B x V scores, unless the workload names a bound."""
        scores = self.batch * self.vocabulary * 4 / 2**20
        return self.buffer_mib if self.buffer_mib is not None else int(scores * 1.1) + 64

    @property
    def output_flops(self):
        """Floating-point operations of the three products of the exact output layer."""
        return 6 * self.batch * self.vocabulary * self.hidden


SIZES = {
    "S": Workload("S", 10_000, 64, 128, 256),
    "M": Workload("M", 50_000, 100, 200, 512),
    "L": Workload("L", 200_000, 128, 256, 1024),
    # a small real corpus with the batches of plain descent
    "brown": Workload("brown", 14_116, 60, 100, 128),
    # where the overhead of calls rules
    "tiny": Workload("tiny", 1_000, 32, 64, 32, context=2),
}
SAMPLED = {
    f"ns-{label}": Workload(f"ns-{label}", size, 100, 200, 1024, loss="ns")
    for label, size in (("50k", 50_000), ("200k", 200_000), ("2M", 2_000_000))
}
SIZES |= SAMPLED


class Words:
    """As much of a vocabulary as a network needs: how many words, and their counts.

    Counts follow Zipf's law with exponent 1, as those of words do: rank r is seen 1/r as often
    as the first. ``<unk>``, ``<s>`` and ``</s>`` have the ids they have everywhere.
    """

    unknown_id, start_id, end_id = 0, 1, 2

    def __init__(self, size):
        self.counts = np.maximum(np.rint(size * zipf(size) / zipf(size)[-1]), 1).astype(np.int64)
        self.counts[self.start_id] = 0

    def __len__(self):
        return len(self.counts)


def zipf(size):
    """Shares proportional to 1 / rank, float64 (size,)."""
    shares = 1 / np.arange(1, size + 1)
    return shares / shares.sum()


class Batches:
    """An endless round of ``count`` different batches: contexts int32 (B, N), targets int32 (B,).

    A training step never sees the batch it saw before; neither does a timed one.
    """

    def __init__(self, workload, count=16, seed=0):
        generator = np.random.default_rng(seed)
        ladder = zipf(workload.vocabulary).cumsum()
        shape = (count, workload.batch, workload.context + 1)
        ids = np.searchsorted(ladder, generator.random(shape), side="right")
        ids = np.minimum(ids, workload.vocabulary - 1).astype(np.int32)
        ids[..., -1][ids[..., -1] == Words.start_id] = Words.end_id  # `<s>` is never a target
        self._contexts = np.ascontiguousarray(ids[..., :-1])
        self._targets = np.ascontiguousarray(ids[..., -1])
        self._next = 0

    def next(self):
        """(contexts, targets) of the next batch."""
        at = self._next % len(self._targets)
        self._next += 1
        return self._contexts[at], self._targets[at]


def network(workload, seed=0, dtype="float32"):
    """A fastnplm Network of the workload's sizes, with its usual initial values and its loss."""
    from fastnplm import loss as losses
    from fastnplm.model import Network

    made = Network(
        Words(workload.vocabulary),
        context=workload.context,
        dim=workload.dim,
        hidden=workload.hidden,
        dtype="float32",
        seed=seed,
    )
    chosen = {
        "softmax": losses.Softmax,
        "ns": losses.NegativeSampling,
        "nce": losses.NCE,
    }[workload.loss]
    loss = chosen()
    if workload.loss != "softmax":
        loss = chosen(workload.negatives, shared=workload.shared)
    made.adopt(loss)
    if dtype == "float32":
        return made
    wide = Network(
        made.vocabulary, made.context, made.dim, made.hidden, dtype=dtype, seed=None,
        output_bias="zeros",
    )  # fmt: skip
    for name, value in made.parameters.items():
        setattr(wide, name, value)
    wide.loss = loss
    return wide
