"""The words a model knows, their ids and their counts."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fastnplm.errors import SettingsError, VocabularyError
from fastnplm.source import sentence_line
from fastnplm.text import END, RESERVED, START, UNKNOWN, TextSettings, reserved_word, split_words

UNKNOWN_ID, START_ID, END_ID = 0, 1, 2
MAX_WORDS = 2**31 - 1  # ids are int32


_FILE = re.compile(rb"(?:[^\t\n]+\t[0-9]{1,19}\n)+")


class Vocabulary:
    """Words with an id each, and how often each was seen in the training text.

    Built from text, ids are: ``<unk>`` 0, ``<s>`` 1, ``</s>`` 2, then words by falling count, ties
    by code point. A vocabulary made by hand (`from_words`) may have any order and no ``<unk>``.
    ``vocabulary[word]`` is the word's id, the id of ``<unk>`` for an unknown one.

    Attributes
    ----------
    words : list of str, by id
    counts : int64 (V,); of ``<unk>`` the tokens that became it, of ``</s>`` the sentences, of
        ``<s>`` 0
    settings : TextSettings, how text becomes these words
    fingerprint : str, hexadecimal SHA-256 of the words in order and of how text is split
    """

    def __init__(
        self,
        words: Sequence[str],
        counts: Sequence[int] | np.ndarray | None = None,
        settings: TextSettings | None = None,
    ) -> None:
        self.words = list(words)
        self.counts = np.zeros(len(self.words), np.int64) if counts is None else _as_counts(counts)
        self.settings = settings or TextSettings()
        _check_words(self.words, self.counts)

    @classmethod
    def trusted(cls, words: bytes, counts: np.ndarray, settings: TextSettings) -> "Vocabulary":
        """A vocabulary of what is known to be different words, UTF-8 with line ends between them;
        counts int64. Nothing is checked, and the words become strings when they are asked for."""
        made = cls.__new__(cls)
        made._spelled, made.counts, made.settings = words, counts, settings
        return made

    @classmethod
    def from_words(
        cls,
        words: Iterable[str],
        counts: Sequence[int] | np.ndarray | None = None,
        settings: TextSettings | None = None,
    ) -> "Vocabulary":
        """A vocabulary with exactly these words in this order.

        ``<s>`` and ``</s>`` must be among them; without ``<unk>`` an unknown word is an error.

        Raises
        ------
        VocabularyError
            If a word is doubled, empty, not text or holds a separator, or counts do not fit.
        """
        return cls(list(words), counts, settings)

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        min_count: int = 3,
        max_vocab: int | None = None,
        settings: TextSettings | None = None,
        sentences: int = 0,
    ) -> "Vocabulary":
        """Keep the words seen ``min_count`` times or more, at most ``max_vocab`` ids in all.

        A count given for ``<unk>`` (literal ones in the text) is kept and those of the dropped
        words are added to it; ``sentences`` is the count of ``</s>``.

        Raises
        ------
        VocabularyError
            If nothing is left: it names the threshold, the highest count and the number of types.
        """
        check_limits(min_count, max_vocab)
        types = {word: int(count) for word, count in counts.items() if word not in RESERVED}
        kept = [(word, count) for word, count in types.items() if count >= min_count]
        if not kept:
            raise nothing_kept(min_count, max(types.values(), default=0), len(types))
        kept.sort(key=lambda item: (-item[1], item[0]))
        if max_vocab is not None:
            kept = kept[: max_vocab - len(RESERVED)]
        unknown = int(counts.get(UNKNOWN, 0)) + sum(types.values()) - sum(c for _, c in kept)
        words = [*RESERVED, *(word for word, _ in kept)]
        return cls(words, [unknown, 0, sentences, *(count for _, count in kept)], settings)

    @cached_property
    def words(self) -> list[str]:
        """The words, by id."""
        return self._spelled.decode().split("\n")

    @cached_property
    def _spelled(self) -> bytes:
        return "\n".join(self.words).encode()

    def __len__(self) -> int:
        return len(self.counts)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} words, fingerprint {self.fingerprint[:12]})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.fingerprint == other.fingerprint and bool(
            np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: id for id, word in enumerate(self.words)}

    @cached_property
    def unk_id(self) -> int | None:
        """Id of ``<unk>``, None in a vocabulary without it."""
        return self._ids.get(UNKNOWN)

    @cached_property
    def start_id(self) -> int:
        """Id of ``<s>``."""
        return self._ids[START]

    @cached_property
    def end_id(self) -> int:
        """Id of ``</s>``."""
        return self._ids[END]

    @cached_property
    def fingerprint(self) -> str:
        head = json.dumps(self.settings.splitting, sort_keys=True).encode()
        return hashlib.sha256(head + b"\n" + self._spelled).hexdigest()

    def _find(self, word: str) -> int | None:
        found = self._ids.get(word)
        if found is None and not self.settings.plain:
            found = self._ids.get(self.settings.word(word))
        return found

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self._find(word) is not None

    def __getitem__(self, word: str) -> int:
        found = self._find(word)
        if found is None:
            found = self.unk_id
        if found is None:
            raise VocabularyError(
                f"the word {word!r} is not among the {len(self):,} of this vocabulary, which has "
                "no <unk> to stand for it"
            )
        return found

    def encode(self, sentence: str | Iterable[str]) -> np.ndarray:
        """Ids of the words of one sentence; nothing is added at its start or end.

        A string is normalised, lower-cased and split as the training text was; a list is taken as
        words (normalised and lower-cased, not segmented).

        Returns
        -------
        int32 array, one id a word

        Raises
        ------
        TextError
            For a line end inside the sentence, or a literal ``<s>`` or ``</s>`` where
            ``settings.reserved`` says ``reject``.
        VocabularyError
            For an unknown word, when there is no ``<unk>``.
        """
        line = sentence_line(sentence, "sentence")
        words = self.settings.words(line) if isinstance(sentence, str) else split_words(line)
        if START in words or END in words:
            if self.settings.reserved == "reject":
                raise reserved_word(START if START in words else END, "sentence")
            if self.settings.reserved == "whitespace":
                words = [word for word in words if word not in (START, END)]
        return np.array([self[word] for word in words], np.int32)

    def save(self, path: str | os.PathLike) -> str:
        """Write ``word TAB count`` lines, one a word, by id.

        The first line has a third field: the text settings and a checksum, so that the file alone
        says how text is split and a damaged copy is refused. The file appears whole or not at all.
        Returns the hexadecimal SHA-256 of the file.
        """
        counts = self.counts.tolist()
        lines = "".join(
            [f"{word}\t{count}\n" for word, count in zip(self.words, counts, strict=True)]
        )
        return write_lines(path, lines.encode(), self.settings)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Vocabulary":
        """Read what `save` wrote, or a hand-made file of ``word TAB count`` lines.

        Raises
        ------
        VocabularyError
            If the file is missing, cut short, damaged or not such a file.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise VocabularyError(f"{path}: cannot be read: {error.strerror or error}") from error
        if not data.endswith(b"\n"):
            raise VocabularyError(f"{path}: the last line has no end; the file is cut short")
        first, _, rest = data.partition(b"\n")
        settings = TextSettings()
        if first.count(b"\t") == 2:
            first, _, header = first.rpartition(b"\t")
            settings = _read_settings(header, path)
            data = first + b"\n" + rest
            if _header(settings, data) != header:
                raise VocabularyError(
                    f"{path}: the words are not those its checksum was made of; the file is "
                    "damaged or was edited (remove the third field of line 1 to accept an edit)"
                )
        if not _FILE.fullmatch(data):
            raise _bad_line(data, path)
        try:
            fields = data.decode().replace("\t", "\n").split("\n")[:-1]
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise VocabularyError(f"{path}:{line}: not UTF-8; not a vocabulary file") from error
        words, counts = fields[::2], [int(count) for count in fields[1::2]]
        try:
            return cls(words, counts, settings)
        except VocabularyError as error:
            raise VocabularyError(f"{path}: {error}") from error


