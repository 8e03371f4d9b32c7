"""Training: epochs of steps, validation, the best model kept, a history of both."""

import contextlib
import dataclasses
import json
import math
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from . import checkpoint, estimate, evaluation, storage, word2vec
from . import folder as folders
from . import loss as losses
from .average import Average
from .batches import epoch_of
from .blend import Blend
from .corpus import Corpus, require_same_vocabulary
from .errors import CheckpointError, CorpusError, DivergenceError, ModelError
from .interrupts import Interrupts
from .plan import Settings
from .progress import Progress
from .step import Step

# Nats a token at which a run has diverged: exp of it, the perplexity, is no longer a number.
LARGEST_LOSS = 700.0


@dataclasses.dataclass
class History:
    """What a run did: one dict an epoch in ``epochs`` (the lines of history.jsonl).

    best_epoch : the epoch whose weights the model holds; updates : steps taken in all.
    """

    epochs: list = dataclasses.field(default_factory=list)
    best_epoch: int | None = None
    updates: int = 0

    @property
    def perplexities(self):
        """The exact validation perplexity of each epoch (None without validation text)."""
        return [record.get("valid_perplexity") for record in self.epochs]


def train(model, corpus, valid=None, **settings):
    """Train ``model`` on ``corpus``; afterwards it holds the best weights. Returns a History.

    Parameters
    ----------
    model : NPLM, updated in place
    corpus : Corpus with the model's vocabulary (or text: a path, several, sentences), or a Blend
        of several with weights
    valid : text or Corpus for the exact perplexity after each epoch; the best epoch is kept
    settings : ``loss``, ``optimizer``, ``lr``, ``batch_size``, ``epochs``, ``dropout``, ``out``,
        ``seed`` and the others that ``fastnplm.Settings`` lists with their defaults

    Raises
    ------
    SettingsError, CorpusError, CheckpointError, VectorsError, ResourceError
        Before any work, for what cannot go well; the last where memory or disk are too small.
    DivergenceError
        When the loss is not finite; files on disk then hold the last good model.
    KeyboardInterrupt
        On Ctrl-C, between two batches; with checkpoints on, one is saved first.
    """
    plan = Settings(**settings).checked(valid, model.dim)
    with _Opened(corpus, model, "corpus") as corpus, _Opened(valid, model, "valid") as valid:
        if len(corpus.tokens) == 0:
            raise CorpusError("the corpus has no tokens to train on")
        plan = plan.fitted(len(corpus.tokens), len(model.vocabulary))
        estimate.of_run(model, plan, corpus, valid).require()
        model.adopt(plan.loss)
        if plan.init_vectors is not None:
            _begin_with(plan.init_vectors, model, plan.quiet)
        size = min(plan.batch_size, len(corpus.tokens))
        step = Step(model, plan.optimizer, size, **plan.step())
        # only without an output folder is there anything to keep elsewhere
        place = contextlib.nullcontext("")
        if plan.out is None:
            place = tempfile.TemporaryDirectory(prefix="fastnplm-")
        with place as temporary:
            run = _Run(step, corpus, valid, plan, Path(temporary))
            if plan.resume:
                run.resume()
            elif plan.out is not None:
                _clear(plan.out)
            return run.all_epochs()


