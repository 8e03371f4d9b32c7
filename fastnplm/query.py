"""Questions to a trained model: next words, generated text, scores."""

import numpy as np

from .errors import ModelError, SettingsError
from .evaluation import Scorer
from .language_model import LOG10, likeliest, sentence, withheld
from .numeric import is_endless, is_number, is_positive, is_whole


def context_ids(model, text):
    """The last N words of ``text`` as ids int32 (N,), ``<s>`` before its start."""
    ids = np.asarray(model.vocabulary.encode(text), dtype=np.int32)[-model.context :]
    padding = np.full(model.context - len(ids), model.vocabulary.start_id, dtype=np.int32)
    return np.concatenate([padding, ids])


def distribution(model, context, kernels="auto"):
    """p of every word after ``context`` (ids, (N,)), float64 (V,), summing to 1."""
    scorer = Scorer(model, 1, kernels)
    features = scorer.features(model.contexts(context))
    scores = (model.output @ features[0] + scorer.bias).astype(np.float64)
    if getattr(model.loss, "skip_target", False):
        scores = -np.logaddexp(0, -scores)
    return _softmax(scores)


def predict(model, text, k=5, unk=False, kernels="auto"):
    """The k likeliest next words after ``text``: [(word, probability)], falling.

    ``<s>`` is never offered, ``<unk>`` only with ``unk``; k beyond the vocabulary means all of it.
    Raises SettingsError for k below 1.
    """
    return likeliest(
        model.vocabulary,
        lambda: distribution(model, context_ids(model, text), kernels),
        k,
        unk,
    )


def generate(
    model, prompt="", length=50, temperature=1.0, top_k=None, top_p=None, seed=0, unk=False,
    kernels="auto",
):  # fmt: skip
    """Words drawn one by one after ``prompt``, until ``</s>`` or ``length`` words: a list.

    temperature : 0 takes the likeliest word each time; inf draws evenly. top_k : draw among the
    k likeliest (None: no limit). top_p : among the fewest words that hold this share. The result
    is a function of the seed. Raises SettingsError for a negative or NaN temperature, top_k
    below 1 or top_p outside (0, 1].
    """
    check_sampling(length, temperature, top_k, top_p)
    generator = np.random.default_rng(seed)
    vocabulary = model.vocabulary
    ids = list(context_ids(model, prompt))
    words = []
    while len(words) < length:
        shares = distribution(model, np.array(ids[-model.context :]), kernels)
        shares[withheld(vocabulary, unk)] = 0
        chosen = draw(shares, temperature, top_k, top_p, generator)
        if chosen == vocabulary.end_id:
            break
        words.append(vocabulary.words[chosen])
        ids.append(chosen)
    return words


def check_sampling(length, temperature, top_k, top_p):
    """Refuse sampling settings that mean nothing."""
    if not is_whole(length, 0):
        raise SettingsError(f"length is {length!r}; expected a whole number of at least 0")
    if not (is_number(temperature, 0) or is_endless(temperature)):  # endless: all words alike
        raise SettingsError(f"temperature is {temperature!r}; expected a number of at least 0")
    if top_k is not None and not is_whole(top_k):
        raise SettingsError(f"top_k is {top_k!r}; expected at least 1, or none for no limit")
    if top_p is not None and not (is_positive(top_p) and top_p <= 1):
        raise SettingsError(f"top_p is {top_p!r}; expected a share in (0, 1]")


def draw(shares, temperature, top_k, top_p, generator):
    """One word id from unnormalised ``shares`` (V,); words of share 0 are never drawn."""
    possible = np.flatnonzero(shares > 0)
    if len(possible) == 0:
        raise ModelError("no word has a probability above 0; the model's parameters are damaged")
    order = possible[np.argsort(-shares[possible], kind="stable")]
    if top_k is not None:
        order = order[: int(top_k)]
    logs = np.log(shares[order])
    with np.errstate(over="ignore", divide="ignore"):
        heated = (logs - logs[0]) / temperature if temperature > 0 else np.zeros(1)
    if temperature == 0 or not np.isfinite(heated[0]):
        return int(order[0])
    p = _softmax(np.maximum(heated, -1e4))
    if top_p is not None:
        kept = int(np.searchsorted(np.cumsum(p), top_p)) + 1
        order, p = order[:kept], p[:kept]
    point = generator.random() * p.sum()
    return int(order[min(int(np.searchsorted(np.cumsum(p), point, side="right")), len(p) - 1)])


def log_probabilities(model, text, kernels="auto"):
    """log p (nats, float64) of each word of ``text`` and of ``</s>`` after it."""
    tokens = sentence(model.vocabulary, text)
    return model.log_probabilities(tokens, threads=1, kernels=kernels)


def score(model, text, kernels="auto"):
    """log10 p of ``text`` as a sentence, ``</s>`` counted, as ``kenlm.Model.score``."""
    return float(log_probabilities(model, text, kernels).sum() / LOG10)


def raw_score(model, text, kernels="auto"):
    """The unnormalised score of a sentence, in log10: its cost does not depend on V.

    The sum of the corrected scores of its words: log10 p if the scores were normalised. How far
    they are from that, ``evaluate`` reports as the mean and spread of log Z. Not a probability.
    """
    tokens = sentence(model.vocabulary, text)
    total = 0.0
    scorer = Scorer(model, 1, kernels)
    shift = model.loss.shift(model.vocabulary)
    for low in range(0, len(tokens), len(scorer._targets)):
        features, targets = scorer.block(tokens, low)
        raw = np.einsum("bf,bf->b", features, model.output[targets]) + model.output_bias[targets]
        total += float((raw + (shift[targets] if np.ndim(shift) else shift)).sum())
    return total / LOG10


def _softmax(scores):
    shares = np.exp(scores - scores.max())
    return shares / shares.sum()
