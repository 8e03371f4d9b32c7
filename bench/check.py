"""Right before fast: a contender's step is compared with a float64 step before it is timed."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from fastnplm.step import Step

from . import workloads
from .workloads import Words

# A subject may err this many times what plain float32 errs against float64 (bfloat16 is judged
# by a step whose operands are rounded to bfloat16), or so many units in the last place of the
# parameter's largest element, whichever is more.
YARDSTICKS = 4.0
ULPS = 8
LOSS_SHARE = 1e-3  # of the loss; bfloat16 included
BF16_SHARE = 2.0**-9  # of the step: a sum of rounded terms, where the yardstick's are exact
AUTOCAST_SHARE = 0.05  # of the step: PyTorch's autocast rounds wherever it sees fit
RATE = 5.0  # large, so that what a step changes stands far above rounding


class WrongResultError(AssertionError):
    """A contender's step differs from the float64 step by more than rounding."""


class Expected:
    """The parameters after one step from the initial values in float64, and the yardsticks.

    changes : root mean square by which the step moved each parameter
    yardsticks : for each precision, the root mean square error of each parameter
    """

    def __init__(self, workload, loss, parameters, changes, yardsticks):
        self.workload, self.loss, self.parameters = workload, loss, parameters
        self.changes, self.yardsticks = changes, yardsticks

    @classmethod
    def compute(cls, workload, precisions=("float32", "bf16")):
        """One step of the specification in float64 and one in each precision."""
        parameters, loss = _step(workload, "float64", "float32")
        start = workloads.network(workload).parameters
        changes = {name: rms(value, start[name]) for name, value in parameters.items()}
        yardsticks = {}
        for precision in precisions:
            found, _ = _step(workload, "float32", precision)
            yardsticks[precision] = {
                name: rms(value, parameters[name]) for name, value in found.items()
            }
        return cls(workload, loss, parameters, changes, yardsticks)

    def save(self, folder):
        """Write to ``folder``, from where workers read it."""
        folder = Path(folder)
        for name, value in self.parameters.items():
            np.save(folder / f"{name}.npy", value)
        rest = {"workload": dataclasses.asdict(self.workload), "loss": self.loss}
        rest |= {"changes": self.changes, "yardsticks": self.yardsticks}
        (folder / "expected.json").write_text(json.dumps(rest))

    @classmethod
    def load(cls, folder):
        """What ``save`` wrote; the arrays are mapped, not read."""
        folder = Path(folder)
        rest = json.loads((folder / "expected.json").read_text())
        rest["workload"] = workloads.Workload(**rest["workload"])
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in rest["changes"]}
        return cls(parameters=arrays, **rest)

    def check(self, name, contender):
        """Let ``contender`` make its first step and compare; raises WrongResultError."""
        precision = getattr(contender, "precision", "float32")
        contexts, targets = workloads.Batches(self.workload, count=1).next()
        loss = contender.step(contexts, targets, RATE)
        if not abs(loss - self.loss) <= LOSS_SHARE * abs(self.loss):
            raise WrongResultError(f"{name}: loss {loss:.6f}; float64 has {self.loss:.6f}")
        for parameter, found in contender.parameters.items():
            error = rms(found, self.parameters[parameter])
            # `<s>` is never an output: its bias of -60 is no measure of the others' rounding
            used = np.delete(found, Words.start_id) if parameter == "output_bias" else found
            largest = np.float32(np.abs(used).max())
            moved = self.changes[parameter]
            if precision == "autocast":
                allowed = AUTOCAST_SHARE * moved
            else:
                allowed = YARDSTICKS * self.yardsticks[precision][parameter]
            if precision == "bf16":
                allowed = max(allowed, BF16_SHARE * moved)
            allowed = max(allowed, ULPS * float(np.spacing(largest)))
            if not allowed < moved / 4:
                raise WrongResultError(
                    f"{parameter} moves by {moved:.3g}, which is lost in the {allowed:.3g} allowed"
                    " for rounding: this workload checks nothing"
                )
            if not error <= allowed:
                raise WrongResultError(
                    f"{name}: {parameter} differs from the float64 step by {error:.3g} (root mean"
                    f" square); allowed is {allowed:.3g}, the step itself is {moved:.3g}"
                )


def _step(workload, dtype, precision):
    network = workloads.network(workload, dtype=dtype)
    step = Step(
        network, workload.optimizer, workload.batch, kernels="reference", precision=precision,
        generator=np.random.default_rng(0), threads=1,
    )  # fmt: skip
    contexts, targets = workloads.Batches(workload, count=1).next()
    loss = step(contexts, targets, factor=RATE / step.optimizer.lr)
    return network.parameters, loss


def rms(values, others):
    """Root mean square difference, summed in float64 block by block."""
    values, others = np.ravel(values), np.ravel(others)
    total = 0.0
    for low in range(0, len(values), 2**20):
        part = values[low : low + 2**20].astype(np.float64) - others[low : low + 2**20]
        total += float(part @ part)
    return (total / len(values)) ** 0.5
