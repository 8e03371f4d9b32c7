"""What characters are, in bulk: scripts, control characters, the two ways to write Chinese."""

import unicodedata
from collections import Counter

import numpy as np

CODE_POINTS = 0x110000

# Frequent characters that are written differently, in the same order. Japanese uses some of both.
SIMPLIFIED = "们这国说时会对发学过还没开关头东车马鸟鱼龙门问间见观觉语话诉请读书长张业众优传伤价"
TRADITIONAL = "們這國說時會對發學過還沒開關頭東車馬鳥魚龍門問間見觀覺語話訴請讀書長張業眾優傳傷價"

# Scripts that a word mixes without anything being wrong.
_JAPANESE = ("Han", "Hiragana", "Katakana")
_NAMES = {"CJK": "Han", "KATAKANA-HIRAGANA": "Katakana", "IDEOGRAPHIC": "Han"}


def script_of(character: str) -> str | None:
    """The script a letter belongs to, None for all that is no letter of one.

    Full- and half-width forms are a script of their own: they look like others and are not.
    """
    if not unicodedata.category(character).startswith("L"):
        return None
    if unicodedata.name(character, "").startswith(("FULLWIDTH", "HALFWIDTH")):
        return "Fullwidth"
    plain = unicodedata.normalize("NFKC", character)[0]  # of the signs that are letters, the letter
    name = unicodedata.name(plain, "").split(" ")[0]
    if name in ("", "MODIFIER") or not unicodedata.category(plain).startswith("L"):
        return None
    return _NAMES.get(name, name.capitalize())


class Characters:
    """Counts of the characters of a text.

    Attributes
    ----------
    counts : int64 (0x110000,), by code point
    """

    def __init__(self) -> None:
        self.counts = np.zeros(CODE_POINTS, np.int64)

    def add(self, text: str) -> None:
        """Count the characters of a text that holds no surrogates."""
        met = np.bincount(code_points(text))
        self.counts[: len(met)] += met

    def _met(self) -> list[tuple[str, int]]:
        points = np.flatnonzero(self.counts)
        return [(chr(point), int(self.counts[point])) for point in points.tolist()]

    def controls(self) -> dict[str, int]:
        """Control and invisible format characters by name, but for tab, CR and LF."""
        return {
            f"U+{ord(c):04X}": count
            for c, count in self._met()
            if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\t\r"
        }

    def scripts(self) -> dict[str, int]:
        """Letters of each script, the most used first."""
        found: Counter[str] = Counter()
        for character, count in self._met():
            script = script_of(character)
            if script is not None:
                found[script] += count
        return dict(found.most_common())

    def chinese(self) -> tuple[int, int]:
        """How many characters are of the simplified and of the traditional list above."""
        return tuple(  # type: ignore[return-value]
            int(sum(self.counts[ord(c)] for c in listed)) for listed in (SIMPLIFIED, TRADITIONAL)
        )

    def mixing(self, letters: bytes, ends: np.ndarray) -> np.ndarray:
        """Which words, given one behind another as UTF-8, hold letters of two scripts: bool."""
        script = np.zeros(CODE_POINTS, np.uint8)
        numbers: dict[str, int] = {}
        for character, _ in self._met():
            name = script_of(character)
            if name is not None:
                name = _JAPANESE[0] if name in _JAPANESE else name
                script[ord(character)] = numbers.setdefault(name, len(numbers) + 1)
        if not len(ends):
            return np.zeros(0, np.bool_)
        starts, points = characters_of(letters, ends)
        used = script[points]
        highest = np.maximum.reduceat(used, starts)
        lowest = np.minimum.reduceat(np.where(used == 0, 255, used).astype(np.uint8), starts)
        return (highest > 0) & (highest != lowest)


def code_points(text: str) -> np.ndarray:
    """Code points of a text without surrogates, uint32."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def characters_of(letters: bytes, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Words one behind another as UTF-8: where each begins, counted in characters, and all of
    their code points."""
    begins = (np.frombuffer(letters, np.uint8) & 0xC0) != 0x80
    before = np.cumsum(begins)[ends - 1]
    return np.concatenate([[0], before[:-1]]), code_points(letters.decode())
