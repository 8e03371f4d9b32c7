"""The public face of a model: the network with all that users ask of it."""

import os

import numpy as np

from . import evaluation, query, storage
from . import threads as thread_count
from .model import Network
from .vectors import Vectors


class NPLM(Network):
    __doc__ = Network.__doc__

    def predict(self, text, k=5, unk=False):
        """The k likeliest next words after ``text``: [(word, probability)], falling.

        ``<s>`` is never offered, ``<unk>`` only with ``unk``; k beyond the vocabulary: all of it.
        """
        return query.predict(self, text, k, unk)

    def generate(self, prompt="", length=50, temperature=1.0, top_k=None, top_p=None, seed=0):
        """Words drawn one by one after ``prompt``: a list; see ``query.generate``."""
        return query.generate(self, prompt, length, temperature, top_k, top_p, seed)

    def score(self, text):
        """log10 p of ``text`` as a sentence, ``</s>`` counted, as ``kenlm.Model.score``."""
        return query.score(self, text)

    def raw_score(self, text):
        """The unnormalised score in log10, at a cost independent of V; not a probability."""
        return query.raw_score(self, text)

    def distribution(self, context):
        """p of every word after ``context`` (N ids), float64 (V,), summing to 1."""
        return query.distribution(self, context)

    def log_probabilities(self, tokens, threads=None, kernels="auto"):
        """log p (nats) of every position of an encoded stream, float64 (T,)."""
        pieces = [piece[1] for piece in self.scored(tokens, threads, kernels, raw=False)]
        return np.concatenate(pieces) if pieces else np.empty(0)

    def scored(self, tokens, threads=None, kernels="auto", raw=True):
        """Yield (first position, log p, log Z, log p without the correction or None) by blocks."""
        if getattr(tokens, "dtype", None) not in (np.uint16, np.int32):
            tokens = self.ids("tokens", tokens)
        scorer = evaluation.Scorer(self, thread_count.resolve(threads), kernels)
        corrected = np.ndim(self.loss.shift(self.vocabulary)) > 0
        for low in range(0, len(tokens), evaluation.BLOCK):
            features, targets = scorer.block(tokens, low)
            log_p, log_z = scorer.log_probabilities(features, targets)
            log_p_raw = None
            if raw and corrected:
                log_p_raw, _ = scorer.log_probabilities(features, targets, self.output_bias)
            yield low, log_p, log_z, log_p_raw

    @property
    def vectors(self):
        """The embedding with its words, asked as gensim's KeyedVectors."""
        return Vectors(self.vocabulary, self.embedding)

    def save(self, folder, overwrite=True):
        """Write a model folder; an existing one is replaced at once."""
        storage.save(self, folder, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | os.PathLike):
        """Read a model folder; raises ModelError if anything about it is wrong."""
        return storage.load(folder, cls)
