"""The losses: exact softmax, negative sampling, NCE. One interface: swapping is one word.

A loss object is its settings. ``layer`` makes its output layer for a run: hidden units and
targets in; losses, gradient of the hidden units and the updated output rows out.
"""

import dataclasses
from typing import ClassVar

import numpy as np

from . import arrays
from . import noise as noise_module
from .errors import SettingsError
from .numeric import is_number, is_whole

MANY_NEGATIVES, SHARED = 20, 32

# Beyond so many words the exact softmax takes hours for what a sampled loss does in minutes: at
# 162,010 words, tied, 281 ms a step of 512 examples where NCE with 512 negatives takes 10.
LARGE_VOCABULARY = 50_000


@dataclasses.dataclass(frozen=True)
class Softmax:
    """Exact cross-entropy over the whole vocabulary: gradient p - onehot."""

    name: ClassVar[str] = "softmax"
    label: ClassVar[str] = "loss"

    def shift(self, vocabulary):
        """What the trained score lacks to be log p (up to a constant): 0."""
        return 0.0

    def layer(self, vocabulary, width, batch_size, kernels, threads, precision, buffer_mib):
        """The output layer of this loss for batches of at most ``batch_size`` examples."""
        return _SoftmaxLayer(
            len(vocabulary), width, batch_size, kernels, threads, precision, buffer_mib
        )


@dataclasses.dataclass(frozen=True)
class _Sampled:
    """What the two sampled losses share.

    negatives : K, noise words an example
    power : noise q proportional to count ** power
    shared : how many neighbouring examples of a batch share their noise words; 1: none; None:
        by the number of negatives, see ``block``
    """

    negatives: int = 10
    power: float = 0.75
    shared: int | None = None

    def __post_init__(self):
        if not is_whole(self.negatives):
            raise SettingsError(f"negatives is {self.negatives!r}; expected at least 1 noise word")
        if self.shared is not None and not is_whole(self.shared):
            raise SettingsError(f"shared is {self.shared!r}; expected at least 1 example")
        if not is_number(self.power):
            raise SettingsError(f"power is {self.power!r}; expected a finite number such as 0.75")

    @property
    def block(self):
        """How many neighbouring examples share their noise words.

        Sharing turns the scores into matrix products. With few negatives that saves little and
        leaves a batch few different noise words; from ``MANY_NEGATIVES`` on it makes a step 1.6 to
        3.5 times as fast and costs little (docs/losses.md).
        """
        if self.shared is not None:
            return self.shared
        return SHARED if self.negatives >= MANY_NEGATIVES else 1

    def log_expected(self, vocabulary):
        """log(K q), float64 (V,); 0 for ``<s>``, which keeps its score of -60."""
        log_q = noise_module.log_noise(vocabulary, self.power)
        shift = np.log(self.negatives) + log_q
        if vocabulary.start_id is not None:
            shift[vocabulary.start_id] = 0.0
        return shift


@dataclasses.dataclass(frozen=True)
class NegativeSampling(_Sampled):
    """Negative sampling (Mikolov et al. 2013): at its optimum s = log p - log(K q).

    So p is proportional to q * e^s: ``shift`` puts log(K q) back wherever a probability is asked.
    A noise word equal to the target counts (else the optimum would be another one);
    ``skip_target`` drops it as word2vec does, and then p is proportional to
    sigmoid(s + log(K q)).
    """

    name: ClassVar[str] = "ns"
    label: ClassVar[str] = "ns loss"
    skip_target: bool = False

    def shift(self, vocabulary):
        return self.log_expected(vocabulary)

    def layer(self, vocabulary, width, batch_size, kernels, threads, precision, buffer_mib):
        """The output layer of this loss; see ``Softmax.layer``."""
        offsets = np.zeros(0)
        return _SampledLayer(self, self.skip_target, offsets, vocabulary, width, batch_size,
                             kernels, threads)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class NCE(_Sampled):
    """Noise-contrastive estimation (Gutmann and Hyvarinen 2010): its score is log p itself."""

    name: ClassVar[str] = "nce"
    label: ClassVar[str] = "nce loss"

    def shift(self, vocabulary):
        """What the trained score lacks to be log p: 0."""
        return 0.0

    def layer(self, vocabulary, width, batch_size, kernels, threads, precision, buffer_mib):
        """The output layer of this loss; see ``Softmax.layer``."""
        offsets = self.log_expected(vocabulary)
        return _SampledLayer(self, False, offsets, vocabulary, width, batch_size, kernels, threads)


LOSSES = {loss.name: loss for loss in (Softmax, NegativeSampling, NCE)}


