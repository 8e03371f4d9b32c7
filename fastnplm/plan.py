"""The settings of a training run, checked before any text is read."""

import dataclasses
import math
from collections.abc import Callable

from . import checkpoint, hashing, storage, word2vec
from . import kernels as kernel_modules
from . import loss as losses
from . import optimizer as optimizers
from . import schedule as schedules
from . import threads as thread_count
from .errors import SettingsError
from .numeric import is_share, is_whole
from .step_settings import step_settings

BY_HEART = 2000  # a shorter text is there to be learnt by heart, as in tutorials


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of ``train``, each with its default.

    loss : "softmax", "ns", "nce" or a loss object; None: by the vocabulary, the exact softmax up
        to 50,000 words (``loss.for_vocabulary``); negatives : its K
    optimizer : "sgd", "momentum", "adagrad", "rmsprop", "adam" or an Optimizer; None: momentum for
        the exact softmax and Adam for a sampled loss, with a rate of its own (``fitted``)
    lr : the optimiser's rate, whichever it is
    schedule : "constant", "inverse", "linear", "cosine", "plateau" or a Schedule; None: cosine, or
        constant for a sampled loss on a large text (``fitted``)
    batch_size : examples a step; epochs : passes over the corpus
    dropout : share of the hidden units dropped; input_dropout : of the embeddings' elements;
        word_dropout : of the context words, replaced by ``<unk>``; output_dropout : of the units
        of a tied model's projection, the layer below the scores. batch_size, epochs, dropout,
        input_dropout and average follow the corpus's size where they are None (``fitted``)
    hashed_lr : rate of the hashed n-grams (of a model that has them), which descend on their own
        whatever the optimiser, but for its weight decay or L1 at its own rate; None: 0.15
    hashed_dropout : share of the n-grams left out of a step; None: 0.6
    clip : largest norm of an example's gradient below the output layer; None: no limit
    label_smoothing : share of the targets' probability spread over all words
    average : validate, keep and return a mean of the weights to which about this share of the run
        so far contributes (``average.py``), instead of the last weights; 0: the last weights
    weight_decay : decoupled; l1 : an L1 penalty's proximal step; not both
    patience : stop after so many epochs without improvement
    out : model folder for the best weights and history.jsonl, which must not exist unless
        overwrite (start again) or resume (go on from its newest checkpoint)
    checkpoint_every : batches, or a time such as "10m"; checkpoints go to OUT/checkpoints
    seed : of the order of the examples, the noise and the dropout
    threads : None means the processors this process may use; never changes a bit of the result
    kernels : "auto", "native", "numba" or "reference"
    precision : "float32" or "bf16": operands of the products of the exact output layer and of the
        first hidden layer (not where inputs are dropped, tied or connected directly) are rounded
        to bfloat16; sums, weights and updates stay float32
    buffer_mib : room for the B x V scores of a step
    init_vectors : word2vec file whose vectors the embedding begins with, where it has the words
    on_epoch : called with each epoch's record (a line of history.jsonl) after the epoch is kept; a
        true answer ends the run there with its best weights, as for a search over settings that
        drops what falls behind. While it runs the model holds the weights that training goes on
        with; what it raises ends the run as it stands; ``resume`` would go on from there
    quiet : show nothing
    """

    loss: str | losses.Softmax | losses.NegativeSampling | losses.NCE | None = None
    negatives: int | None = None
    optimizer: str | optimizers.Optimizer | None = None
    lr: float | None = None
    schedule: str | schedules.Schedule | None = None
    batch_size: int | None = None
    epochs: int | None = None
    dropout: float | None = None
    input_dropout: float | None = None
    word_dropout: float = 0.0
    output_dropout: float = 0.0
    hashed_lr: float | None = None
    hashed_dropout: float | None = None
    clip: float | None = None
    label_smoothing: float = 0.0
    average: float | None = None
    weight_decay: float | None = None
    l1: float | None = None
    patience: int | None = None
    out: str | None = None
    overwrite: bool = False
    resume: bool = False
    checkpoint_every: int | str | None = None
    seed: int = 0
    threads: int | None = None
    kernels: str = "auto"
    precision: str = "float32"
    buffer_mib: float = 256
    init_vectors: str | None = None
    on_epoch: Callable[[dict], object] | None = None
    quiet: bool = False

    def checked(self, valid=None, dim=None):
        """These settings with objects for names, or SettingsError before any work.

        Refused: a setting outside its range, settings that contradict each other (``valid`` is
        None without validation text), kernels that are not there, an output that cannot be
        written, vectors that cannot be read or are not ``dim`` wide (None: there is no model yet).
        """
        for name, least in {"epochs": 1, "seed": 0, "patience": 1}.items():
            value = getattr(self, name)
            if value is None and name != "seed":
                continue
            if not is_whole(value, least):
                raise SettingsError(
                    f"{name} is {value!r}; expected a whole number of at least {least}"
                )
        if self.average is not None and not is_share(self.average):
            raise SettingsError(f"average is {self.average!r}; expected a share below 1, or 0")
        if self.patience is not None and valid is None:
            raise SettingsError("patience needs a validation text (valid)")
        if self.loss is None and self.negatives is not None:
            raise SettingsError(
                f"negatives is {self.negatives}, but no loss is named that draws them; pass loss ns"
                " or nce"
            )
        if self.on_epoch is not None and not callable(self.on_epoch):
            raise SettingsError(f"on_epoch is {self.on_epoch!r}; expected a function of a record")
        schedule = None if self.schedule is None else schedules.resolve(self.schedule)
        if schedule is not None and schedule.name == "plateau" and valid is None:
            raise SettingsError("schedule plateau needs a validation text (valid)")
        checkpoint.every(self.checkpoint_every)
        if (self.resume or self.checkpoint_every) and self.out is None:
            raise SettingsError("checkpoints and resume need an output folder (out)")
        if self.overwrite and self.resume:
            raise SettingsError("overwrite starts again and resume goes on: choose one of them")
        checked = dataclasses.replace(
            self,
            loss=None if self.loss is None else losses.resolve(self.loss, self.negatives),
            optimizer=None if self.optimizer is None else self._resolved(self.optimizer),
            schedule=schedule,
            threads=thread_count.resolve(self.threads),
        )
        whole = checked.fitted(1, 1)  # for what holds whatever the corpus is
        options = whole.step()
        kernel_modules.load(options.pop("kernels"))
        del options["threads"]
        step_settings(whole.batch_size, **options)
        if self.init_vectors is not None:
            width = word2vec.width(self.init_vectors)
            if dim not in (None, width):
                raise SettingsError(
                    f"{self.init_vectors} has vectors of {width} values, but the model's dim is"
                    f" {dim}; pass dim={width}"
                )
        if self.out is not None:
            storage.check_output(self.out, overwrite=self.overwrite, resume=self.resume)
        return checked

    def _resolved(self, optimizer):
        return optimizers.resolve(optimizer, self.lr, self.weight_decay, self.l1)

    def fitted(self, tokens, words):
        """These settings for ``tokens`` of a vocabulary of ``words``, with nothing left open.

        The smaller the corpus, the more is dropped and the more often it is read, in smaller
        batches: of the hidden units 0.5 up to 40,000 tokens, 0.25 at a million, at least 0.1 (for a
        sampled loss none from six million on), and 0.6 times as much of the embeddings; 12 epochs
        up to 50,000, 8 at a million, 5 at ten; batches of 64 up to 100,000 tokens and of 128
        beyond, for a sampled loss of 256 and from three million on of 512.

        The exact softmax is trained by momentum (rate 0.15, with batches below 128 0.1, less below
        64), a sampled loss by Adam (rate 0.001, from batches of 512 on 0.002). The rate falls along
        a cosine; for a sampled loss from three million tokens on it stays, unless the optimiser is
        named or nothing averaged. The last fifth of the run is averaged. A text of fewer than
        BY_HEART tokens is learnt as it is, by Adam in batches of 256 (why: docs/perplexity.md).
        """
        loss = losses.for_vocabulary(words) if self.loss is None else losses.resolve(self.loss)
        sampled = not isinstance(loss, losses.Softmax)
        by_heart, large = tokens < BY_HEART, sampled and tokens >= 3e6
        size = math.log10(max(tokens, 1) / 1e6)
        dropout = min(max(0.25 - 0.18 * size, 0.1), 0.5)
        if by_heart or (sampled and tokens >= 6e6):
            dropout = 0.0
        batch_size = 64 if tokens <= 1e5 else 128
        if by_heart or (sampled and tokens > 1e5):
            batch_size = 512 if large else 256
        chosen = {
            "loss": loss,
            "epochs": min(max(round(8 - 3 * size), 3), 12),
            "dropout": dropout,
            "input_dropout": dropout * 0.6,
            "batch_size": batch_size,
            "average": 0.0 if by_heart else 0.2,
        }
        open_ = {name: value for name, value in chosen.items() if getattr(self, name) is None}
        fitted = dataclasses.replace(self, **open_)
        if self.schedule is None:
            stays = large and self.optimizer is None and fitted.average
            schedule = schedules.Schedule("constant" if stays else "cosine")
            fitted = dataclasses.replace(fitted, schedule=schedule)
        if self.optimizer is not None:
            return fitted
        optimizer = optimizers.DEFAULTS["adam"]
        if sampled and fitted.batch_size >= 512:
            optimizer = dataclasses.replace(optimizer, lr=0.002)
        if not (by_heart or sampled):
            optimizer = dataclasses.replace(
                optimizers.DEFAULTS["momentum"],
                lr=0.15 if fitted.batch_size >= 128 else 0.1 * min(1, fitted.batch_size / 64),
                weight_decay=0.0 if self.l1 else 5e-4,
            )
        return dataclasses.replace(fitted, optimizer=self._resolved(optimizer))

    def step(self):
        """What ``Step`` takes of these settings, beside network, optimiser and batch size."""
        names = ("kernels", "threads", "precision", "buffer_mib", "dropout", "input_dropout",
                 "word_dropout", "clip", "label_smoothing", "output_dropout", "hashed_lr",
                 "hashed_dropout")  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def identity(self, hashed=0):
        """What decides the course of a run, as JSON values: a resumed run must have the same.

        hashed : of the model that is trained
        """
        names = ("batch_size", "dropout", "input_dropout", "word_dropout", "clip",
                 "label_smoothing", "precision", "buffer_mib", "patience", "seed",
                 "output_dropout")  # fmt: skip
        found = {name: getattr(self, name) for name in names} | {
            "average": self.average or None,  # as it was written when None meant no average
            "optimizer": dataclasses.asdict(self.optimizer),
            "schedule": dataclasses.asdict(self.schedule),
        }
        # Only of a model that has n-grams: as it was written before there were any.
        return found | (hashing.settings(self.hashed_lr, self.hashed_dropout) if hashed else {})


def told(plan, hashed=0):
    """The course of a run in one line: what was chosen, whoever chose it.

    hashed : of the model that is trained
    """
    loss, optimizer = plan.loss, plan.optimizer
    text = loss.name
    if not isinstance(loss, losses.Softmax):
        text += f" with {loss.negatives} negatives"
        text += f" shared by {loss.block}" if loss.block > 1 else ""
    text += f", {optimizer.rule} at {optimizer.lr:g}"
    text += "" if plan.schedule.name == "cosine" else f" ({plan.schedule.name})"
    for name in ("weight_decay", "l1"):
        if getattr(optimizer, name):
            text += f", {name.replace('_', ' ')} {getattr(optimizer, name):g}"
    text += f", {plan.epochs} epochs, batches of {plan.batch_size}"
    text += f", dropout {plan.dropout:.2g} and {plan.input_dropout:.2g}"
    if hashed:
        rate, dropout = hashing.settings(plan.hashed_lr, plan.hashed_dropout).values()
        text += f", hashed n-grams at {rate:g}, {dropout:g} of them left out"
    return text + (f", average {plan.average:g}" if plan.average else "")


def check(valid=None, **settings):
    """``Settings(**settings).checked(valid)``: refuse what cannot go well, before any work."""
    return Settings(**settings).checked(valid)
