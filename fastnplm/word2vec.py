r"""Word vectors in the formats of word2vec, text and binary: written, and read without trust.

    2 3                      how many words, how wide their vectors
    red 0.5 -1.25 3e-05      a word and its values, between ASCII white space
    fox 1 0 2

In the binary form the values are little-endian float32 behind one space; writers differ in whether
a line feed ends each record, so one is skipped there. Nothing is allocated because a file claims
to be large: memory follows the bytes that are there.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from .errors import VectorsError
from .text import split_words

MAX_WORD = 1 << 20
"""Bytes of the longest word that is read."""
MAX_WIDTH = 1 << 16
"""Values of the widest vector that is read."""
_CHUNK = 1 << 18


def write(vectors: Any, path: str | os.PathLike[str], binary: bool = False) -> None:
    """Write the words of ``vectors.vocabulary``, in its order, and their ``rows``.

    Numbers of the text form are the shortest that read back to the same float32, with '.'
    whatever the locale. The file appears whole under its name, at the end. Raises VectorsError,
    before anything is written, for words that the format cannot hold: empty, with ASCII white
    space or NUL in them, or too long.
    """
    words = vectors.vocabulary.words
    odd = [word for word in words if split_words(word) != [word] or len(word) > MAX_WORD // 4]
    if odd:
        shown = ", ".join(repr(word[:40]) for word in odd[:5]) + (", ..." if len(odd) > 5 else "")
        raise VectorsError(
            f"{len(odd)} words cannot stand in a word2vec file (empty, with white space or NUL in"
            f" them, or of more than {MAX_WORD // 4:,} characters): {shown}"
        )
    rows = np.asarray(vectors.rows)
    path = Path(path)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(fresh, "wb") as file:
            file.write(b"%d %d\n" % rows.shape)
            for word, row in zip(words, rows, strict=True):
                row = row.astype("<f4")
                values = row.tobytes() if binary else _shortest(row)
                file.write(word.encode() + b" " + values + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError as error:
        raise VectorsError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def read(
    path: str | os.PathLike[str], binary: bool | None = None, header: bool = True
) -> tuple[list[str], np.ndarray]:
    """The words of a file, in its order, and their vectors, float32 (words, width).

    binary : None finds out from the first record; header : False for a text file that begins with
    its first word (GloVe's)

    Raises
    ------
    VectorsError
        With the line or byte: a header that is none or lies about rows or width, a value that is
        no number or not finite as float32, a word twice or not UTF-8, a file cut short.
    """
    words: dict[str, int] = {}
    values = array("f")
    width = 0
    with _File(path, binary, header) as file:
        for word, row in file.records():
            try:
                text = word.decode()
            except UnicodeDecodeError:
                raise file.wrong(f"the word {word[:40]!r} is not UTF-8") from None
            if text in words:
                raise file.wrong(f"the word {text[:40]!r} comes twice; remove one of them")
            words[text] = len(words)
            values.frombytes(row.tobytes())
            width = len(row)
    return list(words), np.frombuffer(values, np.float32).reshape(len(words), width)


def width(path: str | os.PathLike[str], binary: bool | None = None, header: bool = True) -> int:
    """How wide the vectors of a file are, from its beginning alone; raises as ``read``."""
    with _File(path, binary, header) as file:
        return len(next(file.records())[1])


def fill(
    vocabulary: Any,
    table: np.ndarray,
    path: str | os.PathLike[str],
    binary: bool | None = None,
    header: bool = True,
) -> int:
    """Copy the vectors of the words that ``vocabulary`` knows into ``table``; how many they were.

    table : (V, M), float; rows of words that the file lacks stay as they are, and so does all of
    it after an error. Memory: one copy of the rows that are filled. Raises as ``read``, and if
    the width is not M. Of a word that comes twice the first counts.
    """
    found: dict[int, None] = {}
    values = array("f")
    with _File(path, binary, header) as file:
        for word, row in file.records():
            if len(row) != table.shape[1]:
                raise file.wrong(
                    f"vectors of {len(row)} values, but the model's dim is {table.shape[1]}; pass"
                    f" dim={len(row)}"
                )
            text = word.decode(errors="replace")
            if text in vocabulary and vocabulary[text] not in found:
                found[vocabulary[text]] = None
                values.frombytes(row.tobytes())
    if found:
        table[list(found)] = np.frombuffer(values, np.float32).reshape(len(found), -1)
    return len(found)


def _shortest(row: np.ndarray) -> bytes:
    return " ".join(np.format_float_scientific(value, trim="-") for value in row).encode()


class _File:
    """One pass over a file, which remembers where it is."""

    def __init__(self, path: str | os.PathLike[str], binary: bool | None, header: bool) -> None:
        self.path = Path(path)
        self.binary, self.header = binary, header
        self.line = 0
        self.offset = 0  # of the record that is read, in a binary file

    def __enter__(self) -> _File:
        try:
            self.file: IO[bytes] = open(self.path, "rb")
            self.size = os.fstat(self.file.fileno()).st_size
        except OSError as error:
            raise VectorsError(f"{self.path}: cannot be read: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def wrong(self, message: str) -> VectorsError:
        where = f" at byte {self.offset:,}" if self.binary else f":{self.line}"
        return VectorsError(f"{self.path}{where}: {message}")

    def records(self) -> Iterator[tuple[bytes, np.ndarray]]:
        """Each word and its values, float32 (width,), all finite."""
        try:
            yield from self._records()
        except OSError as error:
            raise VectorsError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _records(self) -> Iterator[tuple[bytes, np.ndarray]]:
        if self.size == 0:
            raise VectorsError(f"{self.path}: empty file; expected word vectors")
        if not self.header:
            if self.binary:
                raise VectorsError("a binary file always has a header; do not pass header=False")
            self.binary = False
            yield from self._lines(None, None)
            return
        rows, columns = self._read_header()
        start = self.file.tell()
        if self.binary is None:
            self.binary = not self._begins_as_text(columns)
            self.file.seek(start)
        if self.binary:
            yield from self._binary(rows, columns, start)
        else:
            yield from self._lines(rows, columns)

    def _read_header(self) -> tuple[int, int]:
        self.line = 1
        first = self.file.readline(256)
        fields = first.split()
        if len(fields) != 2 or not all(f.isdigit() and len(f) < 16 for f in fields):
            raise VectorsError(
                f"{self.path}:1: the first line, {first[:40]!r}, is not a header ('words width', "
                "two whole numbers); if the file has none, put it there or read with header=False"
            )
        rows, columns = int(fields[0]), int(fields[1])
        if not first.endswith(b"\n"):
            raise VectorsError(f"{self.path}:1: the header has no end; the file is cut short")
        if not rows or not 1 <= columns <= MAX_WIDTH:
            raise VectorsError(
                f"{self.path}:1: the header says {rows:,} words of {columns:,} values; expected at"
                f" least one word and 1 to {MAX_WIDTH:,} values"
            )
        return rows, columns

    def _begins_as_text(self, columns: int) -> bool:
        """Whether the first record is a line of a word and numbers."""
        fields = self.file.readline(_longest(columns)).split(None, columns + 1)
        return len(fields) > 1 and all(map(_is_number, fields[1:]))

    def _lines(self, rows: int | None, columns: int | None) -> Iterator[tuple[bytes, np.ndarray]]:
        count = 0
        longest = _longest(columns or MAX_WIDTH)
        while line := self.file.readline(longest):
            self.line += 1
            if not line.endswith(b"\n"):
                what = "is too long" if len(line) == longest else "has no end"
                raise self.wrong(f"the line {what}; the file is cut short or not word vectors")
            # Never more fields than there should be: a line of a million costs nothing.
            fields = line.split(None, (columns or MAX_WIDTH) + 1)
            if not fields:
                if any(map(bytes.strip, self._rest(longest))):
                    raise self.wrong("an empty line between vectors")
                break
            count += 1
            if rows is not None and count > rows:
                more = sum(map(bool, map(bytes.strip, self._rest(longest))))
                raise self.wrong(f"the header says {rows:,} words, found {count + more:,}")
            if columns is None and 2 <= len(fields) <= MAX_WIDTH + 1:
                columns = len(fields) - 1
            if columns is None or len(fields) != columns + 1 or b"\0" in fields[0]:
                wanted = f"{columns:,}" if columns else f"1 to {MAX_WIDTH:,}"
                got = "more" if len(fields) == (columns or MAX_WIDTH) + 2 else len(fields) - 1
                raise self.wrong(f"expected a word and {wanted} values, got {got}")
            yield fields[0], self._numbers(fields[1:])
        if rows is not None and count < rows:
            raise self.wrong(f"the header says {rows:,} words, found {count:,}")
        if count == 0:
            raise self.wrong("there are no vectors")

    def _numbers(self, fields: list[bytes]) -> np.ndarray:
        try:
            with np.errstate(over="ignore"):
                row = np.array([float(field) for field in fields]).astype(np.float32)
        except ValueError:
            bad = next(field for field in fields if not _is_number(field))
            raise self.wrong(f"expected a number, got {bad[:40]!r}") from None
        if b"_" in b"".join(fields):  # Python alone reads 1_000 as a number
            raise self.wrong("expected numbers, got one with _ in it")
        return self._finite(row)

    def _finite(self, row: np.ndarray) -> np.ndarray:
        if not np.isfinite(row).all():
            place = int(np.flatnonzero(~np.isfinite(row))[0])
            raise self.wrong(f"value {place + 1} is {row[place]}, not a finite float32")
        return row

    def _binary(self, rows: int, columns: int, start: int) -> Iterator[tuple[bytes, np.ndarray]]:
        held, least = 4 * columns, 4 * columns + 2
        room = self.size - start
        if rows * least > room:
            raise self.wrong(
                f"the header says {rows:,} words of {columns:,} values, at least"
                f" {rows * least:,} bytes; {room:,} follow, room for {room // least:,}"
            )
        self.offset = start
        data, at = b"", 0
        for _ in range(rows):
            data, at = self._more(data, at, 2)
            at += data[at : at + 1] == b"\n"
            space = data.find(b" ", at)
            while space < 0 and len(data) - at <= MAX_WORD:
                before = len(data) - at
                data, at = self._more(data, at, before + 1)
                if len(data) == before:
                    raise self.wrong("the file ends in a word; it is cut short")
                space = data.find(b" ", before)
            word = data[at : space if space >= 0 else at + 40]
            if space < 0 or word.split() != [word] or b"\0" in word:
                raise self.wrong(f"expected a word and a space, got {word[:40]!r}")
            data, at = self._more(data, at, len(word) + 1 + held)
            begin = at + len(word) + 1
            if len(data) < begin + held:
                raise self.wrong("the file ends in a vector; it is cut short")
            row = np.frombuffer(data, "<f4", columns, begin)
            yield word, self._finite(row.astype(np.float32))
            at = begin + held
            self.offset = self.file.tell() - len(data) + at
        if data[at:] + self.file.read(2) not in (b"", b"\n"):
            raise self.wrong(f"the header says {rows:,} words, but more follows them")

    def _more(self, data: bytes, at: int, wanted: int) -> tuple[bytes, int]:
        """The data with at least ``wanted`` bytes from ``at`` on, or all that are left."""
        if len(data) - at >= wanted:
            return data, at
        return data[at:] + self.file.read(max(_CHUNK, wanted)), 0

    def _rest(self, longest: int) -> Iterator[bytes]:
        return iter(lambda: self.file.readline(longest), b"")


def _longest(columns: int) -> int:
    """Bytes of the longest line that is read."""
    return MAX_WORD + 64 * columns


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
