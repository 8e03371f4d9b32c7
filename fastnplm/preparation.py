"""Text to a corpus folder in one reading: ids as words come, the final ids once all are counted."""

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fastnplm import folder as folders
from fastnplm import lexicon as pure
from fastnplm.census import Census
from fastnplm.draft import Draft, TokenFile, flush
from fastnplm.encoding import Damage
from fastnplm.errors import CorpusError, SettingsError, TextError, VocabularyError
from fastnplm.header import HEADER_NAME, TOKENS_NAME, VOCABULARY_NAME, Header, Report
from fastnplm.lexicon import Encoded, Trouble
from fastnplm.source import BLOCK_BYTES, Block, Source, not_utf8, open_source
from fastnplm.text import END, START, TextSettings, clean_block, reserved_word, split_words
from fastnplm.threads import resolve
from fastnplm.version import __version__
from fastnplm.vocabulary import END_ID, Vocabulary, check_limits, write_lines

try:
    from fastnplm import _text as compiled
except ImportError:
    compiled = None

Progress = Callable[[int, int, int], None]

DEFAULT_MEMORY = 1 << 30
LEAST_MEMORY = 1 << 20

_AHEAD = 2  # blocks a worker that are read before the first of them is done

Given = TypeVar("Given")
Made = TypeVar("Made")


@contextmanager
def folder_in_the_making(out: Path | None, overwrite: bool) -> Iterator[Path]:
    """A temporary folder beside ``out`` that takes its place when all went well.

    Raises
    ------
    CorpusError
        Before anything is read, if ``out`` exists (and ``overwrite`` is False, or it is not a
        corpus) or its parent cannot be written to.
    """
    if out is None:
        making = Path(tempfile.mkdtemp(prefix="fastnplm-corpus-"))
        try:
            yield making
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
        return
    try:
        folders.recover(out)
        if out.exists() or out.is_symlink():
            if not overwrite:
                raise CorpusError(f"{out} exists already; choose another name or pass --overwrite")
            if not (out / HEADER_NAME).is_file() and (not out.is_dir() or any(out.iterdir())):
                raise CorpusError(f"{out} is not a corpus folder, so it is not overwritten")
        folders.sweep(out.parent, out.name)
        making, lock = folders.locked_folder(out)
    except OSError as error:
        raise CorpusError(f"cannot write {out}: {out.parent}: {error.strerror or error}") from error
    try:
        yield making
        folders.flush(making)
        folders.put_in_place(making, out)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    finally:
        folders.unlock(lock)


