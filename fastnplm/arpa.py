r"""ARPA files: the text form of back-off n-gram models that other toolkits read and write.

    \data\
    ngram 1=4
    ngram 2=3

    \1-grams:
    -0.523    w    -0.301        log10 p, the words, log10 of the back-off weight (0 if absent)
    ...
    \2-grams:
    ...
    \end\

``<s>`` has no probability of its own; it is written as -99, and whatever a file says is ignored.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastnplm.backoff import BackOff
from fastnplm.counts import find_ids
from fastnplm.errors import ModelError

__all__ = ["read_arpa", "write_arpa"]

START, END, RESERVED = "<s>", "</s>", ("<unk>", "<s>", "</s>")
NEVER = "-99"
ROWS = 1 << 16
LONGEST = 1 << 20
"""Bytes of the longest line that is read."""


def write_arpa(model: BackOff, words: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Write a model; ``words[i]`` is the text of id i. A name ending in ``.gz`` is compressed.

    Numbers have 12 significant digits. The file appears whole, under its name, at the end.
    """
    path = Path(path)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with _opened(fresh, "wb", path.suffix == ".gz") as file:
            head = [f"ngram {k}={len(keys)}" for k, keys in enumerate(model.keys, start=1)]
            file.write("\n".join(["\\data\\", *head, ""]).encode())
            names: list[str] = list(words)
            for k in range(1, model.order + 1):
                if k > 1:
                    parents, last = np.divmod(model.keys[k - 1], model.vocabulary_size)
                    pairs = zip(parents.tolist(), last.tolist(), strict=True)
                    names = [f"{names[parent]} {words[word]}" for parent, word in pairs]
                file.write(f"\n\\{k}-grams:\n".encode())
                for low in range(0, len(names), ROWS):
                    rows = slice(low, low + ROWS)
                    probabilities = model.log_probability[k - 1][rows] / math.log(10)
                    backoffs = (
                        (model.log_backoff[k - 1][rows] / math.log(10)).tolist()
                        if k < model.order
                        else [0.0] * len(probabilities)
                    )
                    lines = [
                        f"{NEVER if p == -math.inf else f'{p:.12g}'}\t{name}"
                        + (f"\t{b:.12g}\n" if b else "\n")
                        for p, name, b in zip(
                            probabilities.tolist(), names[rows], backoffs, strict=True
                        )
                    ]
                    file.write("".join(lines).encode())
            file.write(b"\n\\end\\\n")
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def read_arpa(
    path: str | os.PathLike[str], words: Sequence[str] | None = None
) -> tuple[BackOff, list[str]]:
    """Read a model and its words by id: reserved words first, then in the order of the file.

    With ``words`` given (those of another model), ids are theirs, and the file must have exactly
    the same words. The probabilities sum to one as well as those of the file do.

    Raises
    ------
    ModelError
        With file and line, if the file is not an ARPA file: a count that is not that of the
        section, a malformed number, a positive log probability, a word that is no unigram, an
        n-gram twice or without its context, a missing end, or words other than ``words``.
    """
    reader = _Reader(path)
    try:
        with _opened(Path(path), "rb", str(path).endswith(".gz")) as file:
            return reader.read(file, words)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"{path}: cannot be read: {reason}") from error


@contextlib.contextmanager
def _opened(path: Path, mode: str, compressed: bool) -> Iterator[IO[bytes]]:
    with open(path, mode) as raw:
        if compressed:
            # No name and no time in the header: the same model gives the same bytes.
            with gzip.GzipFile("", mode, fileobj=raw, mtime=0) as file:  # type: ignore[arg-type]
                yield file  # type: ignore[misc]
        else:
            yield raw
        if mode == "wb":
            raw.flush()
            os.fsync(raw.fileno())