class _Run:
    """One call of ``train``: where it stands, and what it does at each boundary."""

    def __init__(self, step, corpus, valid, plan, temporary):
        self.step, self.corpus, self.valid, self.plan = step, corpus, valid, plan
        self.schedule, self.epochs = plan.schedule, int(plan.epochs)
        self.out = Path(plan.out) if plan.out is not None else None
        # Without an output the best weights wait in a temporary folder: never a second copy in
        # memory.
        self.best_folder = self.out or temporary / "best"
        self.every_batches, self.every_seconds = checkpoint.every(plan.checkpoint_every)
        self.settings = plan.identity(step.network.hashed) | {
            "corpus": corpus.identity,
            "vocabulary": step.network.vocabulary.fingerprint,
            "model": step.network.config(),
            "kernels": step.kernels.NAME,
            "valid": valid.identity if valid is not None else None,
        }
        self.history = History()
        self.epoch, self.batch = 0, 0  # epochs finished; batches of the present one
        self.loss_sum, self.tokens, self.seconds = 0.0, 0, 0.0  # of the present epoch
        self.best, self.waited, self.halvings = math.inf, 0, 0
        self.stopped = False  # by on_epoch
        self.whole = True  # whether the model stands between two batches, so that it may be saved
        self.batches = -(-len(corpus.tokens) // plan.batch_size)
        self.average = None
        if plan.average:
            self.average = Average(step.network, plan.average, plan.batch_size, self.batches)
        self.saved_at = time.monotonic()

    def all_epochs(self):
        network = self.step.network
        done = self.epoch * len(self.corpus.tokens) + self.tokens
        label, exact = network.loss.label, isinstance(network.loss, losses.Softmax)
        total = self.epochs * len(self.corpus.tokens)
        self.progress = Progress(label, exact, total, done, self.plan.quiet)
        try:
            with Interrupts() as interrupts:
                while self.epoch < self.epochs and not (self.stopped or self._out_of_patience()):
                    interrupts.check()
                    self._one_epoch(interrupts)
                if self.history.best_epoch not in (None, self.epoch):
                    self._read_best()
                elif self.average is not None and self.epoch:
                    self.average.exchange()  # the last weights are the best: their mean
                self.whole = False  # there is nothing left to save
                interrupts.check()  # a signal is never lost, not even a late one
        except KeyboardInterrupt:
            if self.whole:
                if self.every_batches or self.every_seconds:
                    self._checkpoint()
                self.step.finish()  # after the checkpoint, which keeps the lazy state as it is
            raise
        finally:
            self.progress.close()
        return self.history

    def _read_best(self):
        folder = folders.find_folder(self.best_folder)
        storage.read_parameters(folder / "parameters.safetensors", self.step.network)

    def _out_of_patience(self):
        return self.plan.patience is not None and self.waited >= self.plan.patience

    def _one_epoch(self, interrupts):
        corpus, vocabulary, step = self.corpus, self.corpus.vocabulary, self.step
        tokens, size = corpus.tokens, self.plan.batch_size
        if self.batch == 0:
            step.generator = np.random.default_rng([self.plan.seed, self.epoch])
        targets = np.empty(min(size, len(tokens)), np.int32)
        contexts = np.empty((len(targets), step.network.context), np.int32)
        began = time.perf_counter()
        for positions in epoch_of(corpus, size, self.plan.seed, self.epoch, self.batch):
            count = len(positions)
            step.kernels.form_contexts(
                tokens, positions, vocabulary.start_id, vocabulary.end_id,
                contexts[:count], targets[:count],
            )  # fmt: skip
            self.whole = False
            factor = self._factor(step.state.updates + 1)
            loss = step(contexts[:count], targets[:count], factor=factor)
            if not loss < LARGEST_LOSS:  # nor if it is not a number
                self._diverged(f"the {step.network.loss.label} is {loss}", factor)
            if self.average is not None and self.average.due(step.state.updates):
                step.finish()
                self.average.visit(step.state.updates)
            self.loss_sum += loss * count
            self.tokens += count
            self.batch += 1
            self.whole = True
            now = time.perf_counter()
            self.seconds += now - began
            self.progress.advance(count, now - began, self.loss_sum / self.tokens)
            self._maybe_checkpoint()
            interrupts.check()
            began = time.perf_counter()
        self._end_epoch(interrupts)

    def _factor(self, update):
        total = self.epochs * self.batches
        return self.schedule.factor(update, total) * 0.5**self.halvings

    def _end_epoch(self, interrupts):
        step, network = self.step, self.step.network
        factor = self._factor(step.state.updates)
        self.whole = False
        step.finish()
        self.whole = True
        mean = self.loss_sum / self.tokens
        record = {
            "epoch": self.epoch + 1,
            "updates": step.state.updates,
            "tokens": self.tokens,
            "loss": network.loss.name,
            "train_loss": mean,
            "learning_rate": step.optimizer.lr * factor,
        }
        if isinstance(network.loss, losses.Softmax):
            record["train_perplexity"] = math.exp(min(mean, 700.0))
        seconds, began = self.seconds, time.perf_counter()
        if self.valid is not None:
            with self._mean():
                self._require_finite(factor)
                with interrupts.at_once():  # nothing changes here, and it may take long
                    report = evaluation.evaluate(
                        network, self.valid, threads=step.threads, kernels=step.kernels.NAME,
                        details=False,
                    )  # fmt: skip
            record["valid_perplexity"] = report.perplexity
        improved = self.valid is None or record["valid_perplexity"] < self.best
        record["best"] = improved
        record["seconds"] = seconds
        record["tokens_per_second"] = self.tokens / seconds if seconds else None
        record["valid_seconds"] = time.perf_counter() - began if self.valid is not None else 0.0
        self.whole = False
        self.epoch += 1
        self.history.epochs.append(record)
        self.history.updates = step.state.updates
        self.batch, self.tokens, self.loss_sum, self.seconds = 0, 0, 0.0, 0.0
        if improved:
            with self._mean():
                self._keep_best(record, factor)
        else:
            self.waited += 1
            if self.schedule.name == "plateau":
                self.halvings += 1
                self._read_best()
                if self.average is not None:
                    self.average.begin_again()
        self.whole = True
        self._write_history()
        self.progress.line(_line(record, network.loss.label))
        if self.every_batches or self.every_seconds:
            self._checkpoint()
        if self.plan.on_epoch is not None:
            self.stopped = bool(self.plan.on_epoch(dict(record)))

    @contextlib.contextmanager
    def _mean(self):
        """The mean of the weights in their place, where one is kept; they are put back after."""
        if self.average is None:
            yield
            return
        whole, self.whole = self.whole, False
        self.average.exchange()
        try:
            yield
        finally:
            self.average.exchange()
            self.whole = whole

    def _keep_best(self, record, factor):
        self.best = record.get("valid_perplexity", math.inf)
        self.history.best_epoch, self.waited = self.epoch, 0
        last = self.epoch == self.epochs
        if self.out is not None or not last:
            self._require_finite(factor)
            storage.save(
                self.step.network, self.best_folder, overwrite=True,
                extra={"training": self.settings, "epoch": self.epoch},
            )  # fmt: skip

    def _write_history(self):
        if self.out is not None and self.out.is_dir():
            lines = "".join(json.dumps(record) + "\n" for record in self.history.epochs)
            folders.replace_text(self.out / "history.jsonl", lines)

    def _require_finite(self, factor):
        try:
            self.step.network.require_finite("after this epoch")
        except ModelError as error:
            self._diverged(str(error), factor)

    def _diverged(self, what, factor):
        rate = self.step.optimizer.lr * factor
        kept = "no good model was saved yet"
        if self.out is not None and (self.out / folders.MANIFEST).is_file():
            kept = f"the last good model is in {self.out}"
        if self.out is not None and checkpoint.newest(self.out):
            kept = f"the last good checkpoint is {checkpoint.newest(self.out)}"
        n_grams = " or hashed_lr" if self.step.network.hashed else ""
        raise DivergenceError(
            f"training diverged at update {self.step.state.updates}: {what} at learning rate"
            f" {rate:g}; pass a smaller lr{n_grams} ({kept})"
        )

    # --- checkpoints ----------------------------------------------------------------------------

    def _maybe_checkpoint(self):
        if self.batch == self.batches:
            return  # the end of the epoch comes first
        due = self.every_batches and self.step.state.updates % self.every_batches == 0
        if self.every_seconds and time.monotonic() - self.saved_at >= self.every_seconds:
            due = True
        if due:
            self._checkpoint()

    def _checkpoint(self):
        state = {
            "settings": self.settings,
            "epoch": self.epoch,
            "batch": self.batch,
            "updates": self.step.state.updates,
            "loss_sum": self.loss_sum,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "best": None if math.isinf(self.best) else self.best,
            "best_epoch": self.history.best_epoch,
            "waited": self.waited,
            "halvings": self.halvings,
            "random": self.step.generator.bit_generator.state,
            "decay": self.step.decay_totals(),
            "history": self.history.epochs,
        }
        self._require_finite(1.0)
        checkpoint.save(self.out, self.step, state, self._more())
        self.saved_at = time.monotonic()

    def _more(self):
        """What a checkpoint holds beside the step's arrays."""
        return {} if self.average is None else self.average.arrays()

    def resume(self):
        """Go on from the newest checkpoint of ``out``; from the beginning if there is none."""
        state = checkpoint.load(self.out, self.step, self.settings, self._more())
        if state is None:
            return
        updates, batch = state["updates"], state["batch"]
        tokens = min(batch * self.plan.batch_size, len(self.corpus.tokens))
        if (
            updates != state["epoch"] * self.batches + batch
            or batch > self.batches
            or state["tokens"] != tokens
        ):
            raise CheckpointError(
                f"{checkpoint.newest(self.out)}/state.json: {updates} updates and"
                f" {state['tokens']} tokens are not {state['epoch']} epochs of {self.batches} and"
                f" {batch} batches; it is damaged"
            )
        if state["best_epoch"] is not None:
            folders.check_folder(folders.find_folder(self.out), storage.FILES)
        self.epoch, self.batch = state["epoch"], state["batch"]
        self.loss_sum, self.tokens = state["loss_sum"], state["tokens"]
        self.seconds = state["seconds"]
        self.best = math.inf if state["best"] is None else state["best"]
        self.waited, self.halvings = state["waited"], state["halvings"]
        self.history.epochs = state["history"]
        self.history.best_epoch = state["best_epoch"]
        self.step.state.updates = self.history.updates = state["updates"]
        self.step.restore_decay_totals(state["decay"])
        self.step.generator = state["random"]


class _Opened:
    """A Corpus as it is, text encoded with the model's vocabulary for the time of a with-block."""

    def __init__(self, given, model, name):
        self._given, self._model, self._name, self._made = given, model, name, None

    def __enter__(self):
        if self._given is None:
            return None
        if isinstance(self._given, Corpus | Blend):
            require_same_vocabulary(self._given, self._model.vocabulary)
            return self._given
        self._made = Corpus.prepare(self._given, vocabulary=self._model.vocabulary)
        return self._made

    def __exit__(self, *_):
        if self._made is not None:
            self._made.close()


def _begin_with(vectors, model, quiet):
    known = word2vec.fill(model.vocabulary, model.embedding, vectors)
    if not quiet:
        print(f"{known:,} of {len(model.vocabulary):,} words begin with the vectors of {vectors}",
              file=sys.stderr)  # fmt: skip


def _clear(out):
    """A run that replaces another starts without its checkpoints and its history."""
    checkpoint.clear(out)
    history = Path(out) / "history.jsonl"
    if history.exists():
        history.unlink()


def _line(record, label):
    text = f"epoch {record['epoch']}: {label} {record['train_loss']:.4f}"
    if "train_perplexity" in record:
        text += f", train perplexity {record['train_perplexity']:.2f}"
    if "valid_perplexity" in record:
        text += f", valid perplexity {record['valid_perplexity']:.2f}"
    rate = record["tokens_per_second"]
    text += f", {record['seconds']:.1f} s" + (f", {rate:,.0f} words/s" if rate else "")
    return text + (" (best)" if record["best"] and "valid_perplexity" in record else "")
