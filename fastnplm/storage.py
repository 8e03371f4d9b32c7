"""Folders on disk: written whole under a temporary name, checked whole when read.

A model folder holds ``config.json``, ``vocabulary.tsv``, ``parameters.safetensors`` and
``manifest.json`` (size and SHA-256 of the others); ``history.jsonl`` grows beside them. A new
version is built in a hidden sibling folder, flushed, and put in place by rename; a reader that
meets the moment between finds the previous version under its hidden name.
"""

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np

from .errors import ModelError, SettingsError

FORMAT = 1
_CHUNK = 1 << 20


def write_folder(folder, files, keep=()):
    """Put a folder of ``files`` (name -> bytes or function that writes a path) in place at once.

    Whatever stood there is replaced; entries named in ``keep`` move over from it. After a crash
    at any moment the old or the new version is found by ``read_folder``.
    """
    folder = Path(folder)
    fresh, previous = _hidden(folder, "new"), _hidden(folder, "previous")
    recover(folder)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        listed = {}
        for name, content in files.items():
            path = fresh / name
            if callable(content):
                content(path)
            else:
                path.write_bytes(content)
            _flush(path)
            listed[name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        manifest = {"format": FORMAT, "files": listed}
        (fresh / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        _flush(fresh / "manifest.json")
        _flush(fresh)
        if folder.exists():
            os.rename(folder, previous)
        os.rename(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        recover(folder)
        raise
    _flush(folder.parent)
    _move_kept(previous, folder, keep)
    shutil.rmtree(previous, ignore_errors=True)


def recover(folder, keep=("checkpoints", "history.jsonl")):
    """Finish or undo a replacement that a crash interrupted; called before writing."""
    folder = Path(folder)
    previous = _hidden(folder, "previous")
    if not previous.exists():
        return
    if folder.exists():
        _move_kept(previous, folder, keep)
        shutil.rmtree(previous, ignore_errors=True)
    else:
        os.rename(previous, folder)


def find(folder):
    """The folder, or its previous version if a replacement was interrupted."""
    folder = Path(folder)
    previous = _hidden(folder, "previous")
    return previous if not folder.exists() and previous.exists() else folder


def read_folder(folder, expected):
    """Check a folder against its manifest; returns the folder to read ``expected`` files from.

    Raises ModelError if it is no such folder, a file is missing, of another size or damaged.
    """
    asked, folder = Path(folder), find(folder)
    manifest = read_json(folder / "manifest.json", f"{asked} is not a saved model")
    if manifest.get("format") != FORMAT:
        raise ModelError(
            f"{asked}/manifest.json has format {manifest.get('format')!r};"
            f" this version reads format {FORMAT}"
        )
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not set(expected) <= set(listed):
        raise ModelError(f"{asked}/manifest.json does not list {', '.join(expected)}")
    for name in expected:
        path, entry = folder / name, listed[name]
        if not isinstance(entry, dict) or not path.is_file():
            raise ModelError(f"{asked}/{name} is missing; the folder is incomplete")
        if path.stat().st_size != entry.get("bytes"):
            raise ModelError(
                f"{asked}/{name} has {path.stat().st_size} bytes; its manifest says"
                f" {entry.get('bytes')}: cut short or changed"
            )
        if _sha256(path) != entry.get("sha256"):
            raise ModelError(f"{asked}/{name} does not match its checksum: damaged or changed")
    return folder


def read_json(path, what):
    """The JSON object in a file; ModelError says ``what`` is wrong if there is none."""
    try:
        size = path.stat().st_size
        if size > 1 << 24:
            raise ModelError(f"{what}: {path.name} has {size} bytes; expected a small JSON file")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(f"{what}: there is no {path.name}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{what}: {path.name} is not JSON") from None
    if not isinstance(value, dict):
        raise ModelError(f"{what}: {path.name} is not a JSON object")
    return value


def write_tensors(path, tensors):
    """Write named arrays as safetensors (contiguous copies of views are made one at a time)."""
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, str(path))


def read_tensors(path, shapes, dtype):
    """Yield (name, array) of a safetensors file; each must have the shape and dtype expected."""
    from safetensors import SafetensorError, safe_open

    try:
        opened = safe_open(str(path), framework="numpy")
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is not a safetensors file: {error}") from None
    with opened:
        found = set(opened.keys())
        if found != set(shapes):
            odd = ", ".join(sorted(found ^ set(shapes)))
            raise ModelError(f"{path} does not hold the expected arrays: {odd}")
        for name, shape in shapes.items():
            part = opened.get_slice(name)
            if tuple(part.get_shape()) != tuple(shape):
                raise ModelError(
                    f"{path}: {name} has shape {tuple(part.get_shape())}; expected {tuple(shape)}"
                )
            value = opened.get_tensor(name)
            if value.dtype != dtype:
                raise ModelError(f"{path}: {name} has dtype {value.dtype}; expected {dtype}")
            yield name, value


def check_output(folder, overwrite=False, resume=False):
    """Refuse an output that can't be written, before any work: costs nothing, saves a night."""
    folder = Path(folder)
    recover(folder)
    parent = folder.parent
    if not parent.is_dir():
        raise SettingsError(f"{parent} is not a folder; make it first (mkdir -p)")
    if folder.exists():
        if not folder.is_dir():
            raise SettingsError(f"{folder} exists and is not a folder; choose another output")
        if any(folder.iterdir()) and not (overwrite or resume):
            raise SettingsError(
                f"{folder} exists; pass --overwrite to replace it or --resume to go on with it"
            )
    probe = parent / f".{folder.name}.probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise SettingsError(f"cannot write in {parent}: {error.strerror}") from None


def replace_text(path, text):
    """Replace a small text file at once (temporary name, flush, rename)."""
    path = Path(path)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    _flush(fresh)
    os.replace(fresh, path)


def _hidden(folder, role):
    absolute = folder.absolute()
    return absolute.with_name(f".{absolute.name}.{role}")


def _move_kept(source, target, keep):
    for name in keep:
        if (source / name).exists() and not (target / name).exists():
            os.rename(source / name, target / name)


def _flush(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems refuse it for folders
            os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
