"""The settings of a training run, checked before any text is read."""

import dataclasses

from . import checkpoint, storage
from . import kernels as kernel_modules
from . import loss as losses
from . import optimizer as optimizers
from . import schedule as schedules
from . import threads as thread_count
from .errors import SettingsError
from .step import step_settings


@dataclasses.dataclass(frozen=True)
class Plan:
    """The settings of a run, checked: objects where a name may have been given."""

    loss: losses.Softmax | losses.NegativeSampling | losses.NCE
    optimizer: optimizers.Optimizer
    schedule: schedules.Schedule
    cadence: tuple  # batches, seconds between checkpoints; None for those not asked for


def check(
    valid=None,
    loss="softmax",
    negatives=None,
    optimizer="adam",
    lr=None,
    schedule="cosine",
    batch_size=256,
    epochs=6,
    dropout=0.0,
    input_dropout=0.0,
    weight_decay=None,
    patience=None,
    out=None,
    overwrite=False,
    resume=False,
    checkpoint_every=None,
    seed=0,
    threads=None,
    kernels="auto",
    precision="float32",
    buffer_mib=256,
):
    """Refuse settings of ``train`` that cannot go well, before any text is read.

    The settings are those of ``train`` with the same defaults. Returns a Plan. Raises
    SettingsError: a setting outside its range, settings that contradict each other, kernels that
    are not there, an output that cannot be written.
    """
    if isinstance(epochs, bool) or int(epochs) != epochs or epochs < 1:
        raise SettingsError(f"epochs is {epochs!r}; expected a whole number of at least 1")
    if isinstance(seed, bool) or int(seed) != seed or seed < 0:
        raise SettingsError(f"seed is {seed!r}; expected a whole number of at least 0")
    if patience is not None and patience < 1:
        raise SettingsError(f"patience is {patience!r}; expected at least 1 epoch")
    if patience is not None and valid is None:
        raise SettingsError("patience needs a validation text (valid)")
    plan = Plan(
        losses.resolve(loss, negatives),
        optimizers.resolve(optimizer, lr, weight_decay),
        schedules.resolve(schedule),
        checkpoint.every(checkpoint_every),
    )
    if plan.schedule.name == "plateau" and valid is None:
        raise SettingsError("schedule plateau needs a validation text (valid)")
    if (resume or checkpoint_every) and out is None:
        raise SettingsError("checkpoints and resume need an output folder (out)")
    if overwrite and resume:
        raise SettingsError("overwrite starts again and resume goes on: choose one of them")
    step_settings(batch_size, precision, buffer_mib, dropout, input_dropout)
    kernel_modules.load(kernels)
    thread_count.resolve(threads)
    if out is not None:
        storage.check_output(out, overwrite=overwrite, resume=resume)
    return plan
