"""Text into words: what a word is, and the reading of sentences one by one.

A sentence is a line; only LF ends it. Words are separated by ASCII white space and NUL, as in
KenLM; other spaces of Unicode are part of a word. `bytes.split` has exactly this rule, `str.split`
has not, so words are always cut from UTF-8 bytes.
"""

import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any

from fastnplm.encoding import (
    ERROR_POLICIES,
    Damage,
    canonical_encoding,
    damage_marker,
    settle_damage,
)
from fastnplm.errors import SettingsError, TextError
from fastnplm.source import Block, not_utf8, open_source

UNKNOWN, START, END = "<unk>", "<s>", "</s>"
RESERVED = (UNKNOWN, START, END)

SEGMENTS = ("space", "char", "jieba")
NORMAL_FORMS = ("NFC", "NFKC")
RESERVED_POLICIES = ("reject", "whitespace", "map")

# Spaces of Unicode that `segment="char"` drops: they separate nothing and say nothing there.
_WIDE_SPACES = dict.fromkeys(
    map(
        ord,
        "\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))),
    )
)


@dataclass(frozen=True)
class TextSettings:
    """How text becomes words. Stored with the vocabulary and applied by every later stage.

    Parameters
    ----------
    segment : ``space`` (words stand between white space), ``char`` (every character is a word) or
        ``jieba`` (Chinese words found by jieba, an extra)
    lowercase : whether words are lower-cased
    normalize : None, ``NFC`` or ``NFKC``; done before lower-casing and splitting
    encoding : any text codec of Python
    errors : ``strict``, ``replace`` (damaged bytes become U+FFFD) or ``skip-line``
    reserved : what a literal ``<s>`` or ``</s>`` in text does: ``reject`` stops with an error,
        ``whitespace`` drops it, ``map`` lets ``</s>`` end and ``<s>`` begin a sentence

    Raises
    ------
    SettingsError
        If a value is none of these.
    """

    segment: str = "space"
    lowercase: bool = False
    normalize: Any = None
    encoding: str = "utf-8"
    errors: str = "strict"
    reserved: str = "reject"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("segment", SEGMENTS),
            ("normalize", (None, *NORMAL_FORMS)),
            ("errors", ERROR_POLICIES),
            ("reserved", RESERVED_POLICIES),
            ("lowercase", (False, True)),
        ):
            value = getattr(self, name)
            if value not in allowed:
                choices = ", ".join(str(choice) for choice in allowed)
                raise SettingsError(f"{name}={value!r}: must be one of {choices}")
        object.__setattr__(self, "encoding", canonical_encoding(self.encoding))

    @property
    def splitting(self) -> dict[str, Any]:
        """The settings that decide which words a text has; part of a vocabulary's fingerprint."""
        return {
            "lowercase": self.lowercase,
            "normalize": self.normalize,
            "segment": self.segment,
        }

    @property
    def plain(self) -> bool:
        """Whether words are the bytes between separators, nothing changed."""
        return self.segment == "space" and not self.lowercase and self.normalize is None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> "TextSettings":
        """Read what `as_dict` wrote; unknown or missing names are refused."""
        names = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or set(values) != names:
            raise SettingsError(f"text settings must have exactly {', '.join(sorted(names))}")
        return cls(**values)

    def with_choices(self, **choices: Any) -> "TextSettings":
        """The same settings with those of ``choices`` that are not None."""
        return replace(
            self, **{name: value for name, value in choices.items() if value is not None}
        )

    @property
    def rewrites(self) -> bool:
        """Whether text must be changed before words can be cut from it."""
        return self.lowercase or self.normalize is not None or self.segment == "jieba"

    def rewrite(self, text: str) -> str:
        """Normalise, lower-case and let jieba segment; lines stay lines."""
        if self.normalize:
            text = unicodedata.normalize(self.normalize, text)
        if self.lowercase:
            text = text.lower()
            if self.normalize:  # a few lower-case forms are decomposed
                text = unicodedata.normalize(self.normalize, text)
        if self.segment == "jieba":
            cut = _jieba_cut()
            return "\n".join(_jieba_words(line, cut) for line in text.split("\n"))
        return text

    def words(self, sentence: str) -> list[str]:
        """The words of one sentence."""
        if self.rewrites:
            sentence = self.rewrite(sentence)
        return split_characters(sentence) if self.segment == "char" else split_words(sentence)

    def word(self, word: str) -> str:
        """One word as text would spell it: normalised and lower-cased, but not segmented."""
        return replace(self, segment="space").rewrite(word)