def write_lines(
    path: str | os.PathLike, lines: bytes, settings: TextSettings, durable: bool = True
) -> str:
    """What `Vocabulary.save` does, with the ``word TAB count`` lines at hand."""
    digest = hashlib.sha256()
    first, _, rest = lines.partition(b"\n")
    temporary = Path(f"{os.fspath(path)}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            for data in (first + b"\t" + _header(settings, lines) + b"\n", rest):
                file.write(data)
                digest.update(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return digest.hexdigest()


def _bad_line(data: bytes, path: Any) -> VocabularyError:
    for number, line in enumerate(data.split(b"\n"), 1):
        if not _FILE.fullmatch(line + b"\n"):
            text = line[:60].decode("utf-8", "backslashreplace")
            return VocabularyError(
                f"{path}:{number}: expected a word, a tab and its count, got {text!r}"
            )
    raise AssertionError("every line is as it should be")


def _header(settings: TextSettings, lines: bytes) -> bytes:
    """The third field of the first line: text settings, and a checksum of them and of the rest."""
    head = json.dumps(settings.as_dict(), sort_keys=True).encode()
    checksum = hashlib.sha256(head + b"\n" + lines).hexdigest()
    return b'{"checksum": "%s", "settings": %s}' % (checksum.encode(), head)


def _read_settings(header: bytes, path: Any) -> TextSettings:
    try:
        return TextSettings.from_dict(json.loads(header)["settings"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise VocabularyError(f"{path}:1: the third field is damaged ({error})") from error


def _as_counts(counts: Any) -> np.ndarray:
    try:
        array = np.asarray(counts)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TypeError
        return array.astype(np.int64)
    except (TypeError, OverflowError) as error:
        raise VocabularyError("counts must be a list of whole numbers below 2^63") from error


def _check_words(words: list[str], counts: np.ndarray) -> None:
    if len(counts) != len(words):
        raise VocabularyError(f"{len(words):,} words but {len(counts):,} counts")
    if len(words) > MAX_WORDS:
        raise VocabularyError(f"{len(words):,} words; at most {MAX_WORDS:,} can have an id")
    if len(counts) and counts.min() < 0:
        raise VocabularyError(f"word {words[int(counts.argmin())]!r} has a negative count")
    known = set(words)
    if len(known) < len(words):
        seen: set[str] = set()
        doubled = next(word for word in words if word in seen or seen.add(word))  # type: ignore
        raise VocabularyError(f"the word {doubled!r} occurs twice; each word has one id")
    for word in (START, END):
        if word not in known:
            raise VocabularyError(f"there is no {word}; every vocabulary needs <s> and </s>")
    try:
        all_words = "\n".join(words).encode()
    except UnicodeEncodeError as error:
        raise VocabularyError("a word holds half of a surrogate pair and is not text") from error
    except TypeError as error:
        raise VocabularyError("words must be strings") from error
    # One look at everything is enough: a separator or an empty word changes the number of pieces.
    pieces = all_words.replace(b"\0", b" ").split()
    if len(pieces) != len(words) or pieces != all_words.split(b"\n"):
        wrong = next(word for word in words if split_words(word) != [word])
        raise VocabularyError(f"{wrong!r} is not one word: it is empty or holds white space")


def check_limits(min_count: int, max_vocab: int | None) -> None:
    """Refuse thresholds that make no sense, with a SettingsError."""
    if min_count < 1:
        raise SettingsError(f"min_count={min_count}: must be 1 or more")
    if max_vocab is not None and max_vocab <= len(RESERVED):
        raise SettingsError(
            f"max_vocab={max_vocab}: must be {len(RESERVED) + 1} or more; <unk>, <s> and </s> "
            "count as words"
        )


def nothing_kept(min_count: int, highest: int, types: int) -> VocabularyError:
    if types == 0:
        return VocabularyError("no tokens: there is no word in the text")
    return VocabularyError(
        f"min_count {min_count} removes every word: the most frequent of the {types:,} different "
        f"words occurs {highest:,} times; lower min_count"
    )
