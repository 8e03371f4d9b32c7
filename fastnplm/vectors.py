"""Word vectors: neighbours and analogies over the rows of the embedding."""

import numpy as np

from .errors import SettingsError, VectorsError
from .numeric import is_whole

_BLOCK = 4096


class Vectors:
    """Words and their rows (V, M), asked as gensim's KeyedVectors are.

    A row of zeros has no direction: it is no one's neighbour, and asking for its neighbours is
    refused.
    """

    def __init__(self, vocabulary, rows):
        self.vocabulary, self.rows = vocabulary, rows

    def __getitem__(self, word):
        return self.rows[self._id(word)].copy()

    def __contains__(self, word):
        return word in self.vocabulary

    def __len__(self):
        return len(self.rows)

    def similarity(self, first, second):
        """Cosine of two words' rows."""
        a, b = self._unit(self._id(first)), self._unit(self._id(second))
        return float(a @ b)

    def most_similar(self, positive, negative=(), topn=10):
        """The words of the highest cosine to the sum of the positive less the negative unit rows.

        positive, negative : a word or several. Returns [(word, cosine)], falling; never the words
        asked about, the reserved ones or rows of zeros. topn beyond the vocabulary means all.
        Raises VectorsError for an unknown word or one whose row is zeros.
        """
        if not is_whole(topn):
            raise SettingsError(f"topn is {topn!r}; expected a whole number of at least 1")
        plus, minus = _several(positive), _several(negative)
        asked = [self._id(word) for word in plus + minus]
        if not asked:
            raise SettingsError("most_similar needs at least one word")
        signs = [1.0] * len(plus) + [-1.0] * len(minus)
        query = sum(sign * self._unit(i) for sign, i in zip(signs, asked, strict=True))
        cosines = self._cosines(query)
        cosines[asked] = -np.inf
        for reserved in (self.vocabulary.unk_id, self.vocabulary.start_id, self.vocabulary.end_id):
            if reserved is not None:
                cosines[reserved] = -np.inf
        order = np.argsort(-cosines, kind="stable")[: int(topn)]
        return [
            (self.vocabulary.words[i], float(cosines[i])) for i in order if np.isfinite(cosines[i])
        ]

    def analogy(self, first, second, third, topn=10):
        """What is to ``third`` as ``second`` is to ``first`` (3CosAdd, Mikolov et al. 2013)."""
        return self.most_similar([second, third], [first], topn)

    def _cosines(self, query):
        length = np.linalg.norm(query)
        cosines = np.full(len(self.rows), -np.inf)
        for low in range(0, len(self.rows), _BLOCK):
            rows = self.rows[low : low + _BLOCK].astype(np.float64)
            lengths = np.linalg.norm(rows, axis=1)
            directed = lengths > 0
            scale = lengths[directed] * (length if length > 0 else 1.0)
            cosines[low : low + _BLOCK][directed] = (rows[directed] @ query) / scale
        return cosines

    def _unit(self, index):
        row = self.rows[index].astype(np.float64)
        length = np.linalg.norm(row)
        if length == 0:
            word = self.vocabulary.words[index]
            raise VectorsError(f"the vector of {word!r} is all zeros and has no direction")
        return row / length

    def _id(self, word):
        if word not in self.vocabulary:
            raise VectorsError(f"{word!r} is not in the vocabulary of {len(self.vocabulary)} words")
        return self.vocabulary[word]


def _several(words):
    one = isinstance(words, str) or not hasattr(words, "__iter__")
    return [words] if one else list(words)
