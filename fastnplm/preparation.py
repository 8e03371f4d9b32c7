"""Text to a corpus folder in one reading: ids as words come, the final ids once all are counted."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastnplm import folder as folders
from fastnplm.errors import CorpusError, TextError, VocabularyError
from fastnplm.header import HEADER_NAME, TOKENS_NAME, VOCABULARY_NAME, Header, Report
from fastnplm.lexicon import Encoded, Lexicon, Trouble
from fastnplm.source import BLOCK_BYTES, Block, Source, not_utf8, open_source
from fastnplm.text import (
    END,
    RESERVED,
    START,
    TextSettings,
    clean_block,
    reserved_word,
    split_words,
)
from fastnplm.version import __version__
from fastnplm.vocabulary import Vocabulary, check_limits, nothing_kept

Progress = Callable[[int, int, int], None]

_REMAP_IDS = 1 << 20


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


def prepare_corpus(
    *sources: Any,
    out: Path | None,
    vocabulary: Vocabulary | None,
    min_count: int,
    max_vocab: int | None,
    settings: TextSettings,
    overwrite: bool = False,
    progress: Progress | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Path:
    """Write a corpus folder and return where it is; see `fastnplm.corpus.Corpus.prepare`."""
    check_limits(min_count, max_vocab)
    with (
        folder_in_the_making(out, overwrite) as folder,
        open_source(*sources, encoding=settings.encoding, errors=settings.errors) as source,
    ):
        try:
            _prepare_in(
                folder,
                source,
                vocabulary,
                min_count,
                max_vocab,
                settings,
                progress,
                block_bytes,
                durable=out is not None,
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder if out is None else out


def _prepare_in(
    folder: Path,
    source: Source,
    vocabulary: Vocabulary | None,
    min_count: int,
    max_vocab: int | None,
    settings: TextSettings,
    progress: Progress | None,
    block_bytes: int,
    durable: bool,
) -> None:
    report = Report(files=len(source.paths))
    lexicon = _lexicon(vocabulary, settings)
    draft = folder / "draft.bin"
    with open(draft, "wb") as file:
        for ids in _encode(source, lexicon, settings, report, progress, block_bytes):
            ids.tofile(file)
    counts = lexicon.counts()
    if report.words == 0:
        raise CorpusError(
            f"no tokens: {_names(source)} {'have' if len(source.names) > 1 else 'has'} no word in "
            f"{report.lines:,} lines"
        )
    if vocabulary is None:
        report.types = sum(1 for count in counts[len(RESERVED) :] if count)
        vocabulary, final = _choose(lexicon, counts, min_count, max_vocab, settings)
    else:
        final = np.arange(len(vocabulary), dtype=np.int32)
    dtype = "uint16" if len(vocabulary) <= 65_536 else "int32"
    tokens, oov, checksum = _finish(draft, folder / TOKENS_NAME, final, dtype, vocabulary.unk_id)
    draft.unlink()
    report.oov = oov
    vocabulary.save(folder / VOCABULARY_NAME)
    header = Header(
        tokens=tokens,
        dtype=dtype,
        words=len(vocabulary),
        fingerprint=vocabulary.fingerprint,
        tokens_checksum=checksum,
        vocabulary_checksum=hashlib.sha256((folder / VOCABULARY_NAME).read_bytes()).hexdigest(),
        report=report,
        settings=settings.as_dict(),
        made_with={"min_count": min_count, "max_vocab": max_vocab, "fastnplm": __version__},
    )
    with open(folder / HEADER_NAME, "wb") as page:
        page.write(header.render())
        if durable:
            page.flush()
            os.fsync(page.fileno())
    if durable:
        with open(folder / TOKENS_NAME, "rb") as stream:
            os.fsync(stream.fileno())


def _names(source: Source) -> str:
    names = ", ".join(source.names[:3]) + (", ..." if len(source.names) > 3 else "")
    return "the sentences" if source.names == ["sentence"] else names


def _lexicon(vocabulary: Vocabulary | None, settings: TextSettings) -> Lexicon:
    if vocabulary is None:
        return Lexicon(reserved=settings.reserved)
    return Lexicon(
        [word.encode() for word in vocabulary.words],
        vocabulary.unk_id,
        vocabulary.start_id,
        vocabulary.end_id,
        fixed=True,
        reserved=settings.reserved,
    )


def _encode(
    source: Source,
    lexicon: Lexicon,
    settings: TextSettings,
    report: Report,
    progress: Progress | None,
    block_bytes: int,
) -> Iterator[np.ndarray]:
    """Ids block by block, sentences joined where a block ended inside a line."""
    whole_lines = settings.errors == "skip-line" or settings.reserved == "map"
    size = source.size()
    open_line = False
    end = np.array([lexicon.end], np.int32)
    for block in source.blocks(block_bytes, whole_lines):
        report.bytes += len(block.data)
        encoded = _encode_block(block, lexicon, source, settings)
        report.lines += encoded.lines
        report.blank_lines += encoded.blank_lines
        report.reserved_words += encoded.reserved
        if block.inside and open_line and encoded.ends_first:
            # The line's words all stood in the block before; only its end came with this one.
            report.blank_lines -= 1
            report.sentences += 1
            lexicon.count_end()
            yield end
        ends = int(np.count_nonzero(encoded.ids == lexicon.end))
        report.sentences += ends
        report.words += len(encoded.ids) - ends
        open_line = encoded.open_words or (block.inside and open_line and encoded.lines == 0)
        yield encoded.ids
        if progress:
            progress(report.bytes, size, report.words)
    damage = source.damage
    report.replaced_bytes = damage.replaced_bytes
    report.replaced_lines = damage.replaced_lines
    report.skipped_lines = damage.skipped_lines
    report.lines += damage.skipped_lines


def _encode_block(
    block: Block, lexicon: Lexicon, source: Source, settings: TextSettings
) -> Encoded:
    try:
        if not settings.plain:
            block = clean_block(block, source, settings)
        try:
            return lexicon.encode(block.data)
        except Trouble as trouble:
            if trouble.kind != "utf-8" or settings.errors == "strict":
                raise
            block = clean_block(block, source, settings)
            return lexicon.encode(block.data)
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
        error: TextError = reserved_word(START if word == START else END, where)
        return error
    return VocabularyError(
        f"{where}: the word {word!r} is not in the vocabulary, which has no <unk> to stand for it"
    )


def _choose(
    lexicon: Lexicon,
    counts: np.ndarray,
    min_count: int,
    max_vocab: int | None,
    settings: TextSettings,
) -> tuple[Vocabulary, np.ndarray]:
    """The vocabulary of everything counted, and the final id of each provisional one."""
    words = lexicon.words()
    first = len(RESERVED)
    candidates = np.flatnonzero(counts[first:] >= min_count) + first
    if not len(candidates):
        raise nothing_kept(min_count, int(counts[first:].max(initial=0)), len(words) - first)
    # UTF-8 sorts by code point, so words need no decoding to be put in order.
    order = sorted(candidates.tolist(), key=lambda id: (-int(counts[id]), words[id]))
    if max_vocab is not None:
        order = order[: max_vocab - first]
    final = np.zeros(len(words), np.int32)
    final[:first] = range(first)
    final[order] = np.arange(first, first + len(order), dtype=np.int32)
    kept = counts[order]
    unknown = int(counts[0]) + int(counts[first:].sum()) - int(kept.sum())
    vocabulary = Vocabulary(
        [*RESERVED, *(words[id].decode() for id in order)],
        np.concatenate([np.array([unknown, 0, counts[2]], np.int64), kept]),
        settings,
    )
    return vocabulary, final


def _finish(
    draft: Path, path: Path, final: np.ndarray, dtype: str, unknown: int | None
) -> tuple[int, int, str]:
    """Write the stream with final ids; returns tokens, unknown ones among them, checksum."""
    table = final.astype("<u2" if dtype == "uint16" else "<i4")
    digest = hashlib.sha256()
    tokens = oov = 0
    with open(draft, "rb") as source, open(path, "wb") as target:
        while True:
            ids = np.fromfile(source, np.int32, _REMAP_IDS)
            if not len(ids):
                break
            encoded = table[ids]
            if unknown is not None:
                oov += int(np.count_nonzero(encoded == unknown))
            tokens += len(encoded)
            digest.update(encoded.data)
            target.write(encoded.data)
    return tokens, oov, digest.hexdigest()
