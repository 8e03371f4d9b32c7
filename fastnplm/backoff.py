"""A back-off n-gram model: log probabilities of the n-grams it knows and weights for the rest.

    p(w | h) = P(h w)                       if the model knows the n-gram (h, w)
             = B(h) p(w | h without its first word)     otherwise; B(h) = 1 if it does not know h

Interpolated models are of this form too: for a known n-gram, P already holds the share of the
lower orders. It is also what an ARPA file says. How P and B are estimated is the business of
``kneser_ney`` and ``smoothing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastnplm.counts import Counts, check_ids, find_ids, first_words, ids_before, sentence_chunks
from fastnplm.errors import IdError, ModelError

__all__ = ["BackOff"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BackOff:
    """Arrays of a back-off model; index k - 1 is for n-grams of k words.

    keys : int64, sorted; see ``fastnplm.counts``. The level of single words is 0 .. V-1.
    log_probability : float64 natural logarithms; ``<s>`` has -inf, it is never predicted.
    log_backoff : float64 natural logarithms, for all orders but the highest.
    counts : int64, how often each n-gram occurred, for all orders but the highest; None when
        unknown (a model from an ARPA file). Used to ask how well a context is known.
    """

    vocabulary_size: int
    start_id: int
    end_id: int
    keys: list[Ints]
    log_probability: list[Floats]
    log_backoff: list[Floats]
    counts: list[Ints] | None = None

    @classmethod
    def of(
        cls, counts: Counts, log_probability: list[Floats], log_backoff: list[Floats]
    ) -> BackOff:
        """The model of the n-grams that were counted."""
        return cls(
            counts.vocabulary_size,
            counts.start_id,
            counts.end_id,
            counts.keys,
            log_probability,
            log_backoff,
            counts.counts[:-1],
        )

    @property
    def order(self) -> int:
        return len(self.keys)

    def log_probabilities(self, tokens: NDArray[np.integer]) -> Floats:
        """Natural log probability of every token of an encoded stream, float64 (tokens,).

        The stream begins with a sentence; each sentence ends with ``</s>`` (the last may lack it).
        Raises IdError for an id outside the vocabulary or ``<s>``.
        """
        tokens = np.asarray(tokens)
        check_ids(tokens, self.vocabulary_size, self.start_id)
        result = np.empty(len(tokens), dtype=np.float64)
        done = 0
        for part in sentence_chunks(tokens, self.end_id):
            score = result[done : done + len(part)]
            score[:] = self.log_probability[0][part]
            for k, contexts, ids in self._walk(part):
                known = contexts >= 0
                score[known] += self.log_backoff[k - 2][contexts[known]]
                found = ids >= 0
                score[found] = self.log_probability[k - 1][ids[found]]
            done += len(part)
        return result

    def _walk(self, part: NDArray[np.integer]) -> Iterator[tuple[int, Ints, Ints]]:
        """(k, ids of the k - 1 words before each token, ids of the k words that end there)."""
        firsts = first_words(part, self.end_id)
        ids = part.astype(np.int64)
        for k in range(2, self.order + 1):
            contexts = ids_before(ids, firsts, self.start_id if k == 2 else -1)
            ids = find_ids(self.keys[k - 1], contexts, part, self.vocabulary_size)
            yield k, contexts, ids

    def context_counts(self, tokens: NDArray[np.integer]) -> tuple[Ints, Ints]:
        """How well the context of every token of a stream is known: (words, occurrences).

        For each token the length of the longest context before it that training met (at most
        order - 1), and how often it did; int64 (tokens,) each. Needs ``counts``.
        """
        tokens = np.asarray(tokens)
        check_ids(tokens, self.vocabulary_size, self.start_id)
        lengths = np.zeros(len(tokens), dtype=np.int64)
        occurrences = np.zeros(len(tokens), dtype=np.int64)
        done = 0
        for part in sentence_chunks(tokens, self.end_id):
            rows = slice(done, done + len(part))
            for k, contexts, _ in self._walk(part):
                known = contexts >= 0
                lengths[rows][known] = k - 1
                occurrences[rows][known] = self._counts()[k - 2][contexts[known]]
            done += len(part)
        return lengths, occurrences

    def context_count(self, context_ids: Sequence[int] | NDArray[np.integer]) -> tuple[int, int]:
        """(words, occurrences) of ``context_counts`` for one context."""
        found = [(k, node) for k, node in enumerate(self.contexts(context_ids), 1) if node >= 0]
        if not found:
            return 0, 0
        k, node = found[-1]
        return k, int(self._counts()[k - 1][node])

    def _counts(self) -> list[Ints]:
        if self.counts is None:
            raise ModelError(
                "this n-gram model does not know how often its contexts occurred (it comes from "
                "an ARPA file); train one, or use fixed weights"
            )
        return self.counts

    def distribution(self, context_ids: Sequence[int] | NDArray[np.integer]) -> Floats:
        """Probabilities of all words after a context, float64 (V,); they sum to one.

        The context is any number of ids, the nearest word last. ``<s>`` marks the sentence's
        start: what stands before the last one is ignored (a network's contexts repeat it).
        An empty context asks for the probabilities of single words. Raises IdError for an id
        outside the vocabulary.
        """
        result = np.exp(self.log_probability[0])
        for k, node in enumerate(self.contexts(context_ids), start=1):
            if node < 0:
                continue
            low, high = np.searchsorted(
                self.keys[k], [node * self.vocabulary_size, (node + 1) * self.vocabulary_size]
            )
            result *= np.exp(self.log_backoff[k - 1][node])
            words = self.keys[k][low:high] - node * self.vocabulary_size
            result[words] = np.exp(self.log_probability[k][low:high])
        return result

    def contexts(self, context_ids: Sequence[int] | NDArray[np.integer]) -> list[int]:
        """Ids of the last 1, 2, .. words of a context as n-grams, -1 where unknown."""
        context = [int(word) for word in context_ids]
        for place, word in enumerate(context):
            if not 0 <= word < self.vocabulary_size:
                raise IdError(
                    f"id {word} at position {place} of the context lies outside the vocabulary "
                    f"of {self.vocabulary_size} words"
                )
        if self.start_id in context:
            context = context[len(context) - 1 - context[::-1].index(self.start_id) :]
        nodes = []
        for length in range(1, min(len(context), self.order - 1) + 1):
            node = context[-length]
            for k, word in enumerate(context[len(context) - length + 1 :], start=1):
                key = node * self.vocabulary_size + word
                place = int(np.searchsorted(self.keys[k], key))
                if node < 0 or place == len(self.keys[k]) or self.keys[k][place] != key:
                    node = -1
                    break
                node = place
            nodes.append(node)
        return nodes
