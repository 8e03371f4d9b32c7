"""What a run will take of memory and disk, before it begins.

The estimate is a bound for the ordinary run, made of the sizes of the arrays that ``step``,
``evaluation`` and ``storage`` are going to hold; tests/test_estimate.py holds it against runs.
"""

import dataclasses
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from . import checkpoint, hashing
from . import kernels as kernel_modules
from . import loss as losses
from .batches import WINDOW
from .errors import ResourceError
from .evaluation import BLOCK
from .layers import require_projection
from .model import Network

_ROWS = 1 << 14  # rows that are drawn, checked or written at a time
_EXAMPLE = 32  # bytes for each example of a shuffled window
_ALIAS = 110  # bytes for each word while the noise table is made: lists of Python's numbers
_JITTED = 192 << 20  # what compiling takes
_MARGIN = 1 << 20
_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


class Outline(Network):
    """A network of which only the shapes exist: its arrays take no memory."""

    def __init__(self, vocabulary, **sizes):
        super().__init__(vocabulary, **sizes, output_bias="zeros", seed=None)

    def _zeros(self, *shape):
        return np.broadcast_to(np.zeros((), self.dtype), shape)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Bytes that a run takes, by what they are for.

    memory : parts of the largest resident size; mapped : of these the files that are mapped,
    which the system takes back when memory is short; held : what the process had already
    disk : parts of what stands in ``place`` at most; kept : of these what stands there already
    """

    memory: dict
    mapped: int
    held: int
    disk: dict
    kept: int
    place: str

    @property
    def peak(self):
        """The largest resident size of the process, in bytes."""
        return sum(self.memory.values())

    def as_dict(self):
        """For JSON: the parts, their sums, and what there is of each."""
        left, limit = memory_left()
        return {
            "memory": self.memory | {"total": self.peak},
            "memory_available": left,
            "memory_limit": limit,
            "disk": self.disk | {"total": sum(self.disk.values())},
            "disk_place": self.place,
            "disk_free": disk_free(self.place),
        }

    def lines(self):
        """For people: one line for memory, one for the disk."""
        left, limit = memory_left()
        there = "" if left is None else f"; {readable(left)} more can be had ({limit})"
        yield f"memory: {readable(self.peak)} at most ({_parts(self.memory)}){there}"
        yield (
            f"disk: {readable(sum(self.disk.values()))} in {self.place} at most"
            f" ({_parts(self.disk)}); {readable(disk_free(self.place))} are free"
        )

    def require(self):
        """Raise ResourceError if memory or disk are known not to be enough."""
        wanted = self.peak - self.held
        for left, limit, maps in limits():
            need = wanted if maps else wanted - self.mapped
            if need > left:
                raise ResourceError(
                    f"training takes {readable(need)} of memory ({_parts(self.memory)}), but only"
                    f" {readable(left)} more can be had ({limit}); pass a smaller dim, hidden,"
                    " hashed, batch_size or max_vocab, or an optimizer with less state"
                )
        need, free = sum(self.disk.values()) - self.kept, disk_free(self.place)
        if need > free:
            raise ResourceError(
                f"the run writes {readable(need)} in {self.place} ({_parts(self.disk)}), but"
                f" {readable(free)} are free; choose another output, or make room"
            )


def of_run(network, plan, corpus, valid=None):
    """The Estimate of ``train(network, corpus, valid, ...)`` with checked settings ``plan``.

    network : the model, or an Outline of one that is yet to be made. Raises SettingsError for
    settings that such a model cannot be trained with.
    """
    made = not isinstance(network, Outline)
    require_projection(network, plan.output_dropout)
    hashing.require_n_grams(network.hashed, plan.hashed_lr, plan.hashed_dropout)
    parameters = _bytes(network.parameters if network.scores_inputs else network.trainable)
    slots = plan.optimizer.slots * _bytes(network.optimized)
    averaged = _bytes(network.trainable) if plan.average else 0
    held = resident()
    memory = {
        "process": max(held - parameters, 0) if made else held,
        "parameters": parameters,
        "optimizer": slots,
        "average": averaged,
        "step": _step(network, plan, min(plan.batch_size, len(corpus.tokens))),
        "order of the examples": _EXAMPLE * min(len(corpus.tokens), WINDOW),
        "passing": max(_passing(network, plan, valid)),
    }
    mapped = corpus.tokens.nbytes + (0 if valid is None else valid.tokens.nbytes)
    if valid is not None or plan.resume:  # the best weights, or a checkpoint, are read back
        mapped += max(parameters, slots + averaged if plan.resume else 0)
    memory["mapped files"] = mapped
    model = parameters + _vocabulary_file(network.vocabulary) + _MARGIN
    disk = {"model": 2 * model}
    if plan.checkpoint_every is not None:
        state = parameters + slots + averaged + _decays(network, plan)
        disk["checkpoints"] = (checkpoint.KEPT + 1) * state
    place, kept = tempfile.gettempdir(), 0
    if plan.out is not None:
        place = str(Path(os.path.abspath(plan.out)).parent)
        kept = _size(Path(plan.out))
    return Estimate(memory, mapped, held, disk, kept, place)


def _step(network, plan, batch):
    """The arrays of a ``Step``: see ``Step._allocate`` and the layers."""
    module = network.kernels(plan.kernels)
    item, width = network.dtype.itemsize, network.context * network.dim
    total = batch * (8 + item)
    layers = (["hidden"] if network.hidden else []) + network.upper_layers()
    for name in layers:
        weight = network.parameters[f"{name}_weight"]
        total += weight.nbytes + 4 * batch * len(weight) * item
    if network.direct or network.tied or plan.input_dropout:
        total += 3 * batch * width * item
    else:
        total += module.words_scratch(
            batch, network.context, network.dim, network.hidden, plan.precision, plan.threads
        )
    if network.scores_inputs or (network.direct and network.hidden):
        total += 2 * batch * (network.hidden + width) * item
    if network.hashed:
        total += batch * (len(hashing.ORDERS) + 2) * network.hashed_weight.shape[1] * item
    if network.tied:
        total += network.embedding.nbytes + network.output_bias.nbytes
    return total + _output(network, plan, batch, module) + _decays(network, plan)


def _output(network, plan, batch, module):
    """The workspace of the output layer."""
    words, features, item = len(network.vocabulary), network.features, network.dtype.itemsize
    if module.NAME == "reference":  # whole arrays of scores and gradients, several at a time
        return 5 * batch * words * item + 3 * words * features * item
    compiled = _JITTED if module.NAME == "numba" else 0
    if isinstance(plan.loss, losses.Softmax):
        sizes = [
            module.softmax_step_scratch(
                batch, features, words, precision=plan.precision, keep=keep, threads=plan.threads
            )
            for keep in (True, False)
        ]
        return compiled + (sizes[0] if sizes[0] <= plan.buffer_mib * 2**20 else sizes[1])
    shared, negatives = plan.loss.block, plan.loss.negatives
    scratch = module.negative_step_scratch(batch, shared, negatives, features, threads=plan.threads)
    rows = batch + -(-batch // shared) * negatives
    return compiled + scratch + 24 * words + 64 * rows


def _decays(network, plan):
    """The tables of ``LazyDecay`` or ``LazyShrinkage``: a number for each row of each."""
    return 16 * (len(network.vocabulary) + network.hashed) if plan.optimizer.shrinks else 0


def _passing(network, plan, valid):
    """What is held for a moment, one after another."""
    words, item = len(network.vocabulary), network.dtype.itemsize
    widest = max(network.dim, network.features)
    yield (
        min(_ROWS, max(words, network.hidden)) * widest * 12
    )  # initial values, finite numbers, rows on their way to a file
    yield 2 * _vocabulary_file(network.vocabulary)
    if not isinstance(plan.loss, losses.Softmax):
        yield _ALIAS * words
    if plan.optimizer.shrinks:
        yield 4 * _ROWS * widest * item
    if valid is not None:
        module = kernel_modules.load(plan.kernels)
        width = network.context * network.dim
        block = BLOCK * (width + 4 * widest) * item
        if network.direct and network.tied:  # the hidden units, and joined to the vectors
            block += BLOCK * (2 * network.hidden + width) * item
        if module.NAME == "reference" or getattr(plan.loss, "skip_target", False):
            block += 4 * BLOCK * words * 8 + words * network.features * 8
        yield block + 40 * words


def _bytes(arrays):
    return sum(value.nbytes for value in arrays.values())


def _vocabulary_file(vocabulary):
    return sum(map(len, vocabulary.words)) * 2 + 12 * len(vocabulary)


def _size(folder):
    """Bytes of the files in a folder, 0 if there is none."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _parts(parts):
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {readable(size)}" for name, size in ordered if size >= 1 << 20)


