"""Checkpoints: all that a run needs to go on bit for bit, the newest and the one before.

A checkpoint is a folder ``OUT/checkpoints/UPDATES`` with ``parameters.safetensors``,
``optimizer.safetensors`` and ``state.json``, written whole (``folder``).
"""

import json
import re
import shutil
from pathlib import Path

from . import folder as folders
from . import storage
from .errors import CheckpointError, Error, SettingsError

FORMAT = 1
KEPT = 2
_NAME = re.compile(r"\d{12}")
_EVERY = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def every(value):
    """(batches, seconds) of a ``checkpoint_every``: 500 batches, or "10m" (s, m or h)."""
    if value is None:
        return None, None
    text = str(value)
    if text.isdigit() and int(text) >= 1:
        return int(text), None
    match = _EVERY.fullmatch(text)
    if match and float(match[1]) > 0:
        return None, float(match[1]) * _UNITS[match[2]]
    raise SettingsError(
        f"checkpoint_every is {value!r}; expected a number of batches such as 500, or a time"
        " such as 10m"
    )


def save(out, step, state):
    """Write a checkpoint of ``step`` (network and optimiser) and ``state`` (a JSON object)."""
    step.network.require_finite("and no checkpoint is saved")
    place = Path(out) / "checkpoints" / f"{step.state.updates:012d}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with folders.new_folder(place, overwrite=True) as fresh:
        storage.write_tensors(fresh / "parameters.safetensors", step.network.parameters)
        storage.write_tensors(fresh / "optimizer.safetensors", step.arrays())
        written = {"format": FORMAT, **state}
        (fresh / "state.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    for old in _found(out)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def load(out, step, settings):
    """Fill ``step`` from the newest whole checkpoint; returns its state, or None if none exists.

    A damaged one gives way to the one before it. Raises CheckpointError if all are damaged, or if
    the run it belongs to had other ``settings``: names the first that differs.
    """
    found = _found(out)
    troubles = []
    for place in found:
        try:
            folders.check_folder(place)
            state = folders.read_json(place / "state.json")
        except Error as error:
            troubles.append(str(error))
            continue
        if state.get("format") != FORMAT:
            raise CheckpointError(f"{place} has format {state.get('format')!r}, not {FORMAT}")
        _require_same(place, state.get("settings"), settings)
        storage.read_parameters(place / "parameters.safetensors", step.network)
        arrays = step.arrays()
        shapes = {name: value.shape for name, value in arrays.items()}
        dtypes = {name: value.dtype for name, value in arrays.items()}
        for name, value in storage.read_tensors(place / "optimizer.safetensors", shapes, dtypes):
            arrays[name][...] = value
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
    shutil.rmtree(Path(out) / "checkpoints", ignore_errors=True)


def _require_same(place, saved, settings):
    if not isinstance(saved, dict):
        raise CheckpointError(f"{place}/state.json holds no settings; it is damaged")
    for name in sorted(set(saved) | set(settings)):
        if saved.get(name) != settings.get(name):
            raise CheckpointError(
                f"{place} was made with {name} {saved.get(name)!r}, this run has"
                f" {settings.get(name)!r}; resume with the same, or pass --overwrite"
            )


def _found(out):
    """The checkpoint folders, newest first."""
    place = Path(out) / "checkpoints"
    if not place.is_dir():
        return []
    return sorted(
        (p for p in place.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()), reverse=True
    )
