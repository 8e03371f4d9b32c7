"""An inspection of a text in words: one page for a reader, and what to do about what was found."""

import os.path
from collections.abc import Iterator, Mapping

from fastnplm.inspection import Inspection
from fastnplm.loss import LARGE_VOCABULARY

_LABEL = 14
_WORD_SHOWN = 40
_SCRIPTS_SHOWN = 6
_TELLING = 0.01  # a share that is no accident
_MANY_DUPLICATES = 0.05
_UNSEGMENTED = 6.0  # Chinese characters a word from which on words are sentences


def page(found: Inspection) -> str:
    """The figures, a line each, then the table of min_count and what is suggested."""
    lines = [f"{label:{_LABEL}}{text}" for label, text in _figures(found)]
    lines.append("min_count     vocabulary   tokens known      model   training")
    lines += [
        f"{row['min_count']:9}   {row['vocabulary']:12,}   {row['known']:12.2%}   "
        f"{row['mib']:,.1f} MiB".ljust(55)
        + f"{row['training_mib']:,.1f} MiB"
        for row in found.coverage
    ]
    choice = found.suggestion
    lines.append(
        f"{'suggestion':{_LABEL}}--min-count {choice['min_count']} --dim {choice['dim']} "
        f"--hidden {choice['hidden']}: {choice['reason']}"
    )
    lines += [f"{'note':{_LABEL}}{text}" for text in advice(found)]
    return "\n".join(lines)


def _figures(found: Inspection) -> Iterator[tuple[str, str]]:
    yield "files", f"{found.files:,}, {found.bytes:,} bytes of text"
    if found.damaged_lines:
        yield "encoding", f"not {found.encoding} throughout; damaged lines: {found.damaged_lines:,}"
        for place in found.damage:
            yield "", place
    else:
        yield "encoding", f"{found.encoding}, valid throughout"
    lf = found.lines - found.crlf_lines - found.unended_files
    ends = f"LF {lf:,}, CRLF {found.crlf_lines:,}, lone CR {found.lone_carriage_returns:,}"
    if found.unended_files:
        ends += f"; {found.unended_files:,} without an end at the end of a file"
    yield "line ends", ends
    duplicates = ("" if found.duplicates_exact else "about ") + f"{found.duplicate_lines:,}"
    yield "lines", f"{found.lines:,}; {found.blank_lines:,} blank, {duplicates} duplicates"
    longest = [
        f"{line['words']:,} words ({os.path.basename(line['where'])})"
        for line in found.longest_lines
    ]
    yield "longest lines", ", ".join(longest)
    longest = [
        f"{word['characters']:,} characters ({_short(word['word'])})"
        for word in found.longest_words
    ]
    yield "longest words", ", ".join(longest)
    yield "controls", _listed(found.control_characters)
    yield "reserved", _listed(found.reserved_words)
    shown = list(found.scripts.items())[:_SCRIPTS_SHOWN]
    yield "scripts", ", ".join(f"{name} {share:.2%}" for name, share in shown) or "no letters"
    if found.mixed_words:
        examples = ", ".join(map(_short, found.mixed_examples))
        yield "mixed words", f"{found.mixed_words:,} with letters of two scripts: {examples}"
    if found.simplified or found.traditional:
        chinese = f"{found.simplified:,} simplified and {found.traditional:,} traditional"
        yield "Chinese", f"of the characters that tell, {chinese}"
    once = f"{found.seen_once:,} of them seen once ({found.seen_once / max(1, found.types):.1%})"
    yield "words", f"{found.words:,}, {found.types:,} different, {once}"


def advice(found: Inspection) -> Iterator[str]:
    """What to do before training, a sentence each."""
    if found.damaged_lines:
        yield (
            "pass the right --encoding, or --errors replace or skip-line; the figures above count "
            "a damaged place as U+FFFD"
        )
    if found.lone_carriage_returns:
        yield "only LF ends a line: a lone CR is white space, so lines that it ends are joined"
    if found.duplicate_lines > _MANY_DUPLICATES * found.lines:
        yield (
            f"{found.duplicate_lines / found.lines:.0%} of the lines stood before: validation and "
            "test text cut from this one would hold lines that were trained on"
        )
    if set(found.reserved_words) - {"<unk>"}:
        yield "<s> and </s> are reserved: pass --reserved whitespace to drop them, or map"
    if found.control_characters:
        yield "control and invisible characters make different words of what looks the same"
    if found.scripts.get("Fullwidth", 0) > 0:
        yield "full-width letters: --normalize NFKC makes ordinary ones of them"
    telling = found.simplified + found.traditional
    if min(found.simplified, found.traditional) > _TELLING * telling and not _japanese(found):
        yield "simplified and traditional Chinese are mixed: convert one to the other"
    east = sum(found.scripts.get(name, 0) for name in ("Han", "Hiragana", "Katakana"))
    if east > 0.5 and found.characters_a_word > _UNSEGMENTED:
        yield (
            f"{found.characters_a_word:.0f} characters a word: this text is not segmented; pass "
            "--segment char or jieba"
        )
    chosen = found.suggestion["min_count"]
    size = next(row["vocabulary"] for row in found.coverage if row["min_count"] == chosen)
    if size > LARGE_VOCABULARY:
        yield (
            f"{size:,} words are many for the exact softmax: train takes nce unless --loss is "
            "said; --max-vocab limits them"
        )


def _japanese(found: Inspection) -> bool:
    return found.scripts.get("Hiragana", 0) + found.scripts.get("Katakana", 0) > _TELLING


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def _short(word: str) -> str:
    shown = word if len(word) <= _WORD_SHOWN else word[:_WORD_SHOWN] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown)
