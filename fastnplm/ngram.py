"""The count model users meet: an n-gram model with its vocabulary, trained, asked, saved.

A model folder holds ``config.json``, ``vocabulary.tsv`` and ``ngrams.safetensors``, whose arrays
are mapped into memory, not read. For n-grams of k words: ``keys.k`` (k at least 2), int64;
``log_probability.k``, float64; and for all but the highest order ``log_backoff.k``, float64, and
``counts.k``, int64 (absent in a model that came from an ARPA file).
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastnplm.arpa import read_arpa, write_arpa
from fastnplm.backoff import BackOff
from fastnplm.counts import count_ngrams
from fastnplm.errors import ModelError, SettingsError
from fastnplm.folder import check_folder, find_folder, new_folder, read_config
from fastnplm.kneser_ney import kneser_ney
from fastnplm.language_model import LanguageModel
from fastnplm.numeric import is_whole
from fastnplm.smoothing import add_one, katz
from fastnplm.tensors import write_tensors
from fastnplm.vocabulary import Vocabulary

__all__ = ["SMOOTHINGS", "NGram"]

FORMAT = 1
KIND = "ngram"
SMOOTHINGS = {"kneser-ney": kneser_ney, "katz": katz, "add-one": add_one}
MAX_ORDER = 64
TYPES = {"F64": np.dtype("<f8"), "I64": np.dtype("<i8")}


class Encoded(Protocol):
    """What training reads of a corpus."""

    vocabulary: Vocabulary
    tokens: np.ndarray


class NGram(LanguageModel):
    """An n-gram count model over a vocabulary.

    Parameters
    ----------
    vocabulary : Vocabulary
    backoff : BackOff, the tables; their size must be the vocabulary's
    smoothing : how they were estimated (a name of ``SMOOTHINGS``, or ``arpa``)
    """

    def __init__(self, vocabulary: Vocabulary, backoff: BackOff, smoothing: str) -> None:
        if backoff.vocabulary_size != len(vocabulary):
            raise ModelError(
                f"the n-grams are over {backoff.vocabulary_size:,} words, the vocabulary has "
                f"{len(vocabulary):,}"
            )
        self.vocabulary = vocabulary
        self.backoff = backoff
        self.smoothing = smoothing

    @classmethod
    def train(cls, corpus: Encoded, order: int = 5, smoothing: str = "kneser-ney") -> NGram:
        """Count and smooth a corpus.

        order : the longest n-gram: 1 is the unigram model, 3 a trigram
        smoothing : ``kneser-ney`` (interpolated, modified: the numbers of KenLM's lmplz),
            ``katz`` or ``add-one``

        Raises SettingsError for an order or smoothing that does not exist.
        """
        if smoothing not in SMOOTHINGS:
            raise SettingsError(f"smoothing={smoothing!r}; choose from {', '.join(SMOOTHINGS)}")
        if not is_whole(order) or order > MAX_ORDER:
            raise SettingsError(f"order={order!r}; expected a whole number from 1 to {MAX_ORDER}")
        vocabulary = corpus.vocabulary
        counts = count_ngrams(
            corpus.tokens, len(vocabulary), vocabulary.start_id, vocabulary.end_id, int(order)
        )
        return cls(vocabulary, SMOOTHINGS[smoothing](counts), smoothing)

    @property
    def order(self) -> int:
        return self.backoff.order

    def __repr__(self) -> str:
        sizes = " + ".join(f"{len(keys):,}" for keys in self.backoff.keys)
        return f"NGram({self.smoothing}, order {self.order}, {sizes} n-grams)"

    def log_probabilities(self, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
        """Natural log probability of every token of an encoded stream, float64 (tokens,).

        The stream begins with a sentence; each sentence ends with ``</s>``, which is scored too.
        Raises IdError for an id outside the vocabulary or ``<s>``.
        """
        return self.backoff.log_probabilities(tokens)

    def distribution(self, context_ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float64]:
        """Probabilities of all words after a context of any length, float64 (V,), sum one.

        See ``BackOff.distribution``.
        """
        return self.backoff.distribution(context_ids)

    def save(self, folder: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Write a model folder, whole or not at all.

        An existing model folder is replaced at once, or refused if ``overwrite`` is false.
        """
        tables = self.backoff
        arrays: dict[str, np.ndarray] = {}
        for k in range(1, tables.order + 1):
            arrays[f"log_probability.{k}"] = tables.log_probability[k - 1]
            if k > 1:
                arrays[f"keys.{k}"] = tables.keys[k - 1]
            if k < tables.order:
                arrays[f"log_backoff.{k}"] = tables.log_backoff[k - 1]
                if tables.counts is not None:
                    arrays[f"counts.{k}"] = tables.counts[k - 1]
        config = {
            "format": FORMAT,
            "kind": KIND,
            "order": tables.order,
            "smoothing": self.smoothing,
            "ngrams": [len(keys) for keys in tables.keys],
            "counts": tables.counts is not None,
            "vocabulary_fingerprint": self.vocabulary.fingerprint,
        }
        with new_folder(folder, overwrite) as fresh:
            (fresh / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
            self.vocabulary.save(fresh / "vocabulary.tsv")
            write_tensors(fresh / "ngrams.safetensors", arrays)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> NGram:
        """Open a model folder; its files are checked, the tables are then mapped into memory.

        Raises ModelError naming the file and what is wrong with it.
        """
        found = find_folder(folder)
        check_folder(found, ("config.json", "ngrams.safetensors", "vocabulary.tsv"))
        place = found / "config.json"
        config = read_config(place, FORMAT, KIND)
        vocabulary = Vocabulary.load(found / "vocabulary.tsv")
        if vocabulary.fingerprint != config.get("vocabulary_fingerprint"):
            raise ModelError(f"{folder}: vocabulary.tsv is not the one config.json belongs to")
        sizes, with_counts = config.get("ngrams"), config.get("counts")
        smoothing = config.get("smoothing")
        if (
            not isinstance(sizes, list)
            or not 1 <= len(sizes) <= MAX_ORDER
            or not all(isinstance(size, int) and size >= 0 for size in sizes)
            or sizes[0] != len(vocabulary)
            or not isinstance(with_counts, bool)
            or not isinstance(smoothing, str)
        ):
            raise ModelError(f"{place}: does not describe an n-gram model; it is damaged")
        expected: dict[str, tuple[str, int]] = {}
        for k, size in enumerate(sizes, start=1):
            expected[f"log_probability.{k}"] = ("F64", size)
            if k > 1:
                expected[f"keys.{k}"] = ("I64", size)
            if k < len(sizes):
                expected[f"log_backoff.{k}"] = ("F64", size)
                if with_counts:
                    expected[f"counts.{k}"] = ("I64", size)
        arrays = map_arrays(found / "ngrams.safetensors", expected)
        orders = range(1, len(sizes) + 1)
        tables = BackOff(
            len(vocabulary),
            vocabulary.start_id,
            vocabulary.end_id,
            [np.arange(sizes[0], dtype=np.int64), *(arrays[f"keys.{k}"] for k in orders[1:])],
            [arrays[f"log_probability.{k}"] for k in orders],
            [arrays[f"log_backoff.{k}"] for k in orders[:-1]],
            [arrays[f"counts.{k}"] for k in orders[:-1]] if with_counts else None,
        )
        return cls(vocabulary, tables, smoothing)

    def write_arpa(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an ARPA file (``.gz``: compressed), for any other toolkit."""
        write_arpa(self.backoff, self.vocabulary.words, path)

    @classmethod
    def read_arpa(cls, path: str | os.PathLike[str], vocabulary: Vocabulary | None = None) -> NGram:
        """Read an ARPA file of any toolkit.

        With ``vocabulary`` its ids are used (to mix with another model of that vocabulary) and
        the file must have the same words. Raises ModelError with file and line.
        """
        tables, words = read_arpa(path, None if vocabulary is None else vocabulary.words)
        return cls(vocabulary or Vocabulary.from_words(words), tables, "arpa")


def map_arrays(path: Path, expected: dict[str, tuple[str, int]]) -> dict[str, np.ndarray]:
    """One-dimensional arrays of a safetensors file, mapped into memory, read-only.

    ``expected`` gives (type, length) of every array; anything else raises ModelError.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(head)) if head <= min(size, 1 << 20) else None
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not a safetensors file ({error})") from error
    if not isinstance(header, dict) or set(header) - {"__metadata__"} != set(expected):
        raise ModelError(f"{path}: does not hold the arrays that config.json describes")
    arrays = {}
    for name, (kind, length) in expected.items():
        entry = header[name]
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        begin = offsets[0] if isinstance(offsets, list) and offsets else None
        if (
            not isinstance(begin, int)
            or not 0 <= begin <= size - 8 - head - 8 * length
            or entry["data_offsets"] != [begin, begin + 8 * length]
            or (entry.get("dtype"), entry.get("shape")) != (kind, [length])
        ):
            raise ModelError(f"{path}: {name} is not {length} numbers of type {kind}")
        arrays[name] = np.frombuffer(data, TYPES[kind], length, 8 + head + begin)
    return arrays
