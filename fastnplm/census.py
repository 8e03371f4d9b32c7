"""Counting words in bounded memory, exactly.

Each worker counts in a table of its own. A table that outgrows its share of the memory is written
to disk as a finished *generation* and a new one begun; ids of a block are those of the table that
read it. At the end the counts of all generations are added up, if they are many part by part (the
words are divided by their hash, so all counts of a word meet in one part). Nothing is pruned, so
no count is ever a lower bound: what memory cannot hold costs time instead.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from fastnplm.lexicon import Encoded
from fastnplm.text import RESERVED
from fastnplm.vocabulary import nothing_kept

_FIRST = len(RESERVED)

# Tables double when they grow, and old and new one are there for a moment together.
_SHARE_OF_MEMORY = 1 / 3


@dataclass
class Generation:
    """The words of one table, in the order of their ids; on disk when ``path`` is set."""

    letters: bytes
    ends: np.ndarray
    counts: np.ndarray
    path: Path | None = None

    def spill(self, path: Path) -> None:
        with open(path, "wb") as file:
            for array in (self.ends, self.counts):
                file.write(array.astype("<i8").data)
            file.write(self.letters)
        self.path, self._words = path, len(self.ends)
        self.letters, self.ends, self.counts = b"", self.ends[:0], self.counts[:0]

    def load(self) -> "Generation":
        if self.path is None:
            return self
        with open(self.path, "rb") as file:
            ends, counts = (np.fromfile(file, "<i8", self._words) for _ in range(2))
            return Generation(file.read(), ends, counts)


@dataclass
class LeftOut:
    """Words that are too rare to be kept: how many, their tokens, and the highest count."""

    types: int = 0
    tokens: int = 0
    highest: int = 0

    def add(self, counts: np.ndarray) -> None:
        self.types += int(np.count_nonzero(counts))
        self.tokens += int(counts.sum())
        self.highest = max(self.highest, int(counts.max(initial=0)))


class Census:
    """Tables for a number of workers, and what they counted together.

    Parameters
    ----------
    make : a function that makes an empty `Lexicon`
    workers : how many blocks are encoded at the same time
    memory : bytes that all tables together may take, or None for no limit
    folder : where generations go that do not fit
    """

    def __init__(self, make: Any, workers: int, memory: int | None, folder: Path) -> None:
        self._make, self._memory, self._folder = make, memory, folder
        self._limit = None if memory is None else int(memory * _SHARE_OF_MEMORY / workers)
        self._free: SimpleQueue = SimpleQueue()
        self._lock = threading.Lock()
        self._numbers = 0
        self._finished: dict[int, Generation] = {}
        self._tables: dict[int, Any] = {}
        self._workers = workers
        for _ in range(workers):
            self._free.put(self._new_table())
        self.spilled = 0

    def _new_table(self) -> tuple[int, Any]:
        with self._lock:
            number = self._numbers
            self._numbers += 1
        self._tables[number] = table = self._make()
        return number, table

    def encode(self, data: bytes) -> tuple[int, Encoded]:
        """Ids of a block, and the generation they belong to; any thread may call this."""
        number, table = self._free.get()
        try:
            encoded = table.encode(data)
            found = number
            if self._limit is not None and table.memory() > self._limit:
                self._spill(number, table)
                number, table = self._new_table()
        finally:
            self._free.put((number, table))
        return found, encoded

    def _spill(self, number: int, table: Any) -> None:
        generation = Generation(table.letters(), table.ends(), table.counts())
        generation.spill(self._folder / f"generation-{number}.bin")
        self._finished[number] = generation
        del self._tables[number]
        self.spilled += 1

    def choose(self, min_count: int, max_vocab: int | None) -> "Choice":
        """Add up all counts and keep the words that are frequent enough.

        Raises
        ------
        VocabularyError
            If none is.
        """
        if self.spilled:
            for number, table in list(self._tables.items()):
                self._spill(number, table)
                self.spilled -= 1  # only to free its memory: this one would have fitted
            table, left_out = self._add_up(min_count)
        else:
            table, left_out = self._add_in_memory(min_count)
        counts = table.counts()
        types = left_out.types + int(np.count_nonzero(counts[_FIRST:]))
        order = table.order(_FIRST, min_count)
        if not len(order):
            highest = max(left_out.highest, int(counts[_FIRST:].max(initial=0)))
            raise nothing_kept(min_count, highest, types)
        if max_vocab is not None:
            order = order[: max_vocab - _FIRST]
        kept = counts[order]
        unknown = int(counts[0]) + left_out.tokens + int(counts[_FIRST:].sum()) - int(kept.sum())
        final = np.zeros(len(table), np.int32)
        final[:_FIRST] = range(_FIRST)
        final[order] = np.arange(_FIRST, _FIRST + len(order), dtype=np.int32)
        reserved = np.array([unknown, 0, 0], np.int64)
        return Choice(self, table, order, np.concatenate([reserved, kept]), types, final)

    def _add_in_memory(self, min_count: int) -> tuple[Any, "LeftOut"]:
        """A table of all words but some met less often than ``min_count``."""
        self._ids, left_out = {}, LeftOut()
        number, largest = max(self._tables.items(), key=lambda item: len(item[1]))
        del self._tables[number]
        while self._tables:
            other, table = self._tables.popitem()
            # What only the last table has is as rare as it is there.
            least = 0 if self._tables else min_count
            counts = table.counts()
            ids = largest.add(table.letters(), table.ends(), counts, least=least)
            left_out.add(counts[ids < 0])
            self._ids[other] = ids
        self._ids[number] = np.arange(len(largest), dtype=np.int32)
        return largest, left_out

    def _add_up(self, min_count: int) -> tuple[Any, "LeftOut"]:
        """A table of the words met ``min_count`` times or more."""
        generations = [self._finished[number] for number in sorted(self._finished)]
        # At least as many parts as there were tables full of words that one table may now meet.
        parts = len(generations) + 1
        kept, left_out = self._make(), LeftOut()
        for part in range(parts):
            table = self._make()
            for generation in generations:
                words = generation.load()
                counts = words.counts.copy()
                counts[:_FIRST] = 0 if part else counts[:_FIRST]
                table.add(words.letters, words.ends, counts, part, parts)
                if part == 0:
                    self._add_reserved(kept, words)
            counts = table.counts()
            counts[:_FIRST] = 0
            frequent = np.flatnonzero(counts >= min_count).astype(np.int32)
            left_out.add(counts[counts < min_count])
            spelled = table.lines(frequent).split(b"\n")[:-1]
            ends = np.cumsum([len(word) for word in spelled], dtype=np.int64)
            kept.add(b"".join(spelled), ends, counts[frequent])
        return kept, left_out

    @staticmethod
    def _add_reserved(kept: Any, words: Generation) -> None:
        ends = words.ends[:_FIRST]
        kept.add(words.letters[: int(ends[-1])], ends, words.counts[:_FIRST])

    def ids(self, number: int, table: Any) -> np.ndarray:
        """What the ids of a generation are in the table of the chosen words; -1 where missing."""
        if number in self._finished:
            words = self._finished[number].load()
            return table.find(words.letters, words.ends)
        return self._ids[number]


@dataclass
class Choice:
    """The words of a vocabulary, and how ids of each generation become final ids."""

    census: Census
    table: Any
    order: np.ndarray
    counts: np.ndarray
    types: int
    final: np.ndarray

    def words(self) -> bytes:
        """The words by id, a line end between them."""
        return "\n".join(RESERVED).encode() + b"\n" + self.table.lines(self.order)[:-1]

    def lines(self) -> bytes:
        """``word TAB count`` lines of all, by id."""
        reserved = zip(RESERVED, self.counts.tolist(), strict=False)
        head = "".join(f"{word}\t{count}\n" for word, count in reserved).encode()
        return head + self.table.lines(self.order, self.counts[_FIRST:])

    def recoding(self, workers: int) -> "Recoding":
        return Recoding(self, workers)


class Recoding:
    """The final id of each id of a generation; only those in use are kept in memory."""

    def __init__(self, choice: Choice, workers: int) -> None:
        self._choice, self._room = choice, workers + 1
        self._tables: OrderedDict[int, np.ndarray] = OrderedDict()

    def __getitem__(self, number: int) -> np.ndarray:
        if number not in self._tables:
            choice = self._choice
            ids = choice.census.ids(number, choice.table)
            self._tables[number] = np.where(ids < 0, 0, choice.final[ids]).astype(np.int32)
            if len(self._tables) > self._room:
                self._tables.popitem(last=False)
        self._tables.move_to_end(number)
        return self._tables[number]
