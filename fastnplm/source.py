"""Where text comes from: files plain or compressed, globs, standard input, sentences in memory.

Whatever it is, it leaves here as blocks of UTF-8 bytes that end where a line or a word ends.
"""

import bz2
import codecs
import glob
import gzip
import lzma
import os
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from fastnplm.encoding import Damage, damage_marker, guess_encoding, settle_damage
from fastnplm.errors import TextError

BLOCK_BYTES = 1 << 20

SEPARATORS = b" \t\r\v\f\0"  # between words of one line; LF ends the line

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


@dataclass(slots=True)
class Block:
    """Some lines of a text, as UTF-8 that nobody has checked yet.

    ``data`` ends with LF or, inside a very long line, with a separator. ``line`` is the number of
    the line ``data`` begins in, ``offset`` the place of its first byte in the (decompressed) file,
    ``inside`` tells that a part of this line stood in the block before, ``unended`` that the
    file's last line had no end and was given one.
    """

    data: bytes
    name: str
    line: int
    offset: int
    inside: bool = False
    unended: bool = False


@dataclass
class Source:
    """Text that can be read from its beginning as often as needed.

    Made by `open_source`; a context manager, because standard input and sentences in memory are
    kept in a temporary file meanwhile. ``damage`` is what transcoding had to mend; UTF-8 is not
    looked into here. ``consumed`` tells how many of the bytes on disk `blocks` has read so far.
    """

    paths: list[Path]
    names: list[str]
    encoding: str = "utf-8"
    errors: str = "strict"
    damage: Damage = field(default_factory=Damage)
    consumed: int = 0

    def size(self) -> int:
        """Bytes on disk (compressed where the file is), for a progress bar."""
        return sum(path.stat().st_size for path in self.paths)

    def blocks(self, block_bytes: int = BLOCK_BYTES, whole_lines: bool = False) -> Iterator[Block]:
        """All blocks, file after file. ``whole_lines`` never cuts a line, however long."""
        self.damage = Damage()
        before = 0  # bytes of the files that are read
        for path, name in zip(self.paths, self.names, strict=True):
            with _opened(path, name) as raw, _decompressed(raw, name) as stream:
                if self.encoding == "utf-8":
                    pieces: Iterator[bytes] = _pieces(stream, name, block_bytes)
                else:
                    pieces = self._transcoded(stream, name, block_bytes)
                for block in _cut(pieces, name, block_bytes, whole_lines):
                    self.consumed = before + raw.tell()
                    yield block
                before += raw.tell()

    def _transcoded(self, stream: IO[bytes], name: str, block_bytes: int) -> Iterator[bytes]:
        # A byte-order mark tells utf-16 its order; in the other encodings it is stripped by _cut.
        strict = self.errors == "strict"
        decoder = codecs.getincrementaldecoder(self.encoding)(
            "strict" if strict else damage_marker()
        )
        fed, lines, pending = 0, 1, ""
        piece = b""
        more = True
        while more:
            piece = next(_pieces(stream, name, block_bytes, once=True), b"")
            more = bool(piece)
            pending_bytes, state = decoder.getstate()
            before = len(pending_bytes)
            try:
                text = decoder.decode(piece, final=not more)
            except UnicodeDecodeError as error:
                decoder.reset()
                decoder.setstate((b"", state))
                good = decoder.decode(error.object[: error.start])
                byte = error.object[error.start]
                raise TextError(
                    f"{name}:{lines + good.count(chr(10))}: byte 0x{byte:02x} at offset "
                    f"{fed - before + error.start:,} is not {self.encoding}; pass another "
                    "--encoding or --errors replace"
                ) from error
            fed += len(piece)
            lines += text.count("\n")
            if not strict:
                # Damage is settled line by line, so only whole lines may leave here.
                text = pending + text
                keep = text.rfind("\n") + 1 if more else len(text)
                text, pending = text[:keep], text[keep:]
                text, damage = settle_damage(text, self.errors)
                self.damage.add(damage)
            if text:
                yield text.encode()


def not_utf8(block: Block, position: int) -> TextError:
    """The error for the byte at ``position`` of a block."""
    start = max(0, block.data.rfind(b"\n", 0, position) + 1, position - 512)
    hint = guess_encoding(block.data[start : position + 512])
    line = block.line + block.data.count(b"\n", 0, position)
    return TextError(
        f"{block.name}:{line}: byte 0x{block.data[position]:02x} at offset "
        f"{block.offset + position:,} is not UTF-8; pass --encoding ({hint}?) or --errors replace"
    )


