"""Saved models: ``config.json``, ``vocabulary.tsv``, ``parameters.safetensors``, written whole.

``history.jsonl`` and ``checkpoints/`` grow beside them and move over to each new version.
"""

import json
import os
from pathlib import Path

import numpy as np

from . import folder as folders
from . import loss as losses
from .errors import Error, ModelError, SettingsError
from .vocabulary import Vocabulary

FORMAT = 1
KIND = "nplm"
_KINDS = {"float32": "F32", "float64": "F64"}
_ROWS = 1 << 14  # rows read or written at a time
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
    config = folders.read_json(folder / "config.json")
    if config.get("format") != FORMAT or config.get("kind") != KIND:
        raise ModelError(
            f"{asked}/config.json: format {config.get('format')!r}, kind {config.get('kind')!r};"
            f" this version reads format {FORMAT}, kind {KIND!r}"
        )
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


def write_tensors(path, tensors):
    """Write named arrays as safetensors, little-endian, without a second copy of them in memory."""
    header, end = {}, 0
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    for name, value in ordered:
        begin, end = end, end + value.nbytes
        header[name] = {
            "dtype": _KINDS[value.dtype.name], "shape": value.shape, "data_offsets": [begin, end]
        }  # fmt: skip
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for _, value in ordered:
            for part in _parts(value):
                block = value[part]
                block = np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<"))
                file.write(block.reshape(-1).view(np.uint8))


def read_tensors(path, targets):
    """Fill the arrays ``targets`` (by name) from a safetensors file of their shapes and dtypes.

    All of the file's header is checked before anything is filled.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as opened:
            found = set(opened.keys())
            if found != set(targets):
                odd = ", ".join(sorted(found ^ set(targets)))
                raise ModelError(f"{path} does not hold the expected arrays: {odd}")
            slices = {name: opened.get_slice(name) for name in targets}
            for name, target in targets.items():
                have = tuple(slices[name].get_shape())
                if have != target.shape:
                    raise ModelError(f"{path}: {name} has shape {have}; expected {target.shape}")
                kind = slices[name].get_dtype()
                if kind != _KINDS[target.dtype.name]:
                    raise ModelError(f"{path}: {name} has dtype {kind}; expected {target.dtype}")
            for name, target in targets.items():
                for part in _parts(target):
                    target[part] = slices[name][part]
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is not a whole safetensors file: {error}") from None


def _parts(value):
    """Indices that cut an array along its rows, so that a copy of a part is a small one."""
    if value.size == 0:
        return
    axis = max(value.ndim - 2, 0)
    rows = value.shape[axis]
    for first in np.ndindex(value.shape[:axis]):
        for low in range(0, rows, _ROWS):
            yield (*(slice(i, i + 1) for i in first), slice(low, min(low + _ROWS, rows)))


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
            probe = place / f".probe-{os.getpid()}"
            try:
                probe.touch()
                probe.unlink()
            except OSError as error:
                raise SettingsError(f"cannot write in {place}: {error.strerror}") from None


def _check_sizes(config, vocabulary_size, path, asked):
    """Refuse sizes that make no sense or no such file could hold, before anything is allocated."""
    least = {"context": 1, "dim": 1, "hidden": 0}
    sizes = {name: config.get(name) for name in least}
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
        floats += vocabulary_size * inputs
    if not config.get("tied"):
        floats += vocabulary_size * sizes["hidden"]
    if floats * np.dtype(config["dtype"]).itemsize > path.stat().st_size:
        raise ModelError(f"{path} is smaller than the model that config.json describes")
