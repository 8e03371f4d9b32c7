"""The order in which examples are learnt: shuffled in bounded memory, the same for the same seed.

Every position of a corpus is an example. The stream is cut into blocks; an epoch takes the blocks
in random order, fills a window with some of them and shuffles the examples of the window. All of
it is a function of (seed, epoch), so a run can continue at any batch.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastnplm.errors import SettingsError

Ahead = Callable[[np.ndarray, np.ndarray], None]

WINDOW = 1 << 22
BLOCK = 1 << 12

_ROUNDS = 6
_LEAST_BITS = 16  # fewer bits mix less well


class Epoch:
    """The batches of one epoch: iterating gives int64 arrays of at most ``batch_size`` positions.

    Parameters
    ----------
    examples : number of positions, each given exactly once
    batch_size : examples in a batch; the last batch may be short
    seed, epoch : non-negative whole numbers that decide the order
    start_batch : batches to leave out at the start, to continue a run
    window : examples shuffled together; memory is about 32 bytes for each
    block : examples that are taken from the stream together
    ahead : called with the first positions and the lengths of the next window's blocks when a
        window is begun, to have them read meanwhile

    Raises
    ------
    SettingsError
        If a number makes no sense.
    """

    def __init__(
        self,
        examples: int,
        batch_size: int,
        seed: int = 0,
        epoch: int = 0,
        start_batch: int = 0,
        window: int = WINDOW,
        block: int = BLOCK,
        ahead: Ahead | None = None,
    ) -> None:
        for name, value, least in (
            ("examples", examples, 0),
            ("batch_size", batch_size, 1),
            ("seed", seed, 0),
            ("epoch", epoch, 0),
            ("start_batch", start_batch, 0),
            ("block", block, 1),
            ("window", window, block),
        ):
            if value < least:
                raise SettingsError(f"{name}={value}: must be {least} or more")
        self.examples, self.batch_size = examples, batch_size
        self.seed, self.epoch, self.start_batch = seed, epoch, start_batch
        self.block = block
        self.window_blocks = window // block
        self.ahead = ahead

    def __len__(self) -> int:
        """Batches from ``start_batch`` on."""
        return max(0, -(-self.examples // self.batch_size) - self.start_batch)

    def __iter__(self) -> Iterator[np.ndarray]:
        skip = self.start_batch * self.batch_size
        rest = np.empty(0, np.int64)
        for order in self._windows(skip):
            # Batches are copies, and nothing else keeps a window while the next one is made.
            first = 0
            if len(rest):
                first = min(len(order), self.batch_size - len(rest))
                rest = np.concatenate([rest, order[:first]])
                if len(rest) < self.batch_size:
                    continue
                yield rest
            whole = len(order) - (len(order) - first) % self.batch_size
            for start in range(first, whole, self.batch_size):
                yield order[start : start + self.batch_size].copy()
            rest = order[whole:].copy()
            del order
        if len(rest):
            yield rest

    def _windows(self, skip: int) -> Iterator[np.ndarray]:
        """Positions window by window, without the first ``skip`` of the epoch."""
        starts, lengths = self._blocks()
        for number, first in enumerate(range(0, len(starts), self.window_blocks)):
            chosen = slice(first, first + self.window_blocks)
            size = int(lengths[chosen].sum())
            if skip >= size:
                skip -= size
                continue
            if self.ahead is not None:
                coming = slice(chosen.stop, chosen.stop + self.window_blocks)
                self.ahead(starts[coming], lengths[coming])
            positions = _spread(starts[chosen], lengths[chosen])
            positions = positions[shuffled(size, (self.seed, self.epoch, 1, number))]
            if skip:
                positions = positions[skip:]
            window, skip = [positions], 0
            del positions  # whoever takes the window may give it back
            yield window.pop()

    def _blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and length of every block, in the order of this epoch."""
        starts, lengths = cut_blocks(self.examples, self.block, (self.seed, self.epoch, 2))
        order = shuffled(len(starts), (self.seed, self.epoch, 0, 0))
        return starts[order], lengths[order]


def cut_blocks(examples: int, block: int, key: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Start and length, int64, of blocks that hold the positions below ``examples`` once each.

    The first block is cut short by a random number (drawn with ``key``): cuts move from epoch to
    epoch, so the same examples do not always meet in a window.
    """
    phase = int(_random(key, 1)[0] % np.uint64(block))
    cuts = np.arange(phase or block, examples, block, dtype=np.int64)
    edges = np.concatenate([[0], cuts, [examples]]).astype(np.int64)
    return edges[:-1], np.diff(edges)


def epoch_of(
    corpus: Any, batch_size: int, seed: int = 0, epoch: int = 0, start_batch: int = 0
) -> Iterator[np.ndarray]:
    """The batches of an epoch over a corpus or a blend.

    Before each, the corpus is asked whether it is still whole; the parts of it that come next are
    read ahead.

    Raises
    ------
    CorpusError
        If the corpus was cut short meanwhile.
    """
    if hasattr(corpus, "epoch"):  # a blend draws its own
        batches = corpus.epoch(batch_size, seed, epoch, start_batch)
    else:
        batches = Epoch(len(corpus), batch_size, seed, epoch, start_batch, ahead=corpus.read_ahead)
    for positions in batches:
        corpus.check()
        yield positions


def _spread(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All positions of the blocks, block after block."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def _random(key: tuple[int, ...], size: int) -> np.ndarray:
    return np.random.PCG64(np.random.SeedSequence(key)).random_raw(size)


def shuffled(size: int, key: tuple[int, ...]) -> np.ndarray:
    """The numbers below ``size`` in random order, int64.

    Six rounds of adding, multiplying by an odd number and folding the high bits onto the low ones,
    each of which maps the numbers below a power of two one to one; numbers from ``size`` on are
    then left out. A third of the time of sorting random keys, and fixed for good, unlike
    `Generator.permutation`, whose algorithm may change with NumPy.
    """
    bits = max(_LEAST_BITS, (size - 1).bit_length())
    dtype = np.uint32 if bits <= 32 else np.uint64
    mask = (1 << bits) - 1
    order = np.arange(1 << bits, dtype=dtype)
    random = _random(key, 2 * _ROUNDS).tolist()
    for add, multiply in zip(random[::2], random[1::2], strict=True):
        order += dtype(add & mask)
        order *= dtype((multiply | 1) & mask)
        order &= dtype(mask)
        order ^= order >> dtype(bits // 2)
    if size < len(order):
        order = order[order < size]
    return order.astype(np.int64)
