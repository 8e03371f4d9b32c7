"""Words of a block of text to ids: the table behind preparing a corpus, in pure Python.

`fastnplm._text.Lexicon` is the same thing compiled; both must give the same ids for the same text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastnplm.text import END, START, UNKNOWN

_WORD = re.compile(rb"[^\x00\t\n\x0b\x0c\r ]+")
_START, _END, _UNKNOWN = START.encode(), END.encode(), UNKNOWN.encode()
RESERVED_WORDS = (_UNKNOWN, _START, _END)

#: What a word costs here beyond its own bytes: a bytes object, a place in the table, a count.
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
    """

    def __init__(
        self,
        words: Sequence[bytes] = RESERVED_WORDS,
        unknown: int | None = 0,
        start: int = 1,
        end: int = 2,
        fixed: bool = False,
        reserved: str = "reject",
    ) -> None:
        self._ids: _Ids = _Ids((word, id) for id, word in enumerate(words))
        if fixed:
            self._ids.otherwise = -1 if unknown is None else unknown
        self._unknown = unknown
        self.end = end
        self._reserved = reserved
        self._counts = np.zeros(max(1024, len(words)), np.int64)
        self._letters = 0

    def __len__(self) -> int:
        return len(self._ids)

    def memory(self) -> int:
        """Bytes this table takes, roughly."""
        return len(self._ids) * _WORD_BYTES + self._letters

    def words(self) -> list[bytes]:
        return list(self._ids)

    def counts(self) -> np.ndarray:
        """int64, how often each word was met; counts ``</s>`` at each sentence's end."""
        self._grow()
        return self._counts[: len(self._ids)].copy()

    def count_end(self) -> None:
        """Count one sentence end that no block held."""
        self._counts[self.end] += 1

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
        if _START in data or _END in data:
            encoded = self._encode_lines(data)
        else:
            encoded = self._encode_at_once(data)
        if self._unknown is None and len(encoded.ids) and int(encoded.ids.min()) < 0:
            raise Trouble("unknown", self._first_unknown(data))
        self._letters += sum(map(len, list(self._ids)[before:])) if len(self._ids) > before else 0
        self._grow()
        met = np.bincount(encoded.ids, minlength=1)
        self._counts[: len(met)] += met
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
        return Encoded(ids[~blank] if blanks else ids, lines, blanks, ends_first, open_words, 0)

    def _encode_lines(self, data: bytes) -> Encoded:
        ids: list[int] = []
        position = blanks = reserved = lines = 0
        ends_first = False
        found = 0
        pieces = data.replace(b"\0", b" ").split(b"\n")
        for number, piece in enumerate(pieces):
            begin = len(ids)
            for word in piece.split():
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
            found = len(ids) - begin
            position += len(piece) + 1
            if number < len(pieces) - 1:
                lines += 1
                if not found:
                    blanks += 1
                    ends_first |= number == 0
                elif ids[-1] != self.end:
                    ids.append(self.end)
        open_words = bool(found) and ids[-1] != self.end
        return Encoded(np.array(ids, np.int32), lines, blanks, ends_first, open_words, reserved)

    def _first_unknown(self, data: bytes) -> int:
        return next(m.start() for m in _WORD.finditer(data) if m.group() not in self._ids)


class _Ids(dict):
    """A new word gets the next id, or ``otherwise`` where the words are fixed."""

    otherwise: int | None = None

    def __missing__(self, word: bytes) -> int:
        if self.otherwise is not None:
            return self.otherwise
        self[word] = id = len(self)
        return id


def _find_word(data: bytes, word: bytes, start: int) -> int:
    return next(m.start() for m in _WORD.finditer(data, start) if m.group() == word)
