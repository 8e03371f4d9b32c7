"""A corpus of more tokens than the disk has room for: a file with a hole."""

from pathlib import Path

import numpy as np

from fastnplm.corpus import Corpus
from fastnplm.header import Header, Report


def sparse_corpus(folder: Path, length: int) -> None:
    """Make a corpus of ``length`` tokens: zeros that take no room, the last ten of them 1 to 10."""
    Corpus.prepare(["a b c d e f g h"], out=folder, min_count=1).close()
    header = Header.read(folder)
    header.tokens = length
    header.report = Report(words=length - 1, sentences=1)
    (folder / "corpus.json").write_bytes(header.render())
    with open(folder / "tokens.bin", "wb") as stream:
        stream.truncate(2 * length)
        stream.seek(2 * (length - 10))
        stream.write(np.arange(1, 11, dtype="<u2").tobytes())
