"""n-grams of an encoded corpus, counted: a trie of sorted integer keys, one level an order.

The n-gram (w_1 .. w_k) has the key ``id(w_1 .. w_{k-1}) * V + w_k``, where the id of an n-gram is
its place among the sorted keys of its order, and the id of a single word is the word's own id.
Every prefix and every suffix of an n-gram that occurs also occurs, so ids chain upward from the
words, all words that follow one context lie side by side, and 64 bits are enough for any order.

One ``<s>`` stands before each sentence, as in KenLM: near a sentence's start n-grams are shorter.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastnplm.errors import IdError, SettingsError

__all__ = [
    "CHUNK",
    "Counts",
    "check_ids",
    "count_ngrams",
    "find_ids",
    "first_words",
    "ids_before",
    "sentence_chunks",
]

CHUNK = 1 << 20
"""Tokens handled at a time, so that memory follows the number of n-grams, not of tokens."""

IN_MEMORY = 1 << 25
"""Up to so many tokens, their ids (8 bytes each) are kept in memory while counting."""
IN_CACHE = 1 << 16
"""A level of fewer n-grams is searched in any order; it stays in the processor's cache."""

Ints = NDArray[np.int64]


def sentence_chunks(
    tokens: NDArray[np.integer], end_id: int, size: int = CHUNK
) -> Iterator[NDArray[np.integer]]:
    """Cut a stream into parts of about ``size`` tokens that begin at sentence starts."""
    begin = 0
    while begin < len(tokens):
        stop = min(begin + size, len(tokens))
        while stop < len(tokens):
            # The cut goes after the first sentence end at or beyond the wanted size.
            ends = np.flatnonzero(tokens[stop - 1 : stop - 1 + size] == end_id)
            if len(ends):
                stop += int(ends[0])
                break
            stop = min(stop + size, len(tokens))
        yield tokens[begin:stop]
        begin = stop


def first_words(tokens: NDArray[np.integer], end_id: int) -> NDArray[np.bool_]:
    """Which tokens begin a sentence, in a stream that begins with one."""
    firsts = np.empty(len(tokens), dtype=np.bool_)
    firsts[:1] = True
    np.equal(tokens[:-1], end_id, out=firsts[1:])
    return firsts


def ids_before(ids: Ints, firsts: NDArray[np.bool_], root: int) -> Ints:
    """For each token the id of the n-gram that ends just before it in its sentence.

    ids : of the n-grams that end at each token; firsts : from ``first_words``; root : what stands
    before a first word: ``<s>`` for single words, -1 for longer n-grams
    """
    contexts = np.empty_like(ids)
    contexts[1:] = ids[:-1]
    contexts[firsts] = root
    return contexts


def find_ids(keys: Ints, parents: Ints, words: NDArray[np.integer], vocabulary_size: int) -> Ints:
    """Ids of the n-grams (parent, word), -1 where there is none or the parent is -1."""
    if not len(keys):
        return np.full(len(words), -1, dtype=np.int64)
    wanted = parents * vocabulary_size + words
    if len(keys) < IN_CACHE:
        return _look_up(keys, wanted)
    # Looked up in order, neighbours share their cache lines: three times faster than at random.
    order = np.argsort(wanted)
    ids = np.empty_like(wanted)
    ids[order] = _look_up(keys, wanted[order])
    return ids


def _look_up(keys: Ints, wanted: Ints) -> Ints:
    places = np.searchsorted(keys, wanted)
    np.minimum(places, len(keys) - 1, out=places)
    places[keys[places] != wanted] = -1
    return places


@dataclass(frozen=True)
class Counts:
    """Raw counts of all n-grams up to an order.

    ``keys[k - 1]`` holds the sorted keys of the n-grams of k words and ``counts[k - 1]`` how often
    each occurs, both int64. The level of single words has a row for every word of the vocabulary
    (its keys are 0 .. V-1); its count of ``<s>`` is the number of sentences.
    """

    vocabulary_size: int
    start_id: int
    end_id: int
    keys: list[Ints]
    counts: list[Ints]

    @property
    def order(self) -> int:
        return len(self.keys)

    def parents(self, k: int) -> Ints:
        """Ids of the first k - 1 words of each n-gram of k words (k at least 2)."""
        return self.keys[k - 1] // self.vocabulary_size

    def words(self, k: int) -> Ints:
        """The last word of each n-gram of k words."""
        return self.keys[k - 1] % self.vocabulary_size

    def suffixes(self) -> list[Ints]:
        """``[k - 1][i]``: the id of n-gram i of k words without its first word (nothing for 1)."""
        suffixes: list[Ints] = [np.empty(0, dtype=np.int64)]
        for k in range(2, self.order + 1):
            words = self.words(k)
            if k == 2:
                suffixes.append(words)
                continue
            shorter = suffixes[-1][self.parents(k)]
            suffixes.append(find_ids(self.keys[k - 2], shorter, words, self.vocabulary_size))
        return suffixes

    def starts(self) -> list[NDArray[np.bool_]]:
        """``[k - 1][i]``: whether n-gram i of k words begins with ``<s>``."""
        starts = [self.keys[0] == self.start_id]
        for k in range(2, self.order + 1):
            starts.append(starts[-1][self.parents(k)])
        return starts