def _cut(
    pieces: Iterator[bytes], name: str, block_bytes: int, whole_lines: bool
) -> Iterator[Block]:
    """Blocks that end at a line's end, or between two words of a line longer than a block."""
    line, inside = 1, False
    offset, pieces = _without_mark(pieces)
    rest: list[
        bytes | memoryview
    ] = []  # a list, so that a huge line is joined once and not at every piece
    rest_bytes = 0

    def block(data: bytes) -> Block:
        nonlocal line, offset, inside
        made = Block(data, name, line, offset, inside)
        line += _line_ends(data)
        offset += len(data)
        inside = not data.endswith(b"\n")
        return made

    for piece in pieces:
        keep = piece.rfind(b"\n") + 1
        if not keep and not whole_lines and rest_bytes + len(piece) >= block_bytes:
            keep = max(map(piece.rfind, (SEPARATORS[i : i + 1] for i in range(6)))) + 1
        if not keep:
            rest.append(piece)
            rest_bytes += len(piece)
            continue
        data = b"".join([*rest, memoryview(piece)[:keep]])  # a slice would be one more copy
        rest = [piece[keep:]] if keep < len(piece) else []
        rest_bytes = len(piece) - keep
        yield block(data)
    if rest or inside:
        # The last line may lack its end; in the middle of a list of files it still is a line.
        last = block(b"".join(rest) + b"\n")
        last.unended = True
        yield last


def _line_ends(data: bytes) -> int:
    """``data.count(b"\\n")``, some eight times as fast."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == 10))


def _without_mark(pieces: Iterator[bytes]) -> tuple[int, Iterator[bytes]]:
    """The text after a leading byte-order mark, and where it begins."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= len(codecs.BOM_UTF8):
            break
    offset = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    return offset, chain([head[offset:]] if head[offset:] else [], pieces)


def _pieces(stream: IO[bytes], name: str, block_bytes: int, once: bool = False) -> Iterator[bytes]:
    while True:
        try:
            piece = stream.read(block_bytes)
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, ValueError) as error:
            raise TextError(
                f"{name}: the compressed file is damaged or cut short ({error}); fetch it again"
            ) from error
        except OSError as error:
            raise TextError(f"{name}: cannot be read: {error.strerror or error}") from error
        except Exception as error:
            if type(error).__module__.startswith("zstandard"):
                raise TextError(f"{name}: the zstd file is damaged ({error})") from error
            raise
        if piece:
            yield piece
        if once or not piece:
            return


