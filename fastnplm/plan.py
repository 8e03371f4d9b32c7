"""The settings of a training run, checked before any text is read."""

import dataclasses
import math

from . import checkpoint, storage, word2vec
from . import kernels as kernel_modules
from . import loss as losses
from . import optimizer as optimizers
from . import schedule as schedules
from . import threads as thread_count
from .errors import SettingsError
from .step import step_settings
from .whole import is_whole

BY_HEART = 2000  # a shorter text is there to be learnt by heart, as in tutorials


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of ``train``, each with its default.

    loss : "softmax", "ns", "nce" or a loss object; negatives : its K
    optimizer : "sgd", "momentum", "adagrad", "rmsprop", "adam" or an Optimizer; lr : its rate
    schedule : "constant", "inverse", "linear", "cosine", "plateau" or a Schedule
    batch_size : examples a step; epochs : passes over the corpus
    dropout : share of the hidden units dropped; input_dropout : of the embeddings' elements;
        word_dropout : of the context words, replaced by ``<unk>``; output_dropout : of the units
        of a tied model's projection, the layer below the scores. epochs, dropout and
        input_dropout follow the corpus's size where they are None (``fitted``)
    clip : largest norm of an example's gradient below the output layer; None: no limit
    label_smoothing : share of the targets' probability spread over all words
    average : validate, keep and return a mean of the weights to which about this share of the run
        so far contributes (``average.py``), instead of the last weights; None: the last weights
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
    quiet : show nothing
    """

    loss: str | losses.Softmax | losses.NegativeSampling | losses.NCE = "softmax"
    negatives: int | None = None
    optimizer: str | optimizers.Optimizer = "adam"
    lr: float | None = None
    schedule: str | schedules.Schedule = "cosine"
    batch_size: int = 256
    epochs: int | None = None
    dropout: float | None = None
    input_dropout: float | None = None
    word_dropout: float = 0.0
    output_dropout: float = 0.0
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
        if self.average is not None and not 0 < self.average < 1:
            raise SettingsError(f"average is {self.average}; expected a share between 0 and 1")
        if self.patience is not None and valid is None:
            raise SettingsError("patience needs a validation text (valid)")
        schedule = schedules.resolve(self.schedule)
        if schedule.name == "plateau" and valid is None:
            raise SettingsError("schedule plateau needs a validation text (valid)")
        checkpoint.every(self.checkpoint_every)
        if (self.resume or self.checkpoint_every) and self.out is None:
            raise SettingsError("checkpoints and resume need an output folder (out)")
        if self.overwrite and self.resume:
            raise SettingsError("overwrite starts again and resume goes on: choose one of them")
        checked = dataclasses.replace(
            self,
            loss=losses.resolve(self.loss, self.negatives),
            optimizer=optimizers.resolve(self.optimizer, self.lr, self.weight_decay, self.l1),
            schedule=schedule,
            threads=thread_count.resolve(self.threads),
        )
        options = checked.fitted(1).step()
        kernel_modules.load(options.pop("kernels"))
        del options["threads"]
        step_settings(self.batch_size, **options)
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

    def fitted(self, tokens):
        """These settings for a corpus of ``tokens``, with nothing left open.

        The smaller the corpus, the more is dropped and the more often it is read: of the hidden
        units 0.5 up to 300,000 tokens, 0.4 at a million, 0.2 at ten million, at least 0.1, and
        0.6 times as much of the embeddings; 12 epochs up to 50,000, 8 at a million, 5 at ten. A
        text of fewer than BY_HEART tokens is learnt as it is. (docs/perplexity.md says why.)
        """
        size = math.log10(max(tokens, 1) / 1e6)
        dropout = 0.0 if tokens < BY_HEART else min(max(0.4 - 0.2 * size, 0.1), 0.5)
        chosen = {
            "epochs": min(max(round(8 - 3 * size), 3), 12),
            "dropout": dropout,
            "input_dropout": dropout * 0.6,
        }
        open_ = {name: value for name, value in chosen.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **open_)

    def step(self):
        """What ``Step`` takes of these settings, beside network, optimiser and batch size."""
        names = ("kernels", "threads", "precision", "buffer_mib", "dropout", "input_dropout",
                 "word_dropout", "clip", "label_smoothing", "output_dropout")  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def identity(self):
        """What decides the course of a run, as JSON values: a resumed run must have the same."""
        names = ("batch_size", "dropout", "input_dropout", "word_dropout", "clip",
                 "label_smoothing", "precision", "buffer_mib", "patience", "seed",
                 "average", "output_dropout")  # fmt: skip
        return {name: getattr(self, name) for name in names} | {
            "optimizer": dataclasses.asdict(self.optimizer),
            "schedule": dataclasses.asdict(self.schedule),
        }


def check(valid=None, **settings):
    """``Settings(**settings).checked(valid)``: refuse what cannot go well, before any work."""
    return Settings(**settings).checked(valid)
