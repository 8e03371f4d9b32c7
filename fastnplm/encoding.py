"""Bytes into text: the encoding, what is done with bytes that do not belong to it, and a guess.

Two private characters stand for damaged bytes between decoding and the choice of what to do with
them. Both are lone surrogates, which no decoded text can hold, so counting and removing them is
exact and works the same for every encoding.
"""

import codecs
from dataclasses import dataclass

from fastnplm.errors import SettingsError

ERROR_POLICIES = ("strict", "replace", "skip-line")

DAMAGED = "\udffe"  # the first byte of a damaged place
DAMAGED_MORE = "\udfff"  # each further byte of the same place
_HANDLER = "fastnplm-damaged"


def _mark_damaged(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return DAMAGED + DAMAGED_MORE * (error.end - error.start - 1), error.end


def damage_marker() -> str:
    """Name of the error handler that marks damaged bytes; registered when first asked for."""
    try:
        codecs.lookup_error(_HANDLER)
    except LookupError:
        codecs.register_error(_HANDLER, _mark_damaged)
    return _HANDLER


@dataclass
class Damage:
    """How much was mended, for the report."""

    replaced_bytes: int = 0
    replaced_lines: int = 0
    skipped_lines: int = 0

    def add(self, other: "Damage") -> None:
        self.replaced_bytes += other.replaced_bytes
        self.replaced_lines += other.replaced_lines
        self.skipped_lines += other.skipped_lines


def settle_damage(text: str, policy: str) -> tuple[str, Damage]:
    """Replace marked places by U+FFFD, or drop the lines that hold them (``skip-line``)."""
    if DAMAGED not in text:
        return text, Damage()
    damaged_bytes = text.count(DAMAGED) + text.count(DAMAGED_MORE)
    lines = text.split("\n")
    damaged_lines = sum(DAMAGED in line for line in lines)
    if policy == "skip-line":
        kept = "\n".join(line for line in lines if DAMAGED not in line)
        return kept, Damage(skipped_lines=damaged_lines)
    text = text.replace(DAMAGED_MORE, "").replace(DAMAGED, "\ufffd")
    return text, Damage(damaged_bytes, damaged_lines)


def canonical_encoding(name: str) -> str:
    """The codec's own name (``UTF8`` and ``utf-8`` are one), or a SettingsError."""
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # refuses codecs that do not produce text, such as rot13 or zip
    except (LookupError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"--encoding {name}: Python knows no such text encoding; try utf-8, latin-1, gb18030, "
            "shift_jis or utf-16"
        ) from error
    return codec.name


def guess_encoding(sample: bytes) -> str:
    """A likely encoding for bytes that are not UTF-8; a hint for a message, never acted upon.

    East Asian encodings are tried by decoding; the one whose text holds the largest share of its
    languages' most frequent characters wins. Bytes that are rarely above 0x7f
    are taken for a Western encoding.
    """
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if sample[:8].count(0) >= 2:
        return "utf-16-le" if sample[1:2] == b"\0" else "utf-16-be"
    high = sum(byte >= 0x80 for byte in sample)
    if high * 5 < len(sample):
        return "cp1252" if any(0x80 <= byte < 0xA0 for byte in sample) else "latin-1"
    scores = {
        name: _likeness(sample.decode(name, "replace"), common) for name, common in _COMMON.items()
    }
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > 0 else "latin-1"


# The most frequent characters of what is usually written in an encoding.
_KANA = "".join(map(chr, range(0x3041, 0x30FB)))
_COMMON = {
    "gb18030": "的一是不了在人有我他这个们中来上大为和国，。、",
    "big5": "的一是不了在人有我他這個們中來上大為和國，。、",
    "shift_jis": _KANA,
    "euc_jp": _KANA,
    "euc_kr": "이다는을의에가한로고를하지은도사",
}


def _likeness(text: str, common: str) -> float:
    beyond = [character for character in text if character > "\x7f"]
    bad = 3 * text.count("\ufffd")
    return (sum(character in common for character in beyond) - bad) / max(1, len(beyond))
