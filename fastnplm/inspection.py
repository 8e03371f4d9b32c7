"""What is in a text, before anything is trained on it: one page, or a dictionary."""

import unicodedata
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fastnplm.encoding import DAMAGED, damage_marker
from fastnplm.errors import CorpusError
from fastnplm.source import not_utf8, open_source
from fastnplm.text import RESERVED, TextSettings, split_characters, split_words

MIN_COUNTS = (1, 2, 3, 5, 10)

# Frequent characters that are written differently, in the same order.
SIMPLIFIED = frozenset(
    "们这国说时会对发学过还没开关头东车马鸟鱼龙门问间见观觉语话诉请读书长张业众优传伤价"
)
TRADITIONAL = frozenset(
    "們這國說時會對發學過還沒開關頭東車馬鳥魚龍門問間見觀覺語話訴請讀書長張業眾優傳傷價"
)

_LINES_REMEMBERED = 1 << 22
_KNOWN_ENOUGH = 0.95


@dataclass
class Inspection:
    """Figures about a text; `page` puts them in words.

    ``coverage`` has an entry for each of `MIN_COUNTS`: the vocabulary's size, the share of tokens
    that are known, and the MiB of a model's parameters with the suggested dim and hidden.
    """

    files: int = 0
    bytes: int = 0
    lines: int = 0
    blank_lines: int = 0
    duplicate_lines: int = 0
    duplicates_complete: bool = True
    crlf_lines: int = 0
    lone_carriage_returns: int = 0
    damaged_lines: int = 0
    first_damage: str | None = None
    words: int = 0
    types: int = 0
    seen_once: int = 0
    longest_line: int = 0
    longest_line_at: str = ""
    longest_word: str = ""
    control_characters: dict[str, int] = field(default_factory=dict)
    reserved_words: dict[str, int] = field(default_factory=dict)
    scripts: dict[str, float] = field(default_factory=dict)
    simplified: int = 0
    traditional: int = 0
    coverage: list[dict[str, Any]] = field(default_factory=list)
    suggestion: dict[str, Any] = field(default_factory=dict)
    frequencies: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def as_dict(self) -> dict[str, Any]:
        """Everything but the curve of `frequencies` (counts by falling rank, for a plot)."""
        values = asdict(self)
        del values["frequencies"]
        return values

    def page(self) -> str:
        """The figures as text for a reader."""
        broken = self.first_damage or "valid throughout"
        more = "" if self.duplicates_complete else " at least"
        lines = [
            f"files        {self.files:,}, {self.bytes:,} bytes",
            f"encoding     {broken}"
            + (f" ({self.damaged_lines:,} damaged lines)" if self.damaged_lines else ""),
            f"lines        {self.lines:,}; blank {self.blank_lines:,}; duplicate{more} "
            f"{self.duplicate_lines:,}; ending in CRLF {self.crlf_lines:,}; lone CR "
            f"{self.lone_carriage_returns:,}",
            f"longest      line {self.longest_line:,} words ({self.longest_line_at}); word "
            f"{len(self.longest_word):,} characters ({self.longest_word[:40]!r})",
            f"words        {self.words:,}, {self.types:,} different, {self.seen_once:,} seen once "
            f"({self.seen_once / max(1, self.types):.1%} of the different ones)",
            "controls     "
            + (", ".join(f"{n} {c:,}" for n, c in self.control_characters.items()) or "none"),
            "reserved     "
            + (", ".join(f"{n} {c:,}" for n, c in self.reserved_words.items()) or "none"),
            "scripts      " + ", ".join(f"{n} {share:.1%}" for n, share in self.scripts.items()),
        ]
        if self.simplified and self.traditional:
            lines.append(
                f"Chinese      simplified and traditional mixed: {self.simplified:,} and "
                f"{self.traditional:,} of the characters that tell; convert one to the other"
            )
        lines.append("min_count   vocabulary   tokens known   parameters")
        lines += [
            f"{row['min_count']:9}   {row['vocabulary']:10,}   {row['known']:12.2%}   "
            f"{row['mib']:6,.0f} MiB"
            for row in self.coverage
        ]
        choice = self.suggestion
        lines.append(
            f"suggestion   --min-count {choice['min_count']} --dim {choice['dim']} --hidden "
            f"{choice['hidden']}: {choice['reason']}"
        )
        return "\n".join(lines)


