"""What every language model can be asked, given three things: ``vocabulary``,
``log_probabilities(tokens)`` and ``distribution(context_ids)``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastnplm.errors import SettingsError
from fastnplm.vocabulary import Vocabulary
from fastnplm.whole import is_whole

__all__ = ["LanguageModel"]


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
        if not is_whole(k):
            raise SettingsError(f"k is {k!r}; expected a whole number of at least 1")
        vocabulary = self.vocabulary
        shares = self.distribution([vocabulary.start_id, *vocabulary.encode(text).tolist()])
        withheld = {vocabulary.start_id, *([] if unk else [vocabulary.unk_id])}
        order = [int(i) for i in np.argsort(-shares, kind="stable") if int(i) not in withheld]
        return [(vocabulary.words[i], float(shares[i])) for i in order[: int(k)]]

    def score(self, text: str | Iterable[str]) -> float:
        """log10 p of ``text`` as a sentence, ``</s>`` counted, as ``kenlm.Model.score``."""
        ids = self.vocabulary.encode(text)
        tokens = np.append(ids, self.vocabulary.end_id).astype(np.int32)
        return float(self.log_probabilities(tokens).sum()) / math.log(10)
