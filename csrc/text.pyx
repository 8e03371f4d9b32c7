# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The lexicon of `fastnplm.lexicon`, compiled: bytes of text in, ids out, the GIL released."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

import numpy as np

from fastnplm.lexicon import RESERVED_WORDS, Encoded, Trouble

cdef extern from "lexicon.h" nogil:
    ctypedef struct lexicon:
        size_t words
    ctypedef struct reading:
        int32_t unknown, start, end
        int fixed, reserved, characters
    ctypedef struct tally:
        Py_ssize_t tokens, lines, blank_lines, sentences, reserved
        int ends_first, open_words
        Py_ssize_t position
    int TEXT_OK, TEXT_NO_MEMORY, TEXT_BAD_UTF8, TEXT_RESERVED, TEXT_UNKNOWN, TEXT_TOO_LONG
    int lexicon_begin(lexicon *table)
    void lexicon_end(lexicon *table)
    void lexicon_counts(const lexicon *table, int64_t *counts)
    void lexicon_ends(const lexicon *table, int64_t *ends)
    const char *lexicon_word(const lexicon *table, int32_t id, size_t *length)
    size_t lexicon_memory(const lexicon *table)
    int lexicon_add(lexicon *table, const char *letters, const int64_t *ends,
                    const int64_t *counts, Py_ssize_t words, int64_t least, uint64_t part,
                    uint64_t parts, int32_t *ids)
    void lexicon_find(const lexicon *table, const char *letters, const int64_t *ends,
                      Py_ssize_t words, int32_t *ids)
    ctypedef struct words:
        pass
    int lexicon_read(lexicon *table, words *w, const char *text, Py_ssize_t size,
                     const reading *how, int32_t *ids, tally *seen)
    size_t lexicon_lines(const lexicon *table, const int32_t *ids, const int64_t *counts,
                         Py_ssize_t size, char *out)
    int lexicon_order(const lexicon *table, int32_t first, int64_t least, int32_t *order,
                      Py_ssize_t *found)
    Py_ssize_t recode_16(const int32_t *ids, Py_ssize_t size, const int32_t *table,
                         Py_ssize_t words, int32_t wanted, uint16_t *out, Py_ssize_t *met)
    Py_ssize_t recode_32(const int32_t *ids, Py_ssize_t size, const int32_t *table,
                         Py_ssize_t words, int32_t wanted, int32_t *out, Py_ssize_t *met)

_POLICIES = {"reject": 0, "whitespace": 1, "map": 2}
_SEPARATORS = b" \t\n\r\v\f\0"


cdef int _check_ends(const unsigned char[::1] letters, const int64_t[::1] ends) except -1:
    cdef int64_t before = 0, size = letters.shape[0], most = 0xFFFFFFFF
    cdef Py_ssize_t word
    for word in range(ends.shape[0]):
        if ends[word] <= before or ends[word] > size or ends[word] - before > most:
            raise ValueError(f"word {word} is empty or ends outside the letters")
        before = ends[word]
    return 0


cdef object trouble(int code, Py_ssize_t position):
    kinds = {TEXT_BAD_UTF8: "utf-8", TEXT_RESERVED: "reserved", TEXT_UNKNOWN: "unknown",
             TEXT_TOO_LONG: "too long"}
    if code in kinds:
        return Trouble(kinds[code], position)
    return MemoryError("no memory for more words")