@contextmanager
def open_text(path: Path, name: str | None = None) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a file; gzip, xz, bzip2 and zstd are known by their first bytes."""
    name = name or os.fspath(path)
    with _opened(path, name) as raw, _decompressed(raw, name) as stream:
        yield stream


def _opened(path: Path, name: str) -> BufferedReader:
    try:
        return open(path, "rb")
    except OSError as error:
        raise TextError(f"{name}: cannot be read: {error.strerror or error}") from error


@contextmanager
def _decompressed(raw: BufferedReader, name: str) -> Iterator[IO[bytes]]:
    head = raw.peek(10)[:10]
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "plain")
    if head.startswith(b"BZh") and head[4:10] == b"1AY&SY":
        kind = "bzip2"
    stream: Any = raw
    if kind == "gzip":
        stream = gzip.GzipFile(fileobj=raw)
    elif kind == "xz":
        stream = lzma.LZMAFile(raw)  # noqa: SIM115
    elif kind == "bzip2":
        stream = bz2.BZ2File(raw)
    elif kind == "zstd":
        stream = _zstd(raw, name)
    try:
        yield stream
    finally:
        if stream is not raw:
            stream.close()


def _zstd(raw: IO[bytes], name: str) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise TextError(
            f"{name} is compressed with zstd; pip install 'fastnplm[zstd]' to read it"
        ) from error
    return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)


@contextmanager
def open_source(*given: Any, encoding: str = "utf-8", errors: str = "strict") -> Iterator[Source]:
    """Anything text can come from, as a `Source`.

    Parameters
    ----------
    given : one or more paths, globs or ``-`` (standard input); or one iterable of sentences, each
        a string or a list of words, which is read once and kept. A list of strings is taken as
        files when all of them exist, else as sentences.
    encoding : any codec of Python; ``errors`` : ``strict``, ``replace`` or ``skip-line``

    Raises
    ------
    TextError
        If a file is missing or a sentence in memory cannot be one line of text.
    """
    items = _single_list(given)
    with tempfile.TemporaryDirectory(prefix="fastnplm-text-") as folder:
        paths: list[Path] = []
        names: list[str] = []
        spooled = False
        if items is None:
            path = Path(folder, "sentences")
            _spool_sentences(given[0], path, errors)
            paths, names, encoding = [path], ["sentence"], "utf-8"
        else:
            for item in items:
                if os.fspath(item) != "-":
                    for path in _expand(item):
                        paths.append(path)
                        names.append(str(path))
                elif not spooled:
                    spooled = True
                    path = Path(folder, "standard-input")
                    _spool_standard_input(path)
                    paths.append(path)
                    names.append("standard input")
        yield Source(paths, names, encoding, errors)


def _single_list(given: tuple[Any, ...]) -> list[Any] | None:
    """The paths that were given, or None when ``given[0]`` is sentences."""
    if not given:
        raise TextError("no text was given; pass a file, a glob, - for standard input or sentences")
    if all(isinstance(item, str | os.PathLike) for item in given):
        return list(given)
    if len(given) > 1:
        raise TextError(
            "several sources must all be paths; chain sentences into one iterable instead"
        )
    items = given[0]
    if not isinstance(items, list | tuple) or not items:
        if not isinstance(items, Iterable):
            raise TextError(f"text must be a path or sentences, not {type(items).__name__}")
        return None
    if all(isinstance(item, os.PathLike) for item in items):
        return list(items)
    if not all(isinstance(item, str | os.PathLike) for item in items):
        return None
    missing = [item for item in items if not _exists(item)]
    if not missing:
        return list(items)
    looks_like_path = [
        not item.split()[1:] and ("/" in item or "." in item.strip(".")) for item in missing
    ]
    if all(looks_like_path):
        raise TextError(
            f"{missing[0]}: no such file (sentences of one word each: pass lists of words)"
        )
    return None


def _exists(item: Any) -> bool:
    name = os.fspath(item)
    return name == "-" or ("\0" not in name and (os.path.exists(name) or bool(glob.glob(name))))


def _expand(item: Any) -> list[Path]:
    path = Path(item)
    if path.is_dir():
        raise TextError(f"{item} is a folder; name files or a glob such as {item}/*.txt")
    if path.exists():
        return [path]
    found = sorted(Path(name) for name in glob.glob(os.fspath(item), recursive=True))
    found = [path for path in found if path.is_file()]
    if not found:
        raise TextError(f"{item}: no such file")
    return found


def _spool_standard_input(path: Path) -> None:
    with open(path, "wb") as spool:
        while piece := sys.stdin.buffer.read(BLOCK_BYTES):
            spool.write(piece)


def _spool_sentences(sentences: Iterable[Any], path: Path, errors: str) -> None:
    with open(path, "wb") as spool:
        for number, sentence in enumerate(sentences, 1):
            line = sentence_line(sentence, f"sentence {number}")
            try:
                spool.write(line.encode() + b"\n")
            except UnicodeEncodeError as error:
                if errors == "strict":
                    raise TextError(
                        f"sentence {number}: character {error.start} is half of a surrogate pair "
                        "and not text; mend it or pass errors='replace'"
                    ) from error
                spool.write(line.encode("utf-8", "replace") + b"\n")


def sentence_line(sentence: Any, where: str) -> str:
    """One sentence, a string or a list of words, as one line without its end.

    Raises
    ------
    TextError
        If a string holds a line end before its own end, or a word of a list holds a separator.
    """
    if isinstance(sentence, str):
        line = sentence[:-1] if sentence.endswith("\n") else sentence
        if "\n" in line:
            raise TextError(f"{where}: a sentence is one line, and this holds a line end inside it")
        return line
    if not isinstance(sentence, Iterable) or isinstance(sentence, bytes):
        raise TextError(
            f"{where}: must be a string or a list of words, not {type(sentence).__name__}"
        )
    words = list(sentence)
    for word in words:
        if not isinstance(word, str):
            raise TextError(f"{where}: words must be strings, not {type(word).__name__}")
        if not word or any(separator in word for separator in "\n \t\r\v\f\0"):
            raise TextError(f"{where}: {word!r} is not one word; remove the white space")
    return " ".join(words)