def count_ngrams(
    tokens: NDArray[np.integer],
    vocabulary_size: int,
    start_id: int,
    end_id: int,
    order: int,
    chunk: int = CHUNK,
) -> Counts:
    """Count all n-grams of 1 to ``order`` words; none crosses the border of a sentence.

    ``tokens`` is the flat stream of an encoded corpus, each sentence ended by ``end_id``. Memory
    grows with the number of different n-grams, not with the number of tokens.

    Raises
    ------
    SettingsError
        If ``order`` is less than 1.
    IdError
        If a token lies outside [0, vocabulary_size) or is ``start_id``, which is never stored.
    """
    if order < 1:
        raise SettingsError(f"order is {order}; an n-gram model needs an order of at least 1")
    single = np.zeros(vocabulary_size, dtype=np.int64)
    check_ids(tokens, vocabulary_size, start_id)
    for part in sentence_chunks(tokens, end_id, chunk):
        single += np.bincount(part, minlength=vocabulary_size)
        single[start_id] += np.count_nonzero(part[:-1] == end_id) + 1
    keys: list[Ints] = [np.arange(vocabulary_size, dtype=np.int64)]
    counts: list[Ints] = [single]
    # The n-gram that ends at each token, one order after the other, in the same place.
    ids = _stream_of_ids(len(tokens))
    ids[:] = tokens
    for k in range(2, order + 1):
        root = start_id if k == 2 else -1
        runs: list[tuple[Ints, Ints]] = []
        for part, own in _parts(tokens, ids, end_id, chunk):
            contexts = ids_before(own, first_words(part, end_id), root)
            inside = contexts >= 0
            found = contexts[inside] * vocabulary_size + part[inside]
            runs.append(np.unique(found, return_counts=True))
            # Runs of like size are merged, so each key is merged about log(runs) times.
            while len(runs) > 1 and 2 * len(runs[-1][0]) > len(runs[-2][0]):
                runs.append(merge(runs.pop(), runs.pop()))
        while len(runs) > 1:
            runs.append(merge(runs.pop(), runs.pop()))
        level, often = runs[0] if runs else (ids[:0], ids[:0])
        keys.append(level)
        counts.append(often.astype(np.int64, copy=False))
        if k < order:
            for part, own in _parts(tokens, ids, end_id, chunk):
                contexts = ids_before(own, first_words(part, end_id), root)
                own[:] = find_ids(level, contexts, part, vocabulary_size)
    return Counts(vocabulary_size, start_id, end_id, keys, counts)


def _stream_of_ids(length: int) -> Ints:
    """Room for an id a token: in memory, or for a large corpus in a nameless temporary file."""
    if length <= IN_MEMORY:
        return np.empty(length, dtype=np.int64)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype=np.int64, mode="w+", shape=(length,))


def _parts(
    tokens: NDArray[np.integer], ids: Ints, end_id: int, size: int
) -> Iterator[tuple[NDArray[np.integer], Ints]]:
    """Chunks of the stream that begin at sentence starts, each with its ids (a view)."""
    begin = 0
    for part in sentence_chunks(tokens, end_id, size):
        yield part, ids[begin : begin + len(part)]
        begin += len(part)


def merge(left: tuple[Ints, Ints], right: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Two sorted runs of (keys, counts) as one, counts of equal keys added."""
    keys = np.concatenate((left[0], right[0]))
    counts = np.concatenate((left[1], right[1]))
    places = np.argsort(keys, kind="stable")
    keys, counts = keys[places], counts[places]
    if not len(keys):
        return keys, counts
    firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[firsts], np.add.reduceat(counts, firsts)


def check_ids(tokens: NDArray[np.integer], vocabulary_size: int, start_id: int) -> None:
    """Refuse a stream with ids outside the vocabulary, or with ``<s>``, which is never stored."""
    if tokens.dtype.kind not in "iu":
        raise IdError(f"tokens are of type {tokens.dtype}; ids are integers")
    for begin in range(0, len(tokens), CHUNK):
        part = tokens[begin : begin + CHUNK]
        bad = np.flatnonzero((part < 0) | (part >= vocabulary_size) | (part == start_id))
        if not len(bad):
            continue
        value, place = int(part[bad[0]]), begin + int(bad[0])
        if value == start_id:
            raise IdError(
                f"id {value} (<s>) at position {place} of a token stream; "
                "<s> is never stored: sentences are divided by </s>"
            )
        raise IdError(
            f"id {value} at position {place} lies outside the vocabulary of {vocabulary_size} words"
        )