def resolve(loss, negatives=None):
    """A loss object from ``softmax``, ``ns``, ``nce`` or a loss object, with its K put in."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise SettingsError(f"loss is {loss!r}; expected one of {', '.join(LOSSES)}")
        loss = LOSSES[loss]()
    if not isinstance(loss, tuple(LOSSES.values())):
        raise SettingsError(f"loss is a {type(loss).__name__}; expected softmax, ns or nce")
    if negatives is not None and not isinstance(loss, Softmax):
        loss = dataclasses.replace(loss, negatives=negatives)
    return loss


def for_vocabulary(words):
    """The loss that ``train`` takes for so many words when none is named.

    Up to LARGE_VOCABULARY the exact softmax; beyond it NCE, whose raw scores are near log p, with
    much noise, shared so that it costs little (docs/losses.md, "A large vocabulary").
    """
    return Softmax() if words <= LARGE_VOCABULARY else NCE(512, shared=128)


def to_config(loss):
    """The loss as a dict for config.json."""
    return {"name": loss.name, **dataclasses.asdict(loss)}


def from_config(config):
    """The loss that ``to_config`` described."""
    settings = dict(config)
    name = settings.pop("name", None)
    if name not in LOSSES:
        raise SettingsError(f"loss {name!r} is unknown; expected one of {', '.join(LOSSES)}")
    try:
        return LOSSES[name](**settings)
    except TypeError:
        raise SettingsError(f"loss {name} does not take {', '.join(settings)}") from None


class LabelSmoothing:
    """Label smoothing (Szegedy et al. 2016, section 7) by drawing, so that the step stays fused.

    With probability ``share`` a target gives way to any word that can be predicted, all alike.
    The mean of loss and gradient over the draws is that of the smoothed target, (1 - share) *
    onehot + share / (V - 1) (Xie et al. 2016, DisturbLabel); a dense target would put a term on
    every element of the scores.
    """

    def __init__(self, share, vocabulary):
        self.share = share
        self._words = np.arange(len(vocabulary), dtype=np.int32)
        if vocabulary.start_id is not None:
            self._words = np.delete(self._words, vocabulary.start_id)

    def draw(self, generator, targets):
        """``targets`` with some replaced, int32 (B,); the same array if nothing is smoothed."""
        if not self.share:
            return targets
        replaced = generator.random(len(targets)) < self.share
        return np.where(replaced, generator.choice(self._words, len(targets)), targets)


class _SoftmaxLayer:
    """``softmax_step`` with its workspace: the scores are kept if they fit the buffer."""

    touched = None  # every row of the output weight changes

    def __init__(self, vocabulary, width, batch_size, kernels, threads, precision, buffer_mib):
        sizes = [
            kernels.softmax_step_scratch(
                batch_size, width, vocabulary, precision=precision, keep=keep, threads=threads
            )
            for keep in (True, False)
        ]
        size = sizes[0] if sizes[0] <= buffer_mib * 2**20 else sizes[1]
        self.scratch = arrays.zeros(size, np.uint8)
        self._kernels, self._threads, self._precision = kernels, threads, precision

    def draw(self, generator, batch):
        """Nothing random here."""

    def step(self, features, targets, weights, rule, hyper, losses, grad, output):
        """One step; ``output`` = (weight, bias, weight slots, bias slots), all updated."""
        self._kernels.softmax_step(
            features, targets, weights, rule, hyper, self._precision, self.scratch,
            losses, grad, *output, threads=self._threads,
        )  # fmt: skip


class _SampledLayer:
    """``negative_step`` with its noise: drawn by ``draw``, used by ``step``."""

    def __init__(self, loss, skip, offsets, vocabulary, width, batch_size, kernels, threads):
        self._loss, self._skip, self._kernels, self._threads = loss, skip, kernels, threads
        self._offsets = offsets
        self._threshold, self._alias = noise_module.alias_table(
            noise_module.noise_distribution(vocabulary, loss.power)
        )
        blocks = -(-batch_size // loss.block)
        self._noise = np.empty((blocks, loss.negatives), dtype=np.int32)
        size = kernels.negative_step_scratch(
            batch_size, loss.block, loss.negatives, width, threads=threads
        )
        self.scratch = arrays.zeros(size, np.uint8)
        self.touched = None

    def draw(self, generator, targets):
        """Draw the noise for ``targets``; ``touched`` then names the rows of the step."""
        blocks = -(-len(targets) // self._loss.block)
        bits = generator.integers(0, 2**64, size=blocks * self._loss.negatives, dtype=np.uint64)
        self._drawn = self._noise[:blocks]
        self._kernels.draw_noise(
            bits, self._threshold, self._alias, self._drawn.reshape(-1), threads=self._threads
        )
        self.touched = (targets, self._drawn)

    def step(self, features, targets, weights, rule, hyper, losses, grad, output):
        """One step; ``output`` = (weight, bias, weight slots, bias slots), rows updated."""
        weight = output[0]
        if self._offsets.dtype != weight.dtype:
            self._offsets = self._offsets.astype(weight.dtype)
        self._kernels.negative_step(
            features, targets, weights, self._drawn, self._loss.block, self._skip, self._offsets,
            rule, hyper, self.scratch, losses, grad, *output, threads=self._threads,
        )  # fmt: skip