def inspect(*given: Any, settings: TextSettings | None = None, context: int = 4) -> Inspection:
    """Read a text once and describe it. Damaged bytes do not stop it: they are reported.

    Counts are kept in memory, one entry a different word.

    Raises
    ------
    TextError
        If a file is missing or cannot be decompressed.
    CorpusError
        If there is no word in the text.
    """
    settings = settings or TextSettings()
    found = Inspection()
    words: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    seen: set[int] = set()
    with open_source(*given, encoding=settings.encoding, errors="replace") as source:
        found.files = len(source.paths)
        for block in source.blocks(whole_lines=True):
            found.bytes += len(block.data)
            text = block.data.decode("utf-8", damage_marker())
            if DAMAGED in text and found.first_damage is None:
                try:
                    block.data.decode()
                except UnicodeDecodeError as error:
                    found.first_damage = str(not_utf8(block, error.start))
            characters.update(text)
            text = settings.rewrite(text)
            for number, line in enumerate(text.split("\n")[:-1]):
                _look_at_line(found, line, f"{block.name}:{block.line + number}", seen)
                cut = split_characters(line) if settings.segment == "char" else split_words(line)
                if not cut:
                    found.blank_lines += 1
                    continue
                if len(cut) > found.longest_line:
                    found.longest_line = len(cut)
                    found.longest_line_at = f"{block.name}:{block.line + number}"
                words.update(cut)
    found.damaged_lines += source.damage.replaced_lines
    _look_at_characters(found, characters)
    for word in RESERVED:
        if words[word]:
            found.reserved_words[word] = words[word]
        del words[word]
    if not words:
        raise CorpusError("no tokens: there is no word in the text")
    found.longest_word = max(words, key=len)
    _weigh(found, np.array(sorted(words.values(), reverse=True), np.int64), context)
    return found


def _look_at_line(found: Inspection, line: str, where: str, seen: set[int]) -> None:
    found.lines += 1
    found.crlf_lines += line.endswith("\r")
    found.lone_carriage_returns += line[:-1].count("\r")
    found.damaged_lines += DAMAGED in line
    if line.strip():
        mark = hash(line)
        if mark in seen:
            found.duplicate_lines += 1
        elif len(seen) < _LINES_REMEMBERED:
            seen.add(mark)
        else:
            found.duplicates_complete = False


def _look_at_characters(found: Inspection, characters: Counter[str]) -> None:
    scripts: Counter[str] = Counter()
    for character, count in characters.items():
        category = unicodedata.category(character)
        if category in ("Cc", "Cf") and character not in "\n\t\r":
            found.control_characters[f"U+{ord(character):04X}"] = count
        if category.startswith("L"):
            # The first word of a character's name is its script in all but name.
            name = unicodedata.name(character, "OTHER").split(" ")[0]
            scripts[{"CJK": "Han", "FULLWIDTH": "Fullwidth"}.get(name, name.capitalize())] += count
        found.simplified += count * (character in SIMPLIFIED)
        found.traditional += count * (character in TRADITIONAL)
    total = max(1, scripts.total())
    found.scripts = {name: count / total for name, count in scripts.most_common(8)}


def _weigh(found: Inspection, counts: np.ndarray, context: int) -> None:
    found.frequencies = counts
    found.types = len(counts)
    found.seen_once = int(np.count_nonzero(counts == 1))
    known_words = int(counts.sum())
    found.words = known_words + found.reserved_words.get(RESERVED[0], 0)
    dim, hidden = next(
        sizes
        for least, sizes in ((20e6, (150, 300)), (2e6, (100, 200)), (2e5, (60, 100)), (0, (30, 60)))
        if found.words >= least
    )
    for min_count in MIN_COUNTS:
        kept = counts[counts >= min_count]
        size = len(kept) + len(RESERVED)
        parameters = size * (dim + hidden + 1) + hidden * (context * dim + 1)
        found.coverage.append(
            {
                "min_count": min_count,
                "vocabulary": size,
                "known": int(kept.sum()) / found.words,
                "mib": parameters * 4 / 2**20,
            }
        )
    enough = [row for row in found.coverage if row["known"] >= _KNOWN_ENOUGH]
    chosen = (enough or found.coverage)[-1 if enough else 0]
    reason = (
        f"the highest min_count that keeps {_KNOWN_ENOUGH:.0%} of the tokens known "
        f"({chosen['known']:.2%})"
        if enough
        else f"even min_count 1 knows only {chosen['known']:.2%} of the tokens"
    )
    found.suggestion = {
        "min_count": chosen["min_count"],
        "dim": dim,
        "hidden": hidden,
        "reason": f"{reason}; dim and hidden by the size of the text, {found.words:,} words",
    }
