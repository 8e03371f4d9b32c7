"""A corpus: text as a flat stream of word ids on disk, mapped into memory, with its vocabulary."""

import hashlib
import os
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from fastnplm.errors import CorpusError, SettingsError
from fastnplm.folder import previous_of
from fastnplm.header import TOKENS_NAME, VOCABULARY_NAME, Header, Report
from fastnplm.preparation import DEFAULT_MEMORY, Preparation, Progress
from fastnplm.text import TextSettings
from fastnplm.vocabulary import Vocabulary

_VERIFY_BYTES = 1 << 22


class Corpus:
    """Encoded text. ``len(corpus)`` is its number of tokens, ``</s>`` of each sentence included.

    Made by `prepare` from text or by `open` from a prepared folder; nothing of the stream is read
    until it is used.

    Attributes
    ----------
    vocabulary : Vocabulary
    tokens : uint16 (when the vocabulary has at most 65,536 words) or int32, (len(corpus),); each
        sentence ends with ``</s>``; read-only, memory-mapped
    sentences, oov : int, number of sentences and of ``<unk>`` tokens
    report : Report, what preparing it met (lines, blank lines, replaced bytes, ...)
    folder : Path
    """

    def __init__(self, folder: Path, header: Header, vocabulary: Vocabulary) -> None:
        self.folder = folder
        self.header = header
        self.report: Report = header.report
        self.vocabulary = vocabulary
        self.sentences = header.report.sentences
        self.oov = header.report.oov
        path = folder / TOKENS_NAME
        dtype = "<u2" if header.dtype == "uint16" else "<i4"
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - kept, to notice when it shrinks
            self._check_size()
            mapped = np.memmap(self._file, dtype, "r", shape=(header.tokens,))
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read: {error.strerror or error}") from error
        except CorpusError:
            self._file.close()
            raise
        # A plain array: slices of a memmap cost ten times as much to make.
        self.tokens: np.ndarray = np.asarray(mapped)
        self._finalizer = weakref.finalize(self, _close, self._file, None)

    @classmethod
    def prepare(
        cls,
        *sources: Any,
        out: str | os.PathLike | None = None,
        vocabulary: Vocabulary | None = None,
        min_count: int = 3,
        max_vocab: int | None = None,
        segment: str | None = None,
        lowercase: bool | None = None,
        normalize: str | None = None,
        encoding: str | None = None,
        errors: str | None = None,
        reserved: str | None = None,
        overwrite: bool = False,
        threads: int | None = None,
        memory: int | None = DEFAULT_MEMORY,
        progress: Progress | None = None,
    ) -> "Corpus":
        """Encode text and open the result.

        Parameters
        ----------
        sources : a path, glob or ``-`` (standard input), or several; or one iterable of sentences
            (strings or lists of words), read once
        out : folder to write; None keeps the corpus in a temporary folder until it is closed
        vocabulary : use its words and its text settings; None builds one
        min_count, max_vocab : words seen less often are ``<unk>``; ids at most, the three
            reserved words included. Without effect when a vocabulary is given.
        segment, lowercase, normalize, encoding, errors, reserved : see
            `fastnplm.text.TextSettings`; None takes the vocabulary's, or the default
        threads : processors to use, None for all this process may use
        memory : bytes the counting of words may take; beyond that it goes on on disk, exactly as
            before but slower
        overwrite : replace an existing corpus at ``out``
        progress : called as ``progress(bytes_read, bytes_in_all, words)`` after each block; the
            bytes are those of the files, compressed where they are

        Raises
        ------
        TextError
            Where the text cannot be read: file, line, byte offset.
        CorpusError
            If there is no word in the text, or ``out`` cannot be written or exists.
        VocabularyError
            If ``min_count`` removes every word.
        """
        given = vocabulary.settings if vocabulary is not None else TextSettings()
        settings = given.with_choices(
            segment=segment,
            lowercase=lowercase,
            normalize=normalize,
            encoding=encoding,
            errors=errors,
            reserved=reserved,
        )
        if vocabulary is not None and settings.splitting != given.splitting:
            raise SettingsError(
                f"the vocabulary was built with {given.splitting}; text for it cannot be split "
                f"with {settings.splitting}"
            )
        preparation = Preparation(
            settings=settings,
            vocabulary=vocabulary,
            min_count=min_count,
            max_vocab=max_vocab,
            threads=threads,
            memory=memory,
            progress=progress,
        )
        folder, vocabulary = preparation.run(
            *sources, out=Path(out) if out is not None else None, overwrite=overwrite
        )
        corpus = cls(folder, Header.read(folder), vocabulary)
        if out is None:
            corpus._finalizer.detach()
            corpus._finalizer = weakref.finalize(corpus, _close, corpus._file, folder)
        return corpus

    @classmethod
    def open(cls, folder: str | os.PathLike) -> "Corpus":
        """Open a prepared corpus; sizes, header and vocabulary are checked, the stream is not.

        Raises
        ------
        CorpusError
            If something is missing, cut short or damaged, or the vocabulary is another one.
        """
        folder = Path(folder)
        if previous_of(folder).is_dir() and not folder.exists():
            folder = previous_of(folder)  # a new one is being put in its place
        header = Header.read(folder)
        path = folder / VOCABULARY_NAME
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read: {error.strerror or error}") from error
        if hashlib.sha256(data).hexdigest() != header.vocabulary_checksum:
            raise CorpusError(
                f"{path} is not the vocabulary this corpus was encoded with (or is damaged); "
                "prepare the corpus again"
            )
        vocabulary = Vocabulary.load(path)
        if vocabulary.fingerprint != header.fingerprint or len(vocabulary) != header.words:
            raise CorpusError(f"{path}: its fingerprint is not the one in {folder}/corpus.json")
        return cls(folder, header, vocabulary)

    def __len__(self) -> int:
        return self.header.tokens

    def __repr__(self) -> str:
        return (
            f"Corpus({str(self.folder)!r}: {len(self):,} tokens, {self.sentences:,} sentences, "
            f"{len(self.vocabulary):,} words)"
        )

    @property
    def identity(self) -> str:
        """What tells this stream from others: its checksum. A run is resumed on the same one."""
        return self.header.tokens_checksum

    def __enter__(self) -> "Corpus":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; a corpus kept in a temporary folder is deleted."""
        self.tokens = self.tokens[:0].copy()
        self._finalizer()

    def _check_size(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        expected = self.header.tokens * self.header.item_bytes
        if size != expected:
            raise CorpusError(
                f"{self.folder / TOKENS_NAME} has {size:,} bytes, but {self.header.tokens:,} "
                f"tokens take {expected:,}; it was cut short or changed, prepare the corpus again"
            )

    def check(self) -> None:
        """Notice a stream that shrank since it was opened; costs one system call.

        Reading mapped pages beyond a file's end kills a process, so `fastnplm.batches` asks
        before every batch.

        Raises
        ------
        CorpusError
        """
        if not self._file.closed:
            self._check_size()

    def read_ahead(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        """Have the system read stretches of the stream that will be used soon.

        starts, lengths : int64, positions and numbers of tokens
        """
        if not self._file.closed:
            will_need(self._file, self.header.item_bytes, starts, lengths)

    def verify(self) -> None:
        """Read the whole stream and compare its checksum.

        Raises
        ------
        CorpusError
            If a byte of it is not the one that was written.
        """
        self.check()
        digest = hashlib.sha256()
        with open(self.folder / TOKENS_NAME, "rb") as stream:
            while data := stream.read(_VERIFY_BYTES):
                digest.update(data)
        if digest.hexdigest() != self.header.tokens_checksum:
            raise CorpusError(
                f"{self.folder / TOKENS_NAME} is damaged: its checksum is not the one in "
                "corpus.json; prepare the corpus again"
            )


def will_need(file: Any, item_bytes: int, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Have the system read stretches of a file, given in items, before they are asked for."""
    if hasattr(os, "posix_fadvise"):
        for start, length in zip((starts * item_bytes).tolist(), lengths.tolist(), strict=True):
            os.posix_fadvise(file.fileno(), start, length * item_bytes, os.POSIX_FADV_WILLNEED)


def _close(file: Any, temporary: Path | None) -> None:
    file.close()
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)


def require_same_vocabulary(
    corpus: Corpus, vocabulary: Vocabulary, names: tuple[str, str] | None = None
) -> None:
    """Refuse a corpus whose ids mean other words than the model's.

    Parameters
    ----------
    names : what to call the corpus and the model in the message

    Raises
    ------
    CorpusError
        Naming both, their sizes and fingerprints.
    """
    ours, theirs = corpus.vocabulary, vocabulary
    if ours.fingerprint == theirs.fingerprint:
        return
    corpus_name, model_name = names or (str(corpus.folder), "the model")
    raise CorpusError(
        f"{corpus_name} was encoded with another vocabulary ({len(ours):,} words, "
        f"{ours.fingerprint[:12]}) than that of {model_name} ({len(theirs):,} words, "
        f"{theirs.fingerprint[:12]}); prepare the text again with the model's vocabulary"
    )
