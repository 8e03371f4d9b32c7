"""What is in a text, before anything is trained on it: one page, or a dictionary."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fastnplm import lexicon as pure
from fastnplm.encoding import DAMAGED, damage_marker, settle_damage
from fastnplm.errors import CorpusError, TextError
from fastnplm.lines import LongestLines, RepeatedLines
from fastnplm.loss import LARGE_VOCABULARY
from fastnplm.preparation import compiled
from fastnplm.scripts import Characters, characters_of
from fastnplm.source import Block, Source, not_utf8, open_source
from fastnplm.text import RESERVED, TextSettings
from fastnplm.vocabulary import END_ID

MIN_COUNTS = (1, 2, 3, 5, 10)
SHOWN = 3  # longest lines, longest words, damaged files, words of mixed scripts

# Least number of words, and the dim and hidden suggested for it.
SIZES = ((20e6, 150, 300), (2e6, 100, 200), (2e5, 60, 100), (0, 30, 60))

_KNOWN_ENOUGH, _KNOWN_AT_LEAST = 0.95, 0.8
_SEPARATOR = rb"[\0\t\n\v\f\r ]"
_MARKER = re.compile(rb"(?:^|(?<=" + _SEPARATOR + rb"))</?s>(?=" + _SEPARATOR + rb")")

Progress = Callable[[int, int, int], None]


@dataclass
class Inspection:
    """Figures about a text; `fastnplm.page.page` puts them in words.

    ``bytes`` are those of the text as UTF-8. ``damage`` tells of each file that is not of the
    encoding where it breaks first (three files at most). ``duplicate_lines`` counts lines that
    stood before, see `fastnplm.lines.RepeatedLines`; it is an estimate when ``duplicates_exact``
    is False. ``words`` holds the literal ``<unk>``, ``types`` does not. ``scripts`` has shares of
    the letters. ``mixed_words`` are different words with letters of two scripts (Chinese
    characters and kana count as one). ``coverage`` has an entry for each of `MIN_COUNTS`: the
    vocabulary's size, the share of tokens that are known, and the MiB of a model of the suggested
    sizes (``mib``) and of training it as ``train`` does (``training_mib``).
    """

    files: int = 0
    bytes: int = 0
    encoding: str = "utf-8"
    damaged_lines: int = 0
    damage: list[str] = field(default_factory=list)
    lines: int = 0
    crlf_lines: int = 0
    lone_carriage_returns: int = 0
    unended_files: int = 0
    blank_lines: int = 0
    duplicate_lines: int = 0
    duplicates_exact: bool = True
    longest_lines: list[dict[str, Any]] = field(default_factory=list)
    longest_words: list[dict[str, Any]] = field(default_factory=list)
    control_characters: dict[str, int] = field(default_factory=dict)
    reserved_words: dict[str, int] = field(default_factory=dict)
    scripts: dict[str, float] = field(default_factory=dict)
    mixed_words: int = 0
    mixed_examples: list[str] = field(default_factory=list)
    simplified: int = 0
    traditional: int = 0
    words: int = 0
    types: int = 0
    seen_once: int = 0
    characters_a_word: float = 0.0
    coverage: list[dict[str, Any]] = field(default_factory=list)
    suggestion: dict[str, Any] = field(default_factory=dict)
    frequencies: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def as_dict(self) -> dict[str, Any]:
        """Everything but the curve of `frequencies` (counts by falling rank, for a plot)."""
        values = asdict(self)
        del values["frequencies"]
        return values


def inspect(
    *given: Any,
    settings: TextSettings | None = None,
    context: int = 4,
    progress: Progress | None = None,
) -> Inspection:
    """Read a text once and describe it. Damaged bytes do not stop it: they are reported.

    Memory holds a table of the different words and a block of the text (a line, if it is longer).

    Parameters
    ----------
    given : whatever `fastnplm.source.open_source` takes
    settings : how text becomes words; ``errors`` and ``reserved`` are without effect here
    context : of the model whose memory is told
    progress : as of `fastnplm.corpus.Corpus.prepare`

    Raises
    ------
    TextError
        If a file is missing or cannot be decompressed.
    CorpusError
        If there is no word in the text.
    """
    settings = settings or TextSettings()
    by_character = settings.segment == "char"
    found = Inspection(encoding=settings.encoding)
    table = (compiled or pure).Lexicon(reserved="whitespace", characters=by_character)
    characters, repeated = Characters(), RepeatedLines()
    longest = LongestLines(SHOWN, by_character)
    with open_source(*given, encoding=settings.encoding, errors="replace") as source:
        found.files = len(source.paths)
        size = source.size()
        for block in source.blocks(whole_lines=True):
            text = _look_at_bytes(found, block)
            repeated.add(block.data)
            characters.add(text)
            block.data = settings.rewrite(text).encode()
            for marker in map(bytes.decode, _MARKER.findall(block.data)):
                found.reserved_words[marker] = found.reserved_words.get(marker, 0) + 1
            encoded = table.encode(block.data)
            found.blank_lines += encoded.blank_lines
            found.words += len(encoded.ids) - encoded.sentences
            longest.add(block, encoded.ids, END_ID)
            if progress:
                progress(source.consumed, size, found.words)
        if source.damage.replaced_lines:
            found.damaged_lines = source.damage.replaced_lines
            found.damage = _where_it_breaks(source)
    if not found.words:
        raise CorpusError("no tokens: there is no word in the text")
    found.duplicate_lines, found.duplicates_exact = repeated.count()
    found.longest_lines = longest.found()
    found.control_characters = characters.controls()
    scripts = characters.scripts()
    found.scripts = {name: count / sum(scripts.values()) for name, count in scripts.items()}
    found.simplified, found.traditional = characters.chinese()
    _look_at_words(found, characters, table)
    _weigh(found, context)
    return found


def _look_at_bytes(found: Inspection, block: Block) -> str:
    """Count what needs no words; returns the block as text."""
    data = block.data
    found.bytes += len(data) - block.unended
    found.lines += data.count(b"\n")
    crlf = data.count(b"\r\n")
    found.crlf_lines += crlf
    found.lone_carriage_returns += data.count(b"\r") - crlf
    found.unended_files += block.unended
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        place = str(not_utf8(block, error.start))
        if len(found.damage) < SHOWN and not any(
            known.startswith(f"{block.name}:") for known in found.damage
        ):
            found.damage.append(place)
        text = data.decode("utf-8", damage_marker())
        found.damaged_lines += sum(DAMAGED in line for line in text.split("\n"))
        return settle_damage(text, "replace")[0]


def _where_it_breaks(source: Source) -> list[str]:
    """The first damaged place of files of another encoding than UTF-8."""
    places: list[str] = []
    for path, name in zip(source.paths, source.names, strict=True):
        try:
            for _ in replace(source, paths=[path], names=[name], errors="strict").blocks():
                pass
        except TextError as error:
            places.append(str(error))
        if len(places) == SHOWN:
            break
    return places


def _look_at_words(found: Inspection, characters: Characters, table: Any) -> None:
    first = len(RESERVED)
    letters, ends, counts = table.letters(), table.ends(), table.counts()
    if counts[0]:
        found.reserved_words[RESERVED[0]] = int(counts[0])
    starts, points = characters_of(letters, ends)
    lengths = np.diff(starts, append=len(points))
    met = counts[first:]
    found.characters_a_word = float(lengths[first:] @ met / max(1, met.sum()))
    longest = np.argsort(-lengths[first:], kind="stable")[:SHOWN] + first
    found.longest_words = [
        {"characters": int(lengths[id]), "word": word}
        for id, word in zip(longest, table.spell(longest.astype(np.int32)), strict=True)
    ]
    mixed = np.flatnonzero(characters.mixing(letters, ends)[first:]) + first
    found.mixed_words = len(mixed)
    frequent = mixed[np.argsort(-counts[mixed], kind="stable")[:SHOWN]]
    found.mixed_examples = table.spell(frequent.astype(np.int32))
    found.frequencies = np.sort(met)[::-1]
    found.types = len(found.frequencies)
    found.seen_once = int(np.count_nonzero(found.frequencies == 1))


def _weigh(found: Inspection, context: int) -> None:
    dim, hidden = next(sizes for least, *sizes in SIZES if found.words >= least)
    for min_count in MIN_COUNTS:
        kept = found.frequencies[found.frequencies >= min_count]
        size = len(kept) + len(RESERVED)
        inputs = context * dim  # of the form that train makes: tied, direct
        parameters = size * (dim + 1) + hidden * (inputs + 1) + dim * (hidden + inputs + 1)
        found.coverage.append(
            {
                "min_count": min_count,
                "vocabulary": size,
                "known": int(kept.sum()) / found.words,
                "mib": parameters * 4 / 2**20,
                # momentum keeps a number for each, Adam two, and their mean is another
                "training_mib": (3 if size <= LARGE_VOCABULARY else 4) * parameters * 4 / 2**20,
            }
        )
    min_count, reason = _choose(found.coverage)
    found.suggestion = {
        "min_count": min_count,
        "dim": int(dim),
        "hidden": int(hidden),
        "reason": f"{reason}; dim and hidden by the size of the text, {found.words:,} words",
    }


def _choose(coverage: list[dict[str, Any]]) -> tuple[int, str]:
    """A min_count of the table, and why. From 2 on rare words teach the model <unk>."""
    every, twice, *_ = coverage
    kept = [row for row in coverage[1:] if row["known"] >= _KNOWN_ENOUGH]
    if kept:
        least, known = kept[-1]["min_count"], kept[-1]["known"]
        goal = f"keeps {_KNOWN_ENOUGH:.0%} of the tokens known"
        return least, f"the highest min_count that {goal} ({known:.2%})"
    if twice["known"] >= _KNOWN_AT_LEAST:
        return 2, f"it keeps {twice['known']:.2%} of the tokens known, and <unk> is learned"
    lost = every["known"] - twice["known"]
    return 1, f"min_count 2 would lose {lost:.0%} of so small a text (<unk> itself stays unlearned)"
