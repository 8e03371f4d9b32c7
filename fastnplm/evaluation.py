"""Exact perplexity, the same for every loss: what DESIGN calls the one judge of every model.

Any model with ``vocabulary`` and ``log_probabilities(tokens)`` can be evaluated.
"""

import dataclasses
import math

import numpy as np

from . import hashing
from .corpus import Corpus, require_same_vocabulary
from .errors import CorpusError

BLOCK = 512  # examples a block, always the same cut: no figure depends on anything else


@dataclasses.dataclass(frozen=True)
class Report:
    """What a model makes of a text.

    perplexity : exp(nats / tokens); tokens : scored words and one ``</s>`` a sentence;
    oov : words unknown to the vocabulary, scored as ``<unk>``; perplexity_without_oov : over the
    other tokens; nats : the total negative log-likelihood. After a sampled loss also
    log_normalizer_mean and _spread (mean and standard deviation of log Z of the raw scores: how
    far from normalised they are) and, where the loss needs a correction,
    perplexity_uncorrected: what it would be without.
    """

    perplexity: float
    tokens: int
    sentences: int
    oov: int
    perplexity_without_oov: float
    nats: float
    log_normalizer_mean: float | None = None
    log_normalizer_spread: float | None = None
    perplexity_uncorrected: float | None = None

    def as_dict(self):
        """The report as a dict for JSON, without what does not apply."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


def evaluate(model, text, threads=None, kernels="auto", details=True):
    """The exact perplexity of ``text`` under ``model``.

    text : a path, several, an iterable of sentences, or a Corpus of the model's vocabulary.
    details : also what the perplexity would be without the loss's correction (a second pass).
    Sums are float64; the result depends neither on threads nor on how the text is cut.
    Raises CorpusError for a text without tokens or a corpus of another vocabulary.
    """
    if isinstance(text, Corpus):
        require_same_vocabulary(text, model.vocabulary)
        return _report(model, text, threads, kernels, details)
    with Corpus.prepare(text, vocabulary=model.vocabulary) as corpus:
        return _report(model, corpus, threads, kernels, details)


def _report(model, corpus, threads, kernels, details):
    tokens = corpus.tokens
    if len(tokens) == 0:
        raise CorpusError("there are no tokens to evaluate")
    unknown = model.vocabulary.unk_id
    nats, known_nats, oov, sentences = [], [], 0, 0
    normalizers, uncorrected = [], []
    sampled = getattr(getattr(model, "loss", None), "name", "softmax") != "softmax"
    if hasattr(model, "scored"):
        blocks = model.scored(tokens, threads=threads, kernels=kernels, raw=details)
    else:  # a count model or a mixture knows only its log probabilities
        blocks = [(0, model.log_probabilities(tokens), None, None)]
    for low, log_p, log_z, log_p_raw in blocks:
        block = np.asarray(tokens[low : low + len(log_p)])
        is_unknown = block == unknown if unknown is not None else np.zeros(len(block), bool)
        nats.append(-log_p.sum())
        known_nats.append(-log_p[~is_unknown].sum())
        oov += int(is_unknown.sum())
        sentences += int((block == model.vocabulary.end_id).sum())
        if log_z is not None and sampled:
            normalizers.append(log_z)
        if log_p_raw is not None:
            uncorrected.append(-log_p_raw.sum())
    total = math.fsum(nats)
    normalizers = np.concatenate(normalizers) if normalizers else None
    return Report(
        perplexity=_exp(total / len(tokens)),
        tokens=len(tokens),
        sentences=sentences,
        oov=oov,
        perplexity_without_oov=_exp(math.fsum(known_nats) / max(len(tokens) - oov, 1)),
        nats=total,
        log_normalizer_mean=None if normalizers is None else float(normalizers.mean()),
        log_normalizer_spread=None if normalizers is None else float(normalizers.std()),
        perplexity_uncorrected=(
            _exp(math.fsum(uncorrected) / len(tokens)) if uncorrected else None
        ),
    )


def _exp(value):
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


class Scorer:
    """Log probabilities of a network over a token stream, block by block, in its own buffers."""

    def __init__(self, network, threads, kernels):
        self.network = network
        self.kernels = network.kernels(kernels)
        self.threads = threads
        self.bias = network.probability_bias()
        dtype = network.dtype
        self._contexts = np.empty((BLOCK, network.context), np.int32)
        self._targets = np.empty(BLOCK, np.int32)
        self._inputs = np.empty((BLOCK, network.context * network.dim), dtype)
        self._hidden = np.empty((BLOCK, network.hidden), dtype)
        self._normalizer = np.empty(BLOCK)
        self._score = np.empty(BLOCK)

    def features(self, contexts):
        """The layer below the scores, (B, F), for int32 contexts (B, N); B at most BLOCK."""
        network, batch = self.network, len(contexts)
        inputs, hidden = self._inputs[:batch], self._hidden[:batch]
        self.kernels.gather_rows(
            contexts.reshape(-1), network.embedding, inputs.reshape(-1, network.dim),
            threads=self.threads,
        )  # fmt: skip
        if network.hidden:
            self.kernels.layer_forward(
                inputs, network.hidden_weight, network.hidden_bias, hidden, threads=self.threads
            )
        features = hidden
        for name in network.upper_layers():
            joined = network.reads_vectors(name)
            if joined:
                features = np.concatenate([features, inputs], axis=1)
            weight, bias = (network.parameters[f"{name}_{part}"] for part in ("weight", "bias"))
            above = np.empty((batch, len(weight)), network.dtype)
            self.kernels.layer_forward(
                features, weight, bias, above, linear=joined, threads=self.threads
            )
            features = features + above if name == "second" else above
        if network.hashed:
            hashing.add(contexts, network.hashed_weight, features)
        return np.concatenate([features, inputs], axis=1) if network.scores_inputs else features

    def block(self, tokens, low):
        """(features, targets) of the positions low .. low + BLOCK of the stream."""
        positions = np.arange(low, min(low + BLOCK, len(tokens)), dtype=np.int64)
        contexts, targets = self._contexts[: len(positions)], self._targets[: len(positions)]
        vocabulary = self.network.vocabulary
        self.kernels.form_contexts(
            tokens, positions, vocabulary.start_id, vocabulary.end_id, contexts, targets
        )
        return self.features(contexts), targets

    def log_probabilities(self, features, targets, bias=None):
        """(log p of the targets, log Z of the corrected scores), float64 (B,) each."""
        if getattr(self.network.loss, "skip_target", False):
            return self._sigmoid_log_probabilities(features, targets)
        normalizer, score = self._normalizer[: len(targets)], self._score[: len(targets)]
        self.kernels.softmax_forward(
            features, targets, self.network.output, self.bias if bias is None else bias,
            normalizer, score, threads=self.threads,
        )  # fmt: skip
        return score - normalizer, normalizer.copy()

    def _sigmoid_log_probabilities(self, features, targets):
        """For negative sampling that skipped the target: p proportional to sigmoid(z)."""
        z = features.astype(np.float64) @ self.network.output.T + self.bias
        log_sigmoid = -np.logaddexp(0, -z)
        total = np.logaddexp.reduce(log_sigmoid, axis=1)
        return log_sigmoid[np.arange(len(targets)), targets] - total, total