cdef class Lexicon:
    """See `fastnplm.lexicon.Lexicon`. One thread at a time may use a table."""

    cdef lexicon table
    cdef reading how
    # Room for the words of a block and their ids: kept, for memory that was touched before.
    cdef words *found
    cdef int32_t *found_ids
    cdef Py_ssize_t room
    cdef readonly int end

    def __cinit__(self):
        self.found = <words *>malloc(sizeof(words))
        if not self.found or lexicon_begin(&self.table):
            raise MemoryError("no memory for a table of words")

    def __dealloc__(self):
        lexicon_end(&self.table)
        free(self.found)
        free(self.found_ids)

    def __init__(self, words=RESERVED_WORDS, unknown=0, int start=1, int end=2, bint fixed=False,
                 str reserved="reject", bint characters=False):
        words = list(words)
        if self.table.words:
            raise RuntimeError("a lexicon is filled once")
        if not (0 <= start < len(words) and 0 <= end < len(words)) or (
            unknown is not None and not 0 <= unknown < len(words)
        ):
            raise ValueError("the ids of the reserved words must be places in words")
        self.how.unknown = -1 if unknown is None else unknown
        self.how.start = start
        self.how.end = self.end = end
        self.how.reserved = _POLICIES[reserved]
        self.how.characters = characters
        ends = np.cumsum([len(word) for word in words], dtype=np.int64)
        ids = self.add(b"".join(words), ends, np.zeros(len(words), np.int64))
        if len(self) != len(words):
            raise ValueError("a word occurs twice")
        self.how.fixed = fixed

    def __len__(self):
        return self.table.words

    def memory(self):
        return lexicon_memory(&self.table)

    def letters(self):
        """All words behind one another, bytes."""
        cdef size_t id, length, size = 0
        cdef const char *word
        cdef char *out
        for id in range(self.table.words):
            lexicon_word(&self.table, <int32_t>id, &length)
            size += length
        made = PyBytes_FromStringAndSize(NULL, size)
        out = PyBytes_AS_STRING(made)
        for id in range(self.table.words):
            word = lexicon_word(&self.table, <int32_t>id, &length)
            memcpy(out, word, length)
            out += length
        return made

    def ends(self):
        """Where each word ends in `letters`, int64."""
        found = np.empty(max(1, len(self)), np.int64)
        cdef int64_t[::1] view = found
        lexicon_ends(&self.table, &view[0])
        return found[:len(self)]

    def counts(self):
        found = np.zeros(max(1, len(self)), np.int64)
        cdef int64_t[::1] view = found
        lexicon_counts(&self.table, &view[0])
        return found[:len(self)]

    def spell(self, const int32_t[::1] ids):
        """The words with these ids, as str."""
        cdef Py_ssize_t place
        cdef size_t length
        cdef const char *word
        cdef list words = []
        for place in range(ids.shape[0]):
            if not 0 <= <Py_ssize_t>ids[place] < <Py_ssize_t>self.table.words:
                raise IndexError(f"id {ids[place]} at {place}: there are {len(self)} words")
            word = lexicon_word(&self.table, ids[place], &length)
            words.append(PyUnicode_DecodeUTF8(word, length, NULL))
        return words

    def add(self, const unsigned char[::1] letters, const int64_t[::1] ends,
            const int64_t[::1] counts, uint64_t part=0, uint64_t parts=1, int64_t least=0):
        cdef Py_ssize_t words = ends.shape[0]
        cdef int code
        if counts.shape[0] != words or part >= parts:
            raise ValueError("each word needs a count, and part must be below parts")
        _check_ends(letters, ends)
        ids = np.empty(words, np.int32)
        cdef int32_t[::1] view = ids
        if words:
            with nogil:
                code = lexicon_add(&self.table, <const char *>&letters[0], &ends[0], &counts[0],
                                   words, least, part, parts, &view[0])
            if code:
                raise MemoryError("no memory for more words")
        return ids

    def find(self, const unsigned char[::1] letters, const int64_t[::1] ends):
        cdef Py_ssize_t words = ends.shape[0]
        _check_ends(letters, ends)
        ids = np.empty(words, np.int32)
        cdef int32_t[::1] view = ids
        if words:
            with nogil:
                lexicon_find(&self.table, <const char *>&letters[0], &ends[0], words, &view[0])
        return ids

    def order(self, int first, int64_t least):
        cdef Py_ssize_t found = 0
        cdef int code
        order = np.empty(max(1, len(self)), np.int32)
        cdef int32_t[::1] view = order
        if first < 0:
            raise ValueError("first must not be negative")
        with nogil:
            code = lexicon_order(&self.table, first, least, &view[0], &found)
        if code:
            raise MemoryError("no memory to sort the words")
        return order[:found]

    def lines(self, const int32_t[::1] ids, counts=None):
        """The words with these ids, a line each, as bytes; with a tab and its count, if given."""
        cdef Py_ssize_t size = ids.shape[0], place
        cdef const int64_t[::1] met
        cdef const int64_t *first = NULL
        cdef size_t room = 0, length
        cdef char *out
        if counts is not None:
            met = counts
            if met.shape[0] != size:
                raise ValueError("each word needs a count")
            for place in range(size):
                if met[place] < 0:
                    raise ValueError(f"count {met[place]} at {place} is negative")
        if size == 0:
            return b""
        for place in range(size):
            if not 0 <= <Py_ssize_t>ids[place] < <Py_ssize_t>self.table.words:
                raise IndexError(f"id {ids[place]} at {place}: there are {len(self)} words")
        if counts is not None:
            first = &met[0]
        for place in range(size):
            lexicon_word(&self.table, ids[place], &length)
            room += length + 21
        out = <char *>malloc(room)
        if not out:
            raise MemoryError("no memory for the words")
        try:
            with nogil:
                room = lexicon_lines(&self.table, &ids[0], first, size, out)
            return PyBytes_FromStringAndSize(out, room)
        finally:
            free(out)

    def encode(self, bytes data):
        cdef Py_ssize_t size = len(data)
        cdef const char *text = PyBytes_AS_STRING(data)
        cdef tally seen
        cdef int code
        cdef int32_t[::1] view
        if size and data[size - 1 :] not in _SEPARATORS:
            raise ValueError("a block must end with a separator")
        if self.room <= size:
            free(self.found_ids)
            self.room = size + 1
            self.found_ids = <int32_t *>malloc(self.room * sizeof(int32_t))
            if not self.found_ids:
                self.room = 0
                raise MemoryError("no memory for the ids of a block")
        with nogil:
            code = lexicon_read(&self.table, self.found, text, size, &self.how, self.found_ids,
                                &seen)
        if code != TEXT_OK:
            raise trouble(code, seen.position)
        ids = np.empty(seen.tokens, np.int32)
        view = ids
        if seen.tokens:
            memcpy(&view[0], self.found_ids, seen.tokens * sizeof(int32_t))
        return Encoded(ids, seen.lines, seen.blank_lines, seen.sentences, bool(seen.ends_first),
                       bool(seen.open_words), seen.reserved)


ctypedef fused token:
    uint16_t
    int32_t


def recode(const int32_t[::1] ids, const int32_t[::1] table, int wanted, token[::1] out):
    """Set ``out`` to ``table[ids]``; returns how many of it are ``wanted``."""
    cdef Py_ssize_t size = ids.shape[0], place, met = 0
    if out.shape[0] != size:
        raise ValueError(f"{size} ids do not fit {out.shape[0]} places")
    if size == 0:
        return 0
    if table.shape[0] == 0:
        raise IndexError("the table is empty")
    with nogil:
        if token is uint16_t:
            place = recode_16(&ids[0], size, &table[0], table.shape[0], wanted, &out[0], &met)
        else:
            place = recode_32(&ids[0], size, &table[0], table.shape[0], wanted, &out[0], &met)
    if place < size:
        raise IndexError(f"id {ids[place]} at {place}: the table has {table.shape[0]} entries")
    return met
