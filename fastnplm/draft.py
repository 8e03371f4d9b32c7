"""The ids of a corpus on their way to disk: first as words come, then the final ones."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fastnplm.errors import CorpusError

_AT_ONCE = 1 << 20  # ids read back at a time


class Draft:
    """The ids as words came, on disk, and which table each stretch of them belongs to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stretches: list[tuple[int, int]] = []

    @contextmanager
    def writing(self) -> Iterator[Callable[[int, np.ndarray], None]]:
        with open(self.path, "wb") as file:  # buffered: a write cut short goes on

            def write(generation: int, ids: np.ndarray) -> None:
                if not len(ids):
                    return
                file.write(ids.data)
                if self._stretches and self._stretches[-1][0] == generation:
                    self._stretches[-1] = (generation, self._stretches[-1][1] + len(ids))
                else:
                    self._stretches.append((generation, len(ids)))

            yield write

    def recoded(
        self, tables: Any, dtype: np.dtype, unknown: int, recode: Callable[..., int]
    ) -> Iterator[Callable[[], tuple[np.ndarray, int]]]:
        """Functions that give a stretch of final ids and how many of them are ``unknown``.

        Each may be called in a thread of its own; together they are the stream, in order.
        """
        for generation, ids in self.pieces():
            table = None if tables is None else tables[generation]

            def final(
                ids: np.ndarray = ids, table: np.ndarray | None = table
            ) -> tuple[np.ndarray, int]:
                if table is None:
                    return ids.astype(dtype), int(np.count_nonzero(ids == unknown))
                final = np.empty(len(ids), dtype)
                return final, recode(ids, table, unknown, final)

            yield final

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """Generation and ids, a million at a time at most."""
        with open(self.path, "rb", buffering=0) as file:
            for generation, length in self._stretches:
                while length:
                    ids = np.fromfile(file, np.int32, min(length, _AT_ONCE))
                    if not len(ids):
                        raise CorpusError(f"{self.path}: cut short while it was in use; try again")
                    length -= len(ids)
                    yield generation, ids


class TokenFile:
    """``tokens.bin`` while it is written; then its length, unknown words and checksum."""

    def __init__(self, path: Path, dtype: str, durable: bool) -> None:
        self._path, self._durable = path, durable
        self.dtype = np.dtype(dtype)
        self.tokens = self.oov = 0
        self.checksum = ""

    def write(
        self, finals: Iterable[tuple[np.ndarray, int]], pool: ThreadPoolExecutor | None = None
    ) -> None:
        """Write stretches of ids, each with the number of unknown words in it.

        With a pool, a stretch is hashed there while it is written here.
        """
        digest = sha256()
        with open(self._path, "wb") as file:  # buffered: a write cut short goes on
            for final, unknown in finals:
                final = final.astype(self.dtype.newbyteorder("<"), copy=False)
                self.oov += unknown
                self.tokens += len(final)
                hashed = pool.submit(digest.update, final.data) if pool else None
                file.write(final.data)
                if self._durable:
                    _begin_flush(file, final.nbytes)
                if hashed is not None:
                    hashed.result()
                else:
                    digest.update(final.data)
            flush(file, self._durable)
        self.checksum = digest.hexdigest()


def _begin_flush(file: Any, size: int) -> None:
    """Have the disk begin with the ``size`` bytes written last, so that `flush` waits less.

    The advice is to forget these pages: the system starts to write them, as they are not on disk
    yet, and so cannot forget them.
    """
    if hasattr(os, "posix_fadvise"):
        file.flush()
        end = file.tell()
        os.posix_fadvise(file.fileno(), end - size, size, os.POSIX_FADV_DONTNEED)


def flush(file: Any, durable: bool) -> None:
    """Have all that was written on disk before going on, if ``durable``."""
    if durable:
        file.flush()
        os.fsync(file.fileno())
