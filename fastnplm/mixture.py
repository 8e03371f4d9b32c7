"""A mixture of language models: p(w | h) = sum_i weight_i(h) p_i(w | h).

The weights are fixed, or depend on how well the context is known to a count model of the mixture
(Bengio et al. 2003, section 4.2, mix network and trigram both ways). Either kind is found by
expectation maximisation on validation text.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastnplm.corpus import Corpus, require_same_vocabulary
from fastnplm.counts import sentence_chunks
from fastnplm.errors import ModelError, SettingsError
from fastnplm.folder import check_folder, find_folder, new_folder, read_config
from fastnplm.language_model import LanguageModel
from fastnplm.ngram import NGram

__all__ = ["Mixture", "best_weights"]

FORMAT = 1
KIND = "mixture"
BUCKETS = 20
"""Bins of a context's count for each length: 0, 1, 2-3, 4-7, and so on; the last is open."""
PRIOR = 30.0
"""Each bin also counts this many imaginary tokens that are shared out by the fixed weights.

On halves of PTB's validation text 3 to 30 do equally well and 300 worse. There, bins by length and
count do better than by length alone or by how often the two words before occurred."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Mixture(LanguageModel):
    """Several models of one vocabulary, weighted.

    Parameters
    ----------
    members : models with ``vocabulary``, ``log_probabilities`` and ``distribution``: networks,
        count models, mixtures
    weights : (members,), fixed; or (bins, members), a row for each bin of contexts. Rows are
        not negative and sum to one.
    counter : for weights by bins, which member says how well a context is known: an ``NGram``

    Raises
    ------
    ModelError
        If the vocabularies differ or the weights do not fit.
    """

    def __init__(
        self,
        members: Sequence[Any],
        weights: Sequence[float] | Floats,
        counter: int | None = None,
    ) -> None:
        if not members:
            raise ModelError("a mixture needs at least one model")
        self.members = list(members)
        self.vocabulary = self.members[0].vocabulary
        for place, member in enumerate(self.members):
            if member.vocabulary.fingerprint != self.vocabulary.fingerprint:
                raise ModelError(
                    f"model {place + 1} of the mixture has another vocabulary than model 1; "
                    "train both on corpora that share one"
                )
        self.counter = counter
        self.weights = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        if counter is not None and not (
            0 <= counter < len(members) and isinstance(members[counter], NGram)
        ):
            raise ModelError(f"model {counter} of the mixture is no count model; it cannot count")
        bins = 1 if counter is None else self.members[counter].order * BUCKETS
        if self.weights.shape != (bins, len(self.members)):
            raise ModelError(
                f"weights of shape {self.weights.shape} for {len(self.members)} models and "
                f"{bins} bins; expected {(bins, len(self.members))}"
            )
        if not (self.weights >= 0).all() or not (abs(self.weights.sum(axis=1) - 1) < 1e-9).all():
            raise ModelError("the weights of a mixture must not be negative and must sum to one")

    @classmethod
    def tune(cls, members: Sequence[Any], text: Any, weights: str = "fixed") -> Mixture:
        """Find the weights that make validation text most probable.

        text : as for ``evaluate``: a path, several, an iterable of sentences, or a Corpus
        weights : ``fixed``; or ``context``: by the longest context the first count model of
            ``members`` knows and how often it was seen. Bins with little text stay close to the
            fixed weights.
        """
        if isinstance(text, Corpus):
            require_same_vocabulary(text, members[0].vocabulary)
            return cls.tune_tokens(members, text.tokens, weights)
        with Corpus.prepare(text, vocabulary=members[0].vocabulary) as corpus:
            return cls.tune_tokens(members, corpus.tokens, weights)

    @classmethod
    def tune_tokens(
        cls, members: Sequence[Any], tokens: NDArray[np.integer], weights: str = "fixed"
    ) -> Mixture:
        """``tune`` on an encoded stream."""
        if weights not in ("fixed", "context"):
            raise SettingsError(f"weights={weights!r}; choose fixed or context")
        equal = cls(members, np.full(len(members), 1 / len(members)))  # checks the members
        table = np.empty((len(tokens), len(members)))
        for place, member in enumerate(members):
            table[:, place] = member.log_probabilities(tokens)
        fixed = best_weights(table, equal.weights[0])
        if weights == "fixed":
            return cls(members, fixed)
        counter = next((i for i, m in enumerate(members) if isinstance(m, NGram)), None)
        if counter is None:
            raise SettingsError(
                "weights=context needs a count model among the members; add one, or use fixed"
            )
        bins = bins_of(*members[counter].backoff.context_counts(tokens))
        order = np.argsort(bins, kind="stable")
        edges = np.searchsorted(bins[order], np.arange(members[counter].order * BUCKETS + 1))
        rows = [
            best_weights(table[order[low:high]], fixed, PRIOR * fixed)
            for low, high in itertools.pairwise(edges)
        ]
        return cls(members, np.array(rows), counter)

    def __repr__(self) -> str:
        kind = "fixed" if self.counter is None else f"by context of model {self.counter + 1}"
        return f"Mixture({len(self.members)} models, weights {kind})"

    def log_probabilities(self, tokens: NDArray[np.integer], **options: Any) -> Floats:
        """Natural log probability of every token of an encoded stream, float64 (tokens,).

        ``options`` (threads, kernels) are for members that are networks.
        """
        tokens = np.asarray(tokens)
        result = np.empty(len(tokens))
        done = 0
        for part in sentence_chunks(tokens, self.vocabulary.end_id):
            with np.errstate(divide="ignore"):  # a weight of zero
                logs = np.log(self.weights[self._bins(part)])
            total = np.full(len(part), -np.inf)
            for place, member in enumerate(self.members):
                given = options if hasattr(member, "context") or hasattr(member, "members") else {}
                found = member.log_probabilities(part, **given)
                np.logaddexp(total, found + logs[:, place], out=total)
            result[done : done + len(part)] = total
            done += len(part)
        return result

    def _bins(self, tokens: NDArray[np.integer]) -> Ints:
        if self.counter is None:
            return np.zeros(len(tokens), dtype=np.int64)
        return bins_of(*self.members[self.counter].backoff.context_counts(tokens))

    def weights_after(self, context_ids: Sequence[int] | NDArray[np.integer]) -> Floats:
        """The weight of each member after a context, float64 (members,)."""
        if self.counter is None:
            return self.weights[0]
        known = self.members[self.counter].backoff.context_count(context_ids)
        return self.weights[bins_of(*map(np.atleast_1d, known))[0]]

    def distribution(self, context_ids: Sequence[int] | NDArray[np.integer]) -> Floats:
        """Probabilities of all words after a context of any length, float64 (V,), sum one."""
        result = np.zeros(len(self.vocabulary))
        for weight, member in zip(self.weights_after(context_ids), self.members, strict=True):
            context = context_ids
            if hasattr(member, "context"):  # a network: exactly so many words
                context = exact_context(context_ids, member.context, self.vocabulary.start_id)
            result += weight * member.distribution(context)
        return result

    def save(self, folder: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Write a folder that holds the weights and, in folders of their own, the members.

        An existing model folder is replaced at once, or refused if ``overwrite`` is false.
        """
        config = {
            "format": FORMAT,
            "kind": KIND,
            "members": len(self.members),
            "counter": self.counter,
            "weights": self.weights.tolist(),
        }
        with new_folder(folder, overwrite) as fresh:
            (fresh / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
            for place, member in enumerate(self.members):
                member.save(fresh / f"member-{place + 1}")

    @classmethod
    def load(cls, folder: str | os.PathLike[str], load_member: Callable[[Path], Any]) -> Mixture:
        """Read a mixture; each member by ``load_member(folder)``, which knows the other kinds.

        Raises ModelError naming the file and what is wrong with it.
        """
        found = find_folder(folder)
        check_folder(found, ("config.json",))
        place = found / "config.json"
        config = read_config(place, FORMAT, KIND)
        size, counter = config.get("members"), config.get("counter")
        if not isinstance(size, int) or not isinstance(counter, int | None):
            raise ModelError(f"{place}: does not describe a mixture; it is damaged")
        try:
            weights = np.array(config.get("weights"), dtype=np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(f"{place}: its weights are no table of numbers") from error
        if weights.ndim != 2 or weights.shape[1] != size:
            raise ModelError(f"{place}: its weights are not those of {size} models")
        members = [load_member(found / f"member-{i + 1}") for i in range(size)]
        return cls(members, weights, counter)


def best_weights(
    log_probabilities: Floats,
    start: Floats,
    prior: Floats | None = None,
    tolerance: float = 1e-10,
    rounds: int = 2000,
) -> Floats:
    """Weights that maximise the likelihood of a text under a mixture, by EM.

    log_probabilities : float64 (tokens, members), natural logs of each member for each token
    start : (members,), where to begin; the answer does not depend on it (the problem is concave)
        but for weights that begin at zero and stay there
    prior : (members,), imaginary tokens that belong to each member; default none

    Stops when a round gains less than ``tolerance`` nats a token. Tokens that no member thinks
    possible say nothing about the weights and are left out. float64 (members,), summing to one.
    """
    best = log_probabilities.max(axis=1, initial=-np.inf)
    possible = best > -np.inf
    # Relative to the best member nothing under- or overflows, and the shares are the same.
    shares = np.exp(log_probabilities[possible] - best[possible, None])
    prior = np.zeros(len(start)) if prior is None else prior
    total = len(shares) + prior.sum()
    weights = np.array(start, dtype=np.float64)
    if total == 0:
        return weights
    before = -np.inf
    for _ in range(rounds):
        mixed = shares @ weights
        with np.errstate(divide="ignore", invalid="ignore"):
            imagined = np.where(prior > 0, prior * np.log(weights), 0.0).sum()
        now = (np.log(mixed).sum() + imagined) / total
        if now - before < tolerance:
            break
        before = now
        weights = (weights * (shares.T @ (1 / mixed)) + prior) / total
    return weights / weights.sum()


def bins_of(lengths: Ints, occurrences: Ints) -> Ints:
    """The bin of each context from its longest known part: by its length, then its count."""
    size = np.frexp(occurrences.astype(np.float64))[1]  # 0 for 0, 1 for 1, 2 for 2-3, ...
    return lengths * BUCKETS + np.minimum(size, BUCKETS - 1)


def exact_context(
    context_ids: Sequence[int] | NDArray[np.integer], length: int, start_id: int
) -> NDArray[np.int32]:
    """The last ``length`` ids of a sentence so far, ``<s>`` before its start, int32."""
    ids = np.asarray(context_ids, dtype=np.int32)[-length:]
    return np.concatenate([np.full(length - len(ids), start_id, dtype=np.int32), ids])