class _Reader:
    """One pass over a file, which remembers where it is."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self.line = 0

    def fail(self, message: str, line: int | None = None) -> NoReturn:
        raise ModelError(f"{self.path}:{self.line if line is None else line}: {message}")

    def lines(self, file: IO[bytes]) -> Iterator[list[bytes]]:
        """The fields of each line that is not blank."""
        while raw := file.readline(LONGEST):
            self.line += 1
            if len(raw) == LONGEST:
                self.fail(f"the line is longer than {LONGEST:,} bytes; this is not an ARPA file")
            # Fields stand between ASCII white space, as words do; str.split would cut elsewhere.
            fields = raw.split()
            if fields:
                yield fields

    def number(self, field: bytes) -> float:
        try:
            # Python alone reads 1_000 as a number.
            value = math.nan if b"_" in field else float(field)
        except ValueError:
            value = math.nan
        if math.isnan(value) or value == math.inf:
            self.fail(f"expected a number, got {field[:40]!r}")
        return value

    def text(self, field: bytes) -> str:
        try:
            return field.decode()
        except UnicodeDecodeError:
            self.fail(f"{field[:40]!r} is not UTF-8")

    def read(self, file: IO[bytes], words: Sequence[str] | None) -> tuple[BackOff, list[str]]:
        lines = self.lines(file)
        for fields in lines:  # text before the header is a comment
            if fields == [b"\\data\\"]:
                break
        else:
            self.fail("there is no line \\data\\; this is not an ARPA file")
        sizes: list[int] = []
        fields = self.next(lines)
        while fields[0] == b"ngram":
            sizes.append(self.size(fields, len(sizes) + 1))
            fields = self.next(lines)
        if not sizes:
            self.fail("expected 'ngram 1=...'")
        ids: dict[bytes, int] = {}
        names: list[str] = []
        keys: list[NDArray[np.int64]] = []
        log_probability: list[NDArray[np.float64]] = []
        log_backoff: list[NDArray[np.float64]] = []
        for k, size in enumerate(sizes, start=1):
            if fields != [f"\\{k}-grams:".encode()]:
                self.fail(f"expected \\{k}-grams:, got {b' '.join(fields)[:40]!r}")
            section = _Section(k, k == len(sizes))
            for fields in lines:
                if fields[0].startswith(b"\\") and len(fields) == 1:
                    break
                section.add(self, fields, ids)
            else:
                self.fail("the file ends without \\end\\; it is cut short")
            if len(section.probabilities) != size:
                self.fail(
                    f"the {k}-grams end here after {len(section.probabilities)}, "
                    f"but the header says {size}"
                )
            if k == 1:
                names, order = self.number_words(ids, words)
                level = np.arange(len(names), dtype=np.int64)
            else:
                level, order = section.keys(self, keys, names)
            keys.append(level)
            log_probability.append(np.array(section.probabilities)[order] * math.log(10))
            if k < len(sizes):
                log_backoff.append(np.array(section.backoffs)[order] * math.log(10))
        if fields != [b"\\end\\"]:
            self.fail(f"expected \\end\\, got {fields[0][:40]!r}")
        for _ in lines:  # to the end of the file: a compressed one is checked only there
            pass
        start, end = names.index(START), names.index(END)
        log_probability[0][start] = -math.inf
        return BackOff(len(names), start, end, keys, log_probability, log_backoff), names

    def next(self, lines: Iterator[list[bytes]]) -> list[bytes]:
        fields = next(lines, None)
        if fields is None:
            self.fail("the file ends in its header; it is cut short")
        return fields

    def size(self, fields: list[bytes], k: int) -> int:
        name, equals, size = b"".join(fields[1:]).partition(b"=")
        if name != str(k).encode() or not equals or not (size.isdigit() and len(size) < 16):
            self.fail(f"expected 'ngram {k}=...', got {b' '.join(fields)[:40]!r}")
        return int(size)

    def number_words(
        self, ids: dict[bytes, int], words: Sequence[str] | None
    ) -> tuple[list[str], NDArray[np.int64]]:
        """Give the words their final ids; ``order[id]`` is the row of the section."""
        rows = {self.text(word): row for word, row in ids.items()}
        for word in (START, END):
            if word not in rows:
                self.fail(f"the unigrams end here without {word}; every model needs it")
        if words is None:
            names = [word for word in RESERVED if word in rows]
            names += [word for word in rows if word not in RESERVED]
        else:
            names, known = list(words), set(words)
            if known != set(rows):
                missing = next((word for word in names if word not in rows), None)
                odd = next((word for word in rows if word not in known), None)
                self.fail(
                    "the unigrams are not the words of the vocabulary: "
                    + (f"{odd!r} is not in it" if odd is not None else f"{missing!r} is missing")
                )
        order = np.array([rows[word] for word in names], dtype=np.int64)
        for id, word in enumerate(names):
            ids[word.encode()] = id
        return names, order


class _Section:
    """The n-grams of one order, as they stand in the file."""

    def __init__(self, k: int, highest: bool) -> None:
        self.k = k
        self.widths = (k + 1,) if highest else (k + 1, k + 2)
        self.probabilities, self.backoffs = array("d"), array("d")
        self.ids, self.places = array("q"), array("q")

    def add(self, reader: _Reader, fields: list[bytes], ids: dict[bytes, int]) -> None:
        k = self.k
        if len(fields) not in self.widths:
            reader.fail(
                f"expected a log probability, {k} word{'s' * (k > 1)}"
                + (" and perhaps a back-off weight" if len(self.widths) > 1 else "")
                + f"; got {len(fields)} fields"
            )
        probability = reader.number(fields[0])
        if probability > 0 and fields[1] != START.encode():
            reader.fail(f"the log probability {probability:g} is positive")
        backoff = reader.number(fields[-1]) if len(fields) == k + 2 else 0.0
        if backoff == -math.inf:
            reader.fail("a back-off weight of zero; expected a finite logarithm")
        if k == 1:
            if ids.setdefault(fields[1], len(ids)) != len(self.probabilities):
                reader.fail(f"the word {reader.text(fields[1])!r} comes twice")
        else:
            for word in fields[1 : k + 1]:
                if word not in ids:
                    reader.fail(f"the word {reader.text(word)!r} is not among the unigrams")
                self.ids.append(ids[word])
            self.places.append(reader.line)
        self.probabilities.append(probability)
        self.backoffs.append(backoff)

    def keys(
        self, reader: _Reader, lower: list[NDArray[np.int64]], names: list[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sorted keys, and the row of the section that each comes from."""
        words = np.array(self.ids, dtype=np.int64).reshape(-1, self.k)
        ids = words[:, 0]
        for k in range(2, self.k):
            ids = find_ids(lower[k - 1], ids, words[:, k - 1], len(names))
        if (ids < 0).any():
            self.complain(reader, int(np.flatnonzero(ids < 0)[0]), "without its context before it")
        keys = ids * len(names) + words[:, -1]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            self.complain(reader, int(order[twice[0] + 1]), "that comes twice")
        starts = np.flatnonzero(words[:, -1] == names.index(START))
        if len(starts):
            self.complain(reader, int(starts[0]), "that ends with <s>, which is never predicted")
        return keys, order

    def complain(self, reader: _Reader, row: int, what: str) -> NoReturn:
        reader.fail(f"a {self.k}-gram {what}", self.places[row])