@dataclass
class Preparation:
    """What `fastnplm.corpus.Corpus.prepare` was asked for; `run` does it.

    ``module`` holds the `Lexicon` to use: the compiled one, or `fastnplm.lexicon`.
    """

    settings: TextSettings
    vocabulary: Vocabulary | None = None
    min_count: int = 3
    max_vocab: int | None = None
    threads: int | None = None
    memory: int | None = DEFAULT_MEMORY
    block_bytes: int = BLOCK_BYTES
    progress: Progress | None = None
    module: Any = None

    def __post_init__(self) -> None:
        check_limits(self.min_count, self.max_vocab)
        if self.memory is not None:
            if self.memory < LEAST_MEMORY:
                raise SettingsError(
                    f"memory={self.memory:,} bytes: counting needs {LEAST_MEMORY:,} or more"
                )
            self.block_bytes = min(self.block_bytes, self.memory // 64)
        self.module = self.module or compiled or pure
        # Pure Python runs on one processor whatever the number of threads.
        self.workers = 1 if self.module is pure else resolve(self.threads)

    def run(
        self, *sources: Any, out: Path | None = None, overwrite: bool = False
    ) -> tuple[Path, Vocabulary]:
        """Write a corpus folder; returns where it is, and its vocabulary."""
        with (
            folder_in_the_making(out, overwrite) as folder,
            open_source(
                *sources, encoding=self.settings.encoding, errors=self.settings.errors
            ) as source,
        ):
            try:
                vocabulary = self._write(folder, source, durable=out is not None)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        return (folder if out is None else out), vocabulary

    def _write(self, folder: Path, source: Source, durable: bool) -> Vocabulary:
        report = Report(files=len(source.paths))
        census = Census(self._lexicon, self.workers, self._memory_to_count(), folder)
        draft = Draft(folder / "draft.bin")
        with self._pool() as pool:
            with draft.writing() as write:
                self._encode(source, census, report, write, pool)
            if report.words == 0:
                raise CorpusError(_no_tokens(source, report))
            vocabulary, tables = self.vocabulary, None
            if vocabulary is None:
                choice = census.choose(self.min_count, self.max_vocab)
                choice.counts[END_ID] = report.sentences
                report.types, report.spills = choice.types, census.spilled
                tables = choice.recoding(self.workers)
                size = len(choice.counts)
                unknown = 0
            else:
                size = len(vocabulary)
                unknown = -1 if vocabulary.unk_id is None else vocabulary.unk_id
            dtype = "uint16" if size <= 65_536 else "int32"
            stream = TokenFile(folder / TOKENS_NAME, dtype, durable)
            # Ids are rewritten in other threads while this one spells the words.
            recoded = draft.recoded(tables, stream.dtype, unknown, self.module.recode)
            finals = _in_order(pool, self.workers, lambda work: work(), recoded)
            rewritten = pool.submit(stream.write, finals, pool if self.workers > 1 else None)
            place = folder / VOCABULARY_NAME
            if vocabulary is None:
                checksum = write_lines(place, choice.lines(), self.settings, durable)
                vocabulary = Vocabulary.trusted(choice.words(), choice.counts, self.settings)
            else:
                checksum = vocabulary.save(place)
            rewritten.result()
        for scratch in (draft.path, *folder.glob("generation-*")):
            scratch.unlink()
        report.oov = stream.oov
        header = Header(
            tokens=stream.tokens,
            dtype=dtype,
            words=size,
            fingerprint=vocabulary.fingerprint,
            tokens_checksum=stream.checksum,
            vocabulary_checksum=checksum,
            report=report,
            settings=self.settings.as_dict(),
            made_with={
                "min_count": self.min_count,
                "max_vocab": self.max_vocab,
                "fastnplm": __version__,
            },
        )
        with open(folder / HEADER_NAME, "wb") as page:
            page.write(header.render())
            flush(page, durable)
        return vocabulary

    def _memory_to_count(self) -> int | None:
        return None if self.vocabulary is not None else self.memory

    def _pool(self) -> Any:
        # One thread more: it has the finished stream written while the words are spelled.
        return ThreadPoolExecutor(self.workers + 1, "fastnplm-prepare")

    def _lexicon(self) -> Any:
        choices = {
            "reserved": self.settings.reserved,
            "characters": self.settings.segment == "char",
        }
        if self.vocabulary is None:
            return self.module.Lexicon(**choices)
        return self.module.Lexicon(
            [word.encode() for word in self.vocabulary.words],
            self.vocabulary.unk_id,
            self.vocabulary.start_id,
            self.vocabulary.end_id,
            fixed=True,
            **choices,
        )

    def _encode(
        self,
        source: Source,
        census: Census,
        report: Report,
        write: Callable[[int, np.ndarray], None],
        pool: ThreadPoolExecutor,
    ) -> None:
        """Ids block by block, sentences joined where a block ended inside a line."""
        whole_lines = self.settings.errors == "skip-line" or self.settings.reserved == "map"
        size = source.size()
        open_line = False
        damage = Damage()
        end = np.array([self.vocabulary.end_id if self.vocabulary else END_ID], np.int32)

        def encode(block: Block) -> tuple[Block, Damage, int, Encoded]:
            return block, *encode_block(block, census, self.settings)

        blocks = source.blocks(self.block_bytes, whole_lines)
        for block, mended, generation, encoded in _in_order(pool, self.workers, encode, blocks):
            report.bytes += len(block.data)
            report.lines += encoded.lines
            report.blank_lines += encoded.blank_lines
            report.reserved_words += encoded.reserved
            report.sentences += encoded.sentences
            report.words += len(encoded.ids) - encoded.sentences
            damage.add(mended)
            if block.inside and open_line and encoded.ends_first:
                # The line's words all stood in the block before; only its end came with this one.
                report.blank_lines -= 1
                report.sentences += 1
                write(generation, end)
            open_line = encoded.open_words or (block.inside and open_line and not encoded.lines)
            write(generation, encoded.ids)
            if self.progress:
                self.progress(source.consumed, size, report.words)
        damage.add(source.damage)
        report.replaced_bytes = damage.replaced_bytes
        report.replaced_lines = damage.replaced_lines
        report.skipped_lines = damage.skipped_lines
        report.lines += damage.skipped_lines


def _in_order(
    pool: ThreadPoolExecutor, workers: int, work: Callable[[Given], Made], given: Iterable[Given]
) -> Iterator[Made]:
    """Results in the order of what is given; a few are worked on ahead of the one asked for."""
    if workers == 1:
        yield from map(work, given)
        return
    given = iter(given)
    waiting = deque(pool.submit(work, item) for item in islice(given, _AHEAD * workers))
    try:
        while waiting:
            made = waiting.popleft().result()
            waiting.extend(pool.submit(work, item) for item in islice(given, 1))
            yield made
    finally:
        for future in waiting:
            future.cancel()


def encode_block(
    block: Block, census: Census, settings: TextSettings
) -> tuple[Damage, int, Encoded]:
    """Ids of a block, mended and rewritten first where need be.

    Raises
    ------
    TextError, VocabularyError
        Where the text cannot be read as the settings say, with file and line.
    """
    damage = Damage()
    try:
        if settings.rewrites:
            block, damage = clean_block(block, settings)
        try:
            return damage, *census.encode(block.data)
        except Trouble as trouble:
            if trouble.kind != "utf-8" or settings.errors == "strict":
                raise
            block, damage = clean_block(block, settings)
            return damage, *census.encode(block.data)
    except Trouble as trouble:
        raise _explain(trouble, block) from None


def _explain(trouble: Trouble, block: Block) -> Exception:
    if trouble.kind == "utf-8":
        return not_utf8(block, trouble.position)
    line = block.line + block.data.count(b"\n", 0, trouble.position)
    where = f"{block.name}:{line}"
    rest = block.data[trouble.position : trouble.position + 200].decode("utf-8", "ignore")
    word = split_words(rest)[0]
    if trouble.kind == "reserved":
        return reserved_word(START if word == START else END, where)
    if trouble.kind == "too long":
        return TextError(f"{where}: a word has more than 4,294,967,295 bytes; is this text?")
    return VocabularyError(
        f"{where}: the word {word!r} is not in the vocabulary, which has no <unk> to stand for it"
    )


def _no_tokens(source: Source, report: Report) -> str:
    names = ", ".join(source.names[:3]) + (", ..." if len(source.names) > 3 else "")
    if source.names == ["sentence"]:
        return f"no tokens: there is no word in {report.lines:,} sentences"
    have = "have" if len(source.names) > 1 else "has"
    return f"no tokens: {names} {have} no word in {report.lines:,} lines"
