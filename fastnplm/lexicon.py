"""Words of a block of text to ids: the table behind preparing a corpus, in pure Python.

`fastnplm._text.Lexicon` is the same thing compiled; both must give the same ids for the same text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fastnplm.text import END, START, UNKNOWN, split_characters

_WORD = re.compile(rb"[^\x00\t\n\x0b\x0c\r ]+")
_START, _END, _UNKNOWN = START.encode(), END.encode(), UNKNOWN.encode()
RESERVED_WORDS = (_UNKNOWN, _START, _END)

# What a word costs here beyond its own bytes: a bytes object, a place in the table, a count.
_WORD_BYTES = 160


class Trouble(Exception):  # noqa: N818 - never leaves the package
    """Something in a block that stops the reading: what (``kind``) and at which byte of it."""

    def __init__(self, kind: str, position: int) -> None:
        super().__init__(kind, position)
        self.kind = kind
        self.position = position


@dataclass(slots=True)
class Encoded:
    """A block as ids, ``</s>`` after each of its sentences, and what was seen on the way.

    ``ends_first``: the first line of the block ends before any word of it. ``open_words``: words
    stand after the last line end (the block stops inside a line).
    """

    ids: np.ndarray
    lines: int
    blank_lines: int
    sentences: int
    ends_first: bool
    open_words: bool
    reserved: int


class Lexicon:
    """Ids for words, given as they come (or fixed), and the number of times each was met.

    Parameters
    ----------
    words : the first words, as UTF-8; their ids are their places
    unknown, start, end : ids of the reserved words; ``unknown`` None makes an unknown word an error
    fixed : True gives every other word the id ``unknown``; False gives it the next id
    reserved : what a literal ``<s>`` or ``</s>`` does, see `fastnplm.text.TextSettings`
    characters : every character is a word
    """

    def __init__(
        self,
        words: Sequence[bytes] = RESERVED_WORDS,
        unknown: int | None = 0,
        start: int = 1,
        end: int = 2,
        fixed: bool = False,
        reserved: str = "reject",
        characters: bool = False,
    ) -> None:
        self._ids: _Ids = _Ids((word, id) for id, word in enumerate(words))
        if fixed:
            self._ids.otherwise = -1 if unknown is None else unknown
        self.end = end
        self._unknown = unknown
        self._reserved = reserved
        self._characters = characters
        self._counts = np.zeros(max(1024, len(words)), np.int64)
        self._letters = 0

    def __len__(self) -> int:
        return len(self._ids)

    def memory(self) -> int:
        """Bytes this table takes, roughly."""
        return len(self._ids) * _WORD_BYTES + self._letters

    def letters(self) -> bytes:
        """All words behind one another."""
        return b"".join(self._ids)

    def ends(self) -> np.ndarray:
        """Where each word ends in `letters`, int64."""
        return np.cumsum([len(word) for word in self._ids], dtype=np.int64)

    def counts(self) -> np.ndarray:
        """How often each word was met, int64; ends of sentences are counted elsewhere."""
        self._grow()
        return self._counts[: len(self._ids)].copy()

    def spell(self, ids: np.ndarray) -> list[str]:
        """The words with these ids."""
        words = list(self._ids)
        return [words[id].decode() for id in ids.tolist()]

    def lines(self, ids: np.ndarray, counts: np.ndarray | None = None) -> bytes:
        """The words with these ids, a line each; with a tab and its count, if counts are given."""
        words = list(self._ids)
        spelled = [words[id] for id in ids.tolist()]
        if counts is not None:
            met = counts.tolist()
            spelled = [b"%s\t%d" % pair for pair in zip(spelled, met, strict=True)]
        return b"".join(line + b"\n" for line in spelled)

    def order(self, first: int, least: int) -> np.ndarray:
        """Ids from ``first`` on that were met ``least`` times or more: by falling count, ties by
        code point (which is the order of UTF-8's bytes), int32."""
        counts, words = self.counts(), list(self._ids)
        ids = np.flatnonzero(counts[first:] >= least) + first
        return np.array(sorted(ids.tolist(), key=lambda id: (-counts[id], words[id])), np.int32)

    def add(
        self,
        letters: bytes,
        ends: np.ndarray,
        counts: np.ndarray,
        part: int = 0,
        parts: int = 1,
        least: int = 0,
    ) -> np.ndarray:
        """Count words of another table in, ``counts`` times each; returns their ids, int32.

        The id -1 is given to words left out: with ``parts`` those that do not fall to ``part``,
        and words that are not here yet and have a count below ``least``.
        """
        ids = np.full(len(ends), -1, np.int32)
        for place, (word, count) in enumerate(zip(_words(letters, ends), counts, strict=True)):
            if (parts == 1 or hash(word) % parts == part) and (count >= least or word in self._ids):
                ids[place] = self._ids[word]
        self._grow()
        taken = ids >= 0
        np.add.at(self._counts, ids[taken], counts[taken])
        return ids

    def find(self, letters: bytes, ends: np.ndarray) -> np.ndarray:
        """Ids of words, int32; -1 for those that are not here."""
        found = [self._ids.get(word, -1) for word in _words(letters, ends)]
        return np.array(found, np.int32)

    def _grow(self) -> None:
        if len(self._ids) > len(self._counts):
            grown = np.zeros(2 * len(self._ids), np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown

    def encode(self, data: bytes) -> Encoded:
        """Ids of a block of UTF-8 whose last byte ends a line or a word.

        Raises
        ------
        Trouble
            ``utf-8``, ``reserved`` or ``unknown``, with the position of the byte.
        """
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError as error:
                raise Trouble("utf-8", error.start) from None
        before = len(self._ids)
        if self._characters or _START in data or _END in data:
            encoded = self._encode_lines(data)
        else:
            encoded = self._encode_at_once(data)
        if self._unknown is None and len(encoded.ids) and int(encoded.ids.min()) < 0:
            raise Trouble("unknown", self._first_unknown(data))
        if len(self._ids) > before:
            self._letters += sum(map(len, list(self._ids)[before:]))
        self._grow()
        met = np.bincount(encoded.ids, minlength=1)
        self._counts[: len(met)] += met
        self._counts[self.end] = 0
        return encoded

    def _encode_at_once(self, data: bytes) -> Encoded:
        lines = data.count(b"\n")
        words = data.replace(b"\0", b" ").replace(b"\n", b" </s> ").split()
        ids = np.fromiter(map(self._ids.__getitem__, words), np.int32, len(words))
        is_end = ids == self.end
        blank = is_end.copy()
        blank[1:] &= is_end[:-1]
        blanks = int(np.count_nonzero(blank))
        ends_first = bool(len(ids)) and bool(is_end[0])
        open_words = bool(len(ids)) and not is_end[-1]
        kept = ids[~blank] if blanks else ids
        return Encoded(kept, lines, blanks, lines - blanks, ends_first, open_words, 0)

    def _encode_lines(self, data: bytes) -> Encoded:
        ids: list[int] = []
        position = blanks = reserved = lines = 0
        ends_first = open_words = False
        pieces = data.replace(b"\0", b" ").split(b"\n")
        for number, piece in enumerate(pieces):
            begin = len(ids)
            for word in self._cut(piece):
                if word in (_START, _END):
                    reserved += 1
                    open_sentence = len(ids) > begin and ids[-1] != self.end
                    if self._reserved == "reject" or (
                        self._reserved == "map" and word == _START and open_sentence
                    ):
                        raise Trouble("reserved", _find_word(data, word, position))
                    if self._reserved == "map" and word == _END and open_sentence:
                        ids.append(self.end)
                else:
                    ids.append(self._ids[word])
                    if ids[-1] < 0:
                        raise Trouble("unknown", self._first_unknown(data))
            position += len(piece) + 1
            open_words = len(ids) > begin and ids[-1] != self.end
            if number < len(pieces) - 1:
                lines += 1
                if len(ids) == begin:
                    blanks += 1
                    ends_first |= number == 0
                elif open_words:
                    ids.append(self.end)
        sentences = ids.count(self.end)
        array = np.array(ids, np.int32)
        return Encoded(array, lines, blanks, sentences, ends_first, open_words, reserved)

    def _cut(self, line: bytes) -> list[bytes]:
        if self._characters:
            return [character.encode() for character in split_characters(line.decode())]
        return line.split()

    def _first_unknown(self, data: bytes) -> int:
        for match in _WORD.finditer(data):
            if any(word not in self._ids for word in self._cut(match.group())):
                return match.start()
        raise AssertionError("every word is known")


class _Ids(dict):
    """A new word gets the next id, or ``otherwise`` where the words are fixed."""

    otherwise: int | None = None

    def __missing__(self, word: bytes) -> int:
        if self.otherwise is not None:
            return self.otherwise
        self[word] = id = len(self)
        return id


def _words(letters: bytes, ends: np.ndarray) -> Iterator[bytes]:
    letters = bytes(letters)
    begin = 0
    for end in ends.tolist():
        yield letters[begin:end]
        begin = end


def _find_word(data: bytes, word: bytes, start: int) -> int:
    return next(m.start() for m in _WORD.finditer(data, start) if m.group() == word)


def recode(ids: np.ndarray, table: np.ndarray, wanted: int, out: np.ndarray) -> int:
    """Set ``out`` to ``table[ids]``; returns how many of it are ``wanted``."""
    out[:] = table[ids]
    return int(np.count_nonzero(out == wanted))
