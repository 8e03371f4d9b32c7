"""What every language model can be asked, given three things: ``vocabulary``,
``log_probabilities(tokens)`` and ``distribution(context_ids)``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastnplm.errors import SettingsError
from fastnplm.numeric import is_whole
from fastnplm.vocabulary import Vocabulary

__all__ = ["LOG10", "LanguageModel", "likeliest", "sentence", "withheld"]

LOG10 = math.log(10.0)


def sentence(vocabulary: Vocabulary, text: str | Iterable[str]) -> NDArray[np.int32]:
    """``text`` as ids with ``</s>`` after it, int32."""
    return np.append(vocabulary.encode(text), vocabulary.end_id).astype(np.int32)


def withheld(vocabulary: Vocabulary, unk: bool) -> list[int]:
    """The words that are never offered: ``<s>``, and ``<unk>`` unless it is asked for."""
    kept_back = [vocabulary.start_id, None if unk else vocabulary.unk_id]
    return [i for i in kept_back if i is not None]


def likeliest(
    vocabulary: Vocabulary, distribution: Callable[[], NDArray[np.float64]], k: int, unk: bool
) -> list[tuple[str, float]]:
    """The k likeliest words of a distribution: [(word, probability)], falling.

    Raises SettingsError for k below 1, before ``distribution`` is called; k beyond the vocabulary
    means all of it.
    """
    if not is_whole(k):
        raise SettingsError(f"k is {k!r}; expected a whole number of at least 1")
    shares = np.array(distribution())
    shares[withheld(vocabulary, unk)] = -1
    order = np.argsort(-shares, kind="stable")[: int(k)]
    return [(vocabulary.words[i], float(shares[i])) for i in order if shares[i] >= 0]


class LanguageModel:
    """Text-level questions for models that know the whole sentence before a word.

    vocabulary : Vocabulary
    log_probabilities(tokens) : natural log p of every token of an encoded stream, float64
    distribution(context_ids) : p of every word after a context, float64 (V,), summing to one;
        ``<s>`` has none
    """

    vocabulary: Vocabulary

    def log_probabilities(self, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
        raise NotImplementedError

    def distribution(self, context_ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float64]:
        raise NotImplementedError

    def predict(
        self, text: str | Iterable[str] = "", k: int = 5, unk: bool = False
    ) -> list[tuple[str, float]]:
        """The k likeliest next words after ``text``: [(word, probability)], falling.

        ``text`` begins a sentence. ``<s>`` is never offered, ``<unk>`` only with ``unk``; k beyond
        the vocabulary means all of it. Raises SettingsError for k below 1.
        """
        start = self.vocabulary.start_id
        return likeliest(
            self.vocabulary,
            lambda: self.distribution([start, *self.vocabulary.encode(text).tolist()]),
            k,
            unk,
        )

    def score(self, text: str | Iterable[str]) -> float:
        """log10 p of ``text`` as a sentence, ``</s>`` counted, as ``kenlm.Model.score``."""
        return float(self.log_probabilities(sentence(self.vocabulary, text)).sum()) / LOG10
