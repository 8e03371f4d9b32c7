"""What is remembered of the lines of a text: which stood before, and which are the longest."""

import heapq
from typing import Any

import numpy as np

from fastnplm.source import Block
from fastnplm.text import END, START, split_characters, split_words

REMEMBERED = 1 << 24


class RepeatedLines:
    """Lines that stood before, counted by their hashes; when they are too many, in a sample.

    Blank lines do not count, and white space at the ends of a line makes no difference.

    Parameters
    ----------
    remembered : hashes kept, 8 bytes each
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._hashes: list[np.ndarray] = [np.zeros(0, np.int64)]
        self._kept, self._halvings = 0, 0

    def add(self, data: bytes) -> None:
        """Remember the lines of a block, which ends with a line."""
        lines = [line for line in map(bytes.strip, data.split(b"\n")) if line]
        hashes = self._sample(np.fromiter(map(hash, lines), np.int64, len(lines)))
        self._hashes.append(hashes)
        self._kept += len(hashes)
        while self._kept > self._remembered:
            # Of a line that is repeated all copies stay or go, so the sample tells the share.
            self._halvings += 1
            self._hashes = [self._sample(hashes) for hashes in self._hashes]
            self._kept = sum(map(len, self._hashes))

    def _sample(self, hashes: np.ndarray) -> np.ndarray:
        return hashes[hashes & ((1 << self._halvings) - 1) == 0]

    def count(self) -> tuple[int, bool]:
        """How many lines stood before, and whether the number is exact."""
        hashes = np.concatenate(self._hashes)
        return (len(hashes) - len(np.unique(hashes))) << self._halvings, not self._halvings


class LongestLines:
    """The ``number`` lines with the most words, the first of equal ones."""

    def __init__(self, number: int, characters: bool = False) -> None:
        self._number = number
        self._split = split_characters if characters else split_words
        self._heap: list[tuple[int, int, str]] = []
        self._seen = 0

    def add(self, block: Block, ids: np.ndarray, end: int) -> None:
        """Look at the lines of a block; ``ids`` are its words, ``end`` stands after each line
        that has any."""
        lengths = np.diff(np.flatnonzero(ids == end), prepend=-1) - 1
        least = self._heap[0][0] if len(self._heap) == self._number else 0
        if not len(lengths) or lengths.max() <= least:
            return
        lines = [
            number
            for number, line in enumerate(block.data.decode().split("\n"), block.line)
            if any(word not in (START, END) for word in self._split(line))
        ]
        for place in np.argsort(-lengths, kind="stable")[: self._number].tolist():
            self._seen += 1
            where = f"{block.name}:{lines[place]}"
            heapq.heappush(self._heap, (int(lengths[place]), -self._seen, where))
        while len(self._heap) > self._number:
            heapq.heappop(self._heap)

    def found(self) -> list[dict[str, Any]]:
        """``words`` and ``where`` of each, the longest first."""
        return [{"words": n, "where": where} for n, _, where in sorted(self._heap, reverse=True)]
