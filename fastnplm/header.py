"""``corpus.json``, the page that describes a corpus folder: believed only if whole."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fastnplm.errors import CorpusError

FORMAT_VERSION = 1
HEADER_NAME, TOKENS_NAME, VOCABULARY_NAME = "corpus.json", "tokens.bin", "vocabulary.tsv"


@dataclass
class Report:
    """What preparing a corpus met; counts of the text as it was read.

    ``oov`` counts tokens that are ``<unk>``, literal ones among them. ``types`` is the number of
    different words met, None where a given vocabulary made counting them needless; ``spills`` how
    often a table of counts had to be put on disk to stay within the memory allowed (all counts
    are exact all the same).
    """

    files: int = 0
    bytes: int = 0
    lines: int = 0
    blank_lines: int = 0
    skipped_lines: int = 0
    replaced_bytes: int = 0
    replaced_lines: int = 0
    reserved_words: int = 0
    sentences: int = 0
    words: int = 0
    oov: int = 0
    types: int | None = None
    spills: int = 0


@dataclass
class Header:
    """What ``corpus.json`` says."""

    tokens: int
    dtype: str
    words: int
    fingerprint: str
    tokens_checksum: str
    vocabulary_checksum: str
    report: Report
    settings: dict[str, Any] = field(default_factory=dict)
    made_with: dict[str, Any] = field(default_factory=dict)
    version: int = FORMAT_VERSION

    @property
    def item_bytes(self) -> int:
        return 2 if self.dtype == "uint16" else 4

    def render(self) -> bytes:
        """The bytes of ``corpus.json``, its own checksum included."""
        values = asdict(self)
        text = json.dumps(values, sort_keys=True, ensure_ascii=False)
        values["checksum"] = hashlib.sha256(text.encode()).hexdigest()
        return json.dumps(values, sort_keys=True, ensure_ascii=False, indent=1).encode() + b"\n"

    @classmethod
    def read(cls, folder: Path) -> "Header":
        """Read and check ``corpus.json``; a CorpusError says why it is not believed."""
        path = folder / HEADER_NAME
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CorpusError(
                f"{folder} is not a prepared corpus: {HEADER_NAME}: {error.strerror or error}"
            ) from error
        damaged = CorpusError(f"{path} is damaged or was edited; prepare the corpus again")
        try:
            values = json.loads(data)
            version = values["version"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise damaged from error
        if version != FORMAT_VERSION:
            raise CorpusError(
                f"{path} has format {version!r}, this program reads {FORMAT_VERSION}; prepare the "
                "corpus again"
            )
        try:
            values.pop("checksum")
            if set(values) != {item.name for item in fields(cls)}:
                raise ValueError("unknown or missing names")
            values["report"] = Report(**values["report"])
            header = cls(**values)
            _check_kinds(header)
            # Compared as bytes: no flipped bit survives, not even one in white space.
            if header.render() != data or header.dtype not in ("uint16", "int32"):
                raise ValueError("checksum")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise damaged from error
        return header


def _check_kinds(header: Header) -> None:
    """A ValueError unless every entry is of the kind that is written."""
    counts = [header.tokens, header.words]
    counts += [value for value in vars(header.report).values() if value is not None]
    texts = (header.fingerprint, header.tokens_checksum, header.vocabulary_checksum)
    if not all(type(count) is int and 0 <= count < 1 << 63 for count in counts):
        raise ValueError("a count is no whole number")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a checksum is no text")
    if not (isinstance(header.settings, dict) and isinstance(header.made_with, dict)):
        raise ValueError("settings are no object")