def readable(size):
    """1536 MiB as "1.50 GiB"."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


# --- what there is ------------------------------------------------------------------------------


def resident():
    """Bytes of memory that this process holds now; 0 where the system does not say."""
    return _status("VmRSS")


def disk_free(place):
    """Bytes that may be written in a folder."""
    return shutil.disk_usage(place).free


def memory_left():
    """(bytes, which limit) of the memory that can still be had; (None, None) if nobody knows."""
    return min(((left, limit) for left, limit, _ in limits()), default=(None, None))


def limits():
    """(bytes left, what limits them, whether mapped files count) of each known limit."""
    found = _table("/proc/meminfo")
    if "MemAvailable" in found:
        yield found["MemAvailable"] + found.get("SwapFree", 0), "free memory of the machine", False
    for folder in _control_groups():
        for most, used in _CGROUP_FILES:
            try:
                left = int((folder / most).read_text()) - int((folder / used).read_text())
            except (OSError, ValueError):  # no such file, or "max"
                continue
            # what was read of files counts as used, but makes room
            left += _table(folder / "memory.stat").get("inactive_file", 0)
            yield left, f"memory limit of {folder}", False
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, counted in (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData")):
        most = resource.getrlimit(getattr(resource, name))[0]
        if most != resource.RLIM_INFINITY and _status(counted):
            yield most - _status(counted), f"ulimit, {name}", name == "RLIMIT_AS"


def _control_groups():
    """The folders of this process's control group and of those around it."""
    yield _CGROUP / "memory"
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("0::/"):
            folder = _CGROUP / line.removeprefix("0::/")
            yield from (folder, *(up for up in folder.parents if up.is_relative_to(_CGROUP)))


def _status(name):
    return _table("/proc/self/status").get(name, 0)


def _table(path):
    """Numbers by name of a file of lines such as ``VmRSS:  123 kB``; empty if there is none."""
    found = {}
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        words = line.replace(":", " ").split()
        if len(words) > 1 and words[1].isdigit():
            found[words[0]] = int(words[1]) * (1024 if words[2:] == ["kB"] else 1)
    return found
