"""Checkpoints: all that a run needs to go on bit for bit, the newest and the one before.

A checkpoint is a folder ``OUT/checkpoints/UPDATES`` with ``parameters.safetensors``,
``optimizer.safetensors`` and ``state.json``, written whole (``folder``).
"""

import json
import re
from pathlib import Path

import numpy as np

from . import folder as folders
from . import storage
from .errors import CheckpointError, Error, SettingsError
from .tensors import read_tensors, write_tensors

FORMAT = 1
KEPT = 2
_NAME = re.compile(r"[0-9]{12}")
_EVERY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh])")
_FILES = ("optimizer.safetensors", "parameters.safetensors", "state.json")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


_NUMBER = (int, float)
_MOST = 1e300
_STATE = {
    "settings": dict, "epoch": int, "batch": int, "updates": int, "loss_sum": _NUMBER,
    "tokens": int, "seconds": _NUMBER, "best": (int, float, type(None)),
    "best_epoch": (int, type(None)), "waited": int, "halvings": int, "random": dict,
    "decay": dict, "history": list,
}  # fmt: skip


def every(value):
    """(batches, seconds) of a ``checkpoint_every``: 500 batches, or "10m" (s, m or h)."""
    if value is None:
        return None, None
    text = str(value)
    if text.isascii() and text.isdigit() and int(text) >= 1:
        return int(text), None
    match = _EVERY.fullmatch(text)
    if match and float(match[1]) > 0:
        return None, float(match[1]) * _UNITS[match[2]]
    raise SettingsError(
        f"checkpoint_every is {value!r}; expected a number of batches such as 500, or a time"
        " such as 10m"
    )


def save(out, step, state, more):
    """Write a checkpoint of ``step`` (network and optimiser) and ``state`` (a JSON object).

    more : further arrays by name, kept with the optimiser's
    """
    step.network.require_finite("and no checkpoint is saved")
    place = Path(out) / "checkpoints" / f"{step.state.updates:012d}"
    place.parent.mkdir(parents=True, exist_ok=True)
    folders.sweep(place.parent)
    with folders.new_folder(place, overwrite=True) as fresh:
        write_tensors(fresh / "parameters.safetensors", step.network.parameters)
        write_tensors(fresh / "optimizer.safetensors", step.arrays() | more)
        written = {"format": FORMAT, **state}
        (fresh / "state.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    for old in _found(out)[KEPT:]:
        folders.discard(old, old.name)


def load(out, step, settings, more):
    """Fill ``step`` and the arrays of ``more`` from the newest whole checkpoint.

    Returns its state, or None if there is no checkpoint.

    A damaged one gives way to the one before it. Raises CheckpointError if all are damaged, or if
    the run it belongs to had other ``settings``: names the first that differs.
    """
    found = _found(out)
    troubles = []
    for place in found:
        try:
            folders.check_folder(place, _FILES)
            state = folders.read_json(place / "state.json")
        except Error as error:
            troubles.append(str(error))
            continue
        if state.get("format") != FORMAT:
            raise CheckpointError(f"{place} has format {state.get('format')!r}, not {FORMAT}")
        _require_same(place, state.get("settings"), settings)
        _check_state(place / "state.json", state, step)
        storage.read_parameters(place / "parameters.safetensors", step.network)
        read_tensors(place / "optimizer.safetensors", step.arrays() | more)
        return state
    if troubles:
        raise CheckpointError("no checkpoint is whole: " + "; ".join(troubles))
    return None


def newest(out):
    """The folder of the newest checkpoint, or None."""
    found = _found(out)
    return found[0] if found else None


def clear(out):
    """Remove all checkpoints of ``out``."""
    place = Path(out) / "checkpoints"
    if place.is_dir():
        folders.discard(place, place.name)


def _require_same(place, saved, settings):
    if not isinstance(saved, dict):
        raise CheckpointError(f"{place}/state.json holds no settings; it is damaged")
    for name in sorted(set(saved) | set(settings)):
        if saved.get(name) != settings.get(name):
            raise CheckpointError(
                f"{place} was made with {name} {saved.get(name)!r}, this run has"
                f" {settings.get(name)!r}; resume with the same, or pass --overwrite"
            )


def _check_state(path, state, step):
    """Refuse a state that no run can have written; ``random`` becomes a generator."""
    for name, kinds in _STATE.items():
        value = state.get(name)
        least = -_MOST if name == "loss_sum" else 0
        if (
            name not in state
            or not isinstance(value, kinds)
            or isinstance(value, bool)
            or (isinstance(value, int | float) and not least <= value <= _MOST)
        ):
            raise CheckpointError(f"{path}: {name} is {value!r}; it is damaged")
    epochs, best = state["epoch"], state["best_epoch"]
    history, decay = state["history"], state["decay"]
    if len(history) != epochs or not all(isinstance(record, dict) for record in history):
        raise CheckpointError(f"{path}: its history is not that of {epochs} epochs; it is damaged")
    if best is not None and not 1 <= best <= epochs:
        raise CheckpointError(f"{path}: best_epoch is {best} of {epochs}; it is damaged")
    if set(decay) != set(step.decay_totals()) or not all(
        isinstance(total, float | int) and -_MOST <= total <= _MOST for total in decay.values()
    ):
        raise CheckpointError(f"{path}: its decay is not this optimiser's; it is damaged")
    state["random"] = _generator(path, state["random"])


def _generator(path, state):
    """A generator in this state; numbers that would not come out again are refused."""
    generator = np.random.default_rng()
    try:
        # NumPy 1.26 takes negative numbers modulo a power of two
        if min(*state["state"].values(), state["has_uint32"], state["uinteger"]) < 0:
            raise ValueError("a negative number")
        generator.bit_generator.state = state
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{path}: its random state is none ({error})") from None
    if generator.bit_generator.state != state:
        raise CheckpointError(f"{path}: its random state is none; it is damaged")
    return generator


def _found(out):
    """The checkpoint folders, newest first."""
    place = Path(out) / "checkpoints"
    if not place.is_dir():
        return []
    for previous in place.glob(".*.previous"):  # the same checkpoint was being written once more
        folders.recover(place / previous.name.removeprefix(".").removesuffix(".previous"))
    return sorted(
        (p for p in place.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()), reverse=True
    )
