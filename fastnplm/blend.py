"""Several corpora as one, each with its share of every epoch."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastnplm.batches import BLOCK, WINDOW, Epoch, cut_blocks, shuffled
from fastnplm.corpus import Corpus, require_same_vocabulary, will_need
from fastnplm.errors import SettingsError

_COPIED_AT_ONCE = 1 << 22


class Blend:
    """A corpus whose epochs take from each of its parts in proportion to a weight.

    An epoch has as many examples as all parts have together. A part whose share is smaller than
    itself gives a new sample of its blocks each epoch; one whose share is larger is gone through
    several times, the rest a sample.

    The streams are copied behind one another into a temporary file, so that training reads one
    array; it takes their size on disk and no memory.

    Parameters
    ----------
    parts : (corpus, weight) pairs, weights positive; only their proportions matter
    folder : where the temporary file goes; None takes the system's folder for such files

    Attributes
    ----------
    vocabulary, tokens, sentences, oov : as of `fastnplm.corpus.Corpus`
    shares : int64, examples of an epoch from each part

    Raises
    ------
    SettingsError
        If there is no part or a weight is not a positive number.
    CorpusError
        If the corpora have different vocabularies.
    """

    def __init__(self, parts: Sequence[tuple[Corpus, float]], folder: str | None = None) -> None:
        if not parts:
            raise SettingsError("a blend needs at least one corpus")
        self.corpora = [corpus for corpus, _ in parts]
        weights = np.array([weight for _, weight in parts], np.float64)
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise SettingsError(f"weights of a blend must be positive numbers, not {weights}")
        first = self.corpora[0]
        for corpus in self.corpora[1:]:
            names = str(corpus.folder), str(first.folder)
            require_same_vocabulary(corpus, first.vocabulary, names)
        self.vocabulary = first.vocabulary
        self.sentences = sum(corpus.sentences for corpus in self.corpora)
        self.oov = sum(corpus.oov for corpus in self.corpora)
        self.lengths = np.array([len(corpus) for corpus in self.corpora], np.int64)
        self.shares = _shares(weights, int(self.lengths.sum()))
        self._file = tempfile.TemporaryFile(prefix="fastnplm-blend-", dir=folder)  # noqa: SIM115
        for corpus in self.corpora:
            for start in range(0, len(corpus), _COPIED_AT_ONCE):
                self._file.write(corpus.tokens[start : start + _COPIED_AT_ONCE].data)
        self._file.flush()
        dtype = first.tokens.dtype
        self.tokens: np.ndarray = np.asarray(np.memmap(self._file, dtype, "r", shape=(len(self),)))

    def __len__(self) -> int:
        return int(self.lengths.sum())

    @property
    def identity(self) -> list[list[Any]]:
        """Checksum and share of each part: a run is resumed on the same ones."""
        return [
            [corpus.identity, share]
            for corpus, share in zip(self.corpora, self.shares.tolist(), strict=True)
        ]

    def __enter__(self) -> "Blend":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the temporary copy back; the corpora stay open."""
        self.tokens = self.tokens[:0].copy()
        self._file.close()

    def check(self) -> None:
        """Nothing can shrink here: the copy is this object's own."""

    def read_ahead(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        """See `fastnplm.corpus.Corpus.read_ahead`."""
        will_need(self._file, self.tokens.itemsize, starts, lengths)

    def epoch(
        self,
        batch_size: int,
        seed: int = 0,
        epoch: int = 0,
        start_batch: int = 0,
        window: int = WINDOW,
        block: int = BLOCK,
    ) -> "BlendEpoch":
        """Batches of positions in `tokens`; see `fastnplm.batches.Epoch`."""
        return BlendEpoch(self, batch_size, seed, epoch, start_batch, window, block)


class BlendEpoch(Epoch):
    """The batches of one epoch of a blend."""

    def __init__(
        self,
        blend: Blend,
        batch_size: int,
        seed: int,
        epoch: int,
        start_batch: int,
        window: int,
        block: int,
    ) -> None:
        super().__init__(
            len(blend), batch_size, seed, epoch, start_batch, window, block, blend.read_ahead
        )
        self._lengths, self._shares = blend.lengths, blend.shares

    def _blocks(self) -> tuple[np.ndarray, np.ndarray]:
        starts, lengths = [], []
        begin = 0
        for part, (length, share) in enumerate(
            zip(self._lengths.tolist(), self._shares.tolist(), strict=True)
        ):
            for first, size in self._turns(part, length, share):
                starts.append(begin + first)
                lengths.append(size)
            begin += length
        all_starts, all_lengths = np.concatenate(starts), np.concatenate(lengths)
        order = shuffled(len(all_starts), (self.seed, self.epoch, 0, 0))
        return all_starts[order], all_lengths[order]

    def _turns(self, part: int, length: int, share: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Blocks of a part: all of them while its share lasts, then a sample."""
        turn = 0
        while share:
            key = (self.seed, self.epoch, 3, part, turn)
            starts, lengths = cut_blocks(length, self.block, key)
            if share < length:
                order = shuffled(len(starts), (*key, 1))
                starts, lengths = starts[order], lengths[order]
                total = np.cumsum(lengths)
                taken = int(np.searchsorted(total, share)) + 1
                starts, lengths = starts[:taken], lengths[:taken].copy()
                lengths[-1] -= total[taken - 1] - share
            yield starts, lengths
            share -= int(lengths.sum())
            turn += 1


def _shares(weights: np.ndarray, examples: int) -> np.ndarray:
    """Whole numbers in the proportions of the weights, ``examples`` in all."""
    exact = weights / weights.sum() * examples
    shares = np.floor(exact).astype(np.int64)
    missing = examples - int(shares.sum())
    shares[np.argsort(shares - exact, kind="stable")[:missing]] += 1
    return shares


def parse_blend(given: Sequence[str]) -> list[tuple[str, float]]:
    """``folder:weight`` of the command line as pairs; a folder alone has the weight 1.

    Raises
    ------
    SettingsError
        If a weight is not a positive number.
    """
    parts = []
    for text in given:
        folder, colon, weight = text.rpartition(":")
        if not colon or os.path.isdir(text):
            parts.append((text, 1.0))
            continue
        try:
            number = float(weight)
        except ValueError:
            number = float("nan")
        if not 0 < number < float("inf"):
            raise SettingsError(
                f"{text}: the weight {weight!r} must be a positive number, as in news.corpus:0.7"
            )
        parts.append((folder, number))
    return parts
