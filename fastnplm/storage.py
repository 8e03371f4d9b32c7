"""Saved models: ``config.json``, ``vocabulary.tsv``, ``parameters.safetensors``, written whole.

``history.jsonl`` and ``checkpoints/`` grow beside them and move over to each new version.
"""

import json
import os
import tempfile
from pathlib import Path

import numpy as np

from . import folder as folders
from . import loss as losses
from .errors import Error, ModelError, SettingsError
from .tensors import read_tensors, write_tensors
from .vocabulary import Vocabulary

FORMAT = 1
KIND = "nplm"
KEEP = ("checkpoints", "history.jsonl")
FILES = ("config.json", "parameters.safetensors", "vocabulary.tsv")


def save(network, folder, extra=None, overwrite=False):
    """Write a model folder at once; a reader finds the old or the new version, never a mixture.

    extra : dict of more entries for config.json. Raises ModelError if a parameter is not finite
    (nothing is written) or ``folder`` exists and ``overwrite`` is false.
    """
    network.require_finite("and is not saved")
    config = {"format": FORMAT, "kind": KIND, "dtype": network.dtype.name}
    config |= network.config() | (extra or {})
    config["vocabulary_fingerprint"] = network.vocabulary.fingerprint
    with folders.new_folder(folder, overwrite=overwrite, keep=KEEP) as fresh:
        (fresh / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        network.vocabulary.save(fresh / "vocabulary.tsv")
        write_tensors(fresh / "parameters.safetensors", network.parameters)


def load(folder, network_class):
    """Read a model folder into a new ``network_class``; checks everything before it is used.

    Raises ModelError naming the file and what is wrong with it.
    """
    return folders.read_folder(folder, lambda found: _load(folder, found, network_class))


def _load(asked, folder, network_class):
    folders.check_folder(folder, FILES)
    asked_config = f"{asked}/config.json"
    config = folders.read_config(folder / "config.json", FORMAT, KIND, asked_config)
    vocabulary = Vocabulary.load(folder / "vocabulary.tsv")
    if vocabulary.fingerprint != config.get("vocabulary_fingerprint"):
        raise ModelError(f"{asked}: vocabulary.tsv is not the one that config.json belongs to")
    path = folder / "parameters.safetensors"
    _check_sizes(config, len(vocabulary), path, asked)
    try:
        network = network_class(
            vocabulary,
            context=config["context"],
            dim=config["dim"],
            hidden=config["hidden"],
            direct=config["direct"],
            layers=config.get("layers", 1),
            tied=config.get("tied", False),
            hashed=config.get("hashed", 0),
            dtype=config["dtype"],
            output_bias="zeros",
            seed=None,
        )
        network.loss = losses.from_config(config["loss"])
    except (Error, TypeError, ValueError, KeyError, OverflowError) as error:
        raise ModelError(f"{asked}/config.json: does not describe a model: {error}") from None
    read_parameters(path, network)
    return network


def read_parameters(path, network):
    """Fill a network's parameters from a safetensors file of the same shapes and dtype."""
    read_tensors(path, network.parameters)
    network.require_finite(f"in {path}")


def check_output(folder, overwrite=False, resume=False):
    """Refuse an output that can't be written, before any work: it costs a moment, not a night.

    Raises SettingsError: the parent is missing or not writable, something else stands there, or
    the folder exists and neither ``overwrite`` nor ``resume`` was asked for.
    """
    folder = Path(os.path.abspath(folder))
    if not folder.parent.is_dir():
        raise SettingsError(f"{folder.parent} is not a folder; make it first (mkdir -p)")
    folders.recover(folder, KEEP)
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{folder} is a file; choose another output")
    if folder.is_dir() and any(folder.iterdir()):
        if not (overwrite or resume):
            raise SettingsError(
                f"{folder} exists; pass --overwrite to replace it or --resume to go on with it"
            )
        if not resume and not (folder / folders.MANIFEST).is_file() and any(
            entry.name not in KEEP for entry in folder.iterdir()
        ):  # fmt: skip
            raise SettingsError(
                f"{folder} is not a model folder (it has no {folders.MANIFEST}) and is not"
                " overwritten; choose another output"
            )
    for place in (folder.parent, folder):
        if place.is_dir():
            try:
                with tempfile.TemporaryFile(dir=place):  # where it can be, a file without a name
                    pass
            except OSError as error:
                raise SettingsError(f"cannot write in {place}: {error.strerror}") from None


def _check_sizes(config, vocabulary_size, path, asked):
    """Refuse sizes that make no sense or no such file could hold, before anything is allocated."""
    least = {"context": 1, "dim": 1, "hidden": 0, "hashed": 0}
    sizes = {name: config.get(name) for name in least}
    sizes["hashed"] = config.get("hashed", 0)  # models of before have none
    for name, value in sizes.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not least[name] <= value < 1 << 31:
            raise ModelError(f"{asked}/config.json: {name} is {value!r}; expected a whole number")
    for name in ("direct", "tied"):
        if not isinstance(config.get(name, False), bool):
            raise ModelError(f"{asked}/config.json: {name} is {config.get(name)!r}")
    if config.get("dtype") not in ("float32", "float64"):
        raise ModelError(f"{asked}/config.json: dtype is {config.get('dtype')!r}")
    inputs = sizes["context"] * sizes["dim"]
    floats = vocabulary_size * sizes["dim"] + sizes["hidden"] * inputs
    if config.get("layers", 1) != 1:
        floats += sizes["hidden"] ** 2
    if config.get("direct"):
        floats += (sizes["dim"] if config.get("tied") else vocabulary_size) * inputs
    if not config.get("tied"):
        floats += vocabulary_size * sizes["hidden"]
    floats += sizes["hashed"] * (sizes["dim"] if config.get("tied") else sizes["hidden"])
    if floats * np.dtype(config["dtype"]).itemsize > path.stat().st_size:
        raise ModelError(f"{path} is smaller than the model that config.json describes")