def split_words(line: str) -> list[str]:
    """Cut at ASCII white space and NUL, and nowhere else."""
    if line.isascii():
        # str.split also cuts at the four information separators, which are part of a word.
        if "\0" in line:
            line = line.replace("\0", " ")
        if not any(separator in line for separator in "\x1c\x1d\x1e\x1f"):
            return line.split()
    return [
        word.decode("utf-8", "surrogatepass")
        for word in line.encode("utf-8", "surrogatepass").replace(b"\0", b" ").split()
    ]


def split_characters(line: str) -> list[str]:
    """Every character a word, spaces dropped; a reserved word that stands by itself stays one."""
    words: list[str] = []
    for chunk in split_words(line):
        if chunk in RESERVED:
            words.append(chunk)
        else:
            words.extend(chunk.translate(_WIDE_SPACES))
    return words


@cache
def _jieba_cut() -> Callable[[str], Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own code, on the first import
            import jieba
    except ImportError as error:
        raise SettingsError(
            "segment=jieba needs jieba; pip install 'fastnplm[jieba]' or use segment=char"
        ) from error
    jieba.setLogLevel(60)
    return jieba.cut


def _jieba_words(line: str, cut: Callable[[str], Any]) -> str:
    words: list[str] = []
    for chunk in split_words(line):
        if chunk in RESERVED:
            words.append(chunk)
        else:
            words.extend(word for word in cut(chunk) if word.strip())
    return " ".join(words)


def clean_block(block: Block, settings: TextSettings) -> tuple[Block, Damage]:
    """The block as valid UTF-8, rewritten as the settings want it, and what was mended.

    Raises
    ------
    TextError
        At a byte that is not UTF-8, when ``settings.errors`` is ``strict``.
    """
    damage = Damage()
    try:
        text = block.data.decode()
    except UnicodeDecodeError as error:
        if settings.errors == "strict":
            raise not_utf8(block, error.start) from None
        text, damage = settle_damage(block.data.decode("utf-8", damage_marker()), settings.errors)
    return replace(block, data=settings.rewrite(text).encode()), damage


def read_sentences(*given: Any, settings: TextSettings | None = None) -> Iterator[list[str]]:
    """The words of every line, in order; a blank line gives an empty list.

    ``given`` is whatever `fastnplm.source.open_source` takes. Literal reserved words are dropped
    under ``reserved="whitespace"`` and passed on under ``map``.

    Raises
    ------
    TextError
        Where the text cannot be read as ``settings`` say, with file, line and offset.
    """
    settings = settings or TextSettings()
    with open_source(*given, encoding=settings.encoding, errors=settings.errors) as source:
        for block in source.blocks(whole_lines=True):
            text = clean_block(block, settings)[0].data.decode()
            for number, line in enumerate(text.split("\n")[:-1]):
                words = split_characters(line) if settings.segment == "char" else split_words(line)
                if START in words or END in words:
                    if settings.reserved == "reject":
                        word = START if START in words else END
                        raise reserved_word(word, f"{block.name}:{block.line + number}")
                    if settings.reserved == "whitespace":
                        words = [word for word in words if word not in (START, END)]
                yield words


def reserved_word(word: str, where: str) -> TextError:
    return TextError(
        f"{where}: the text holds {word}, which is reserved for the "
        f"{'start' if word == START else 'end'} of a sentence; pass --reserved whitespace to drop "
        "it or --reserved map to let it mean that"
    )
