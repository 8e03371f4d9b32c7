"""Folders that are written whole or not at all, and read back checked.

A new folder is filled under a temporary name beside its place, described by ``manifest.json``
(size and SHA-256 of each file), flushed to disk, and put in place by a rename. A folder that was
there before steps aside under the name ``.NAME.previous`` for the moment between two renames, and
``find_folder`` looks there too.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fastnplm.errors import ModelError

__all__ = [
    "MANIFEST",
    "check_folder",
    "find_folder",
    "new_folder",
    "read_json",
    "recover",
    "replace_text",
]

MANIFEST = "manifest.json"


@contextmanager
def new_folder(
    place: str | os.PathLike[str], overwrite: bool = False, keep: tuple[str, ...] = ()
) -> Iterator[Path]:
    """Give a temporary folder to fill; put it at ``place`` when the block ends without an error.

    Raises an Error, before the block runs, if something is at ``place`` already, unless
    ``overwrite`` is true and it is an empty folder or one with a manifest. After an error in the
    block the temporary folder is gone and what was at ``place`` is as before. Entries named in
    ``keep`` (they are not in the manifest) move over from the folder that is replaced.
    """
    place = Path(os.path.abspath(place))
    previous = previous_of(place)
    recover(place, keep)
    if place.exists():
        if not overwrite:
            raise ModelError(f"{place} exists already; choose another name, or say overwrite")
        strange = place.is_dir() and any(entry.name not in keep for entry in place.iterdir())
        if not place.is_dir() or (strange and not (place / MANIFEST).is_file()):
            raise ModelError(
                f"{place} is not a folder this program wrote (it has no {MANIFEST}), "
                "so it is not overwritten; choose another name"
            )
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.parent / f".{place.name}.{secrets.token_hex(4)}.new"
    temporary.mkdir()
    try:
        yield temporary
        write_manifest(temporary)
        if place.exists():
            place.rename(previous)
        temporary.rename(place)
        flush(place.parent)
    except BaseException:
        if previous.exists() and not place.exists():
            previous.rename(place)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    recover(place, keep)


def recover(place: str | os.PathLike[str], keep: tuple[str, ...] = ()) -> None:
    """Finish the replacement of a folder, also one that a crash interrupted at any moment.

    Afterwards ``place`` is the newest whole version (if there is any), with the ``keep`` entries
    of the one before, and no previous version and no unfinished folder is left beside it.
    """
    place = Path(os.path.abspath(place))
    previous = previous_of(place)
    if previous.exists() and not place.exists():
        previous.rename(place)
    if previous.exists():
        for name in keep:
            if (previous / name).exists() and not (place / name).exists():
                (previous / name).rename(place / name)
        shutil.rmtree(previous, ignore_errors=True)


def replace_text(path: Path, text: str) -> None:
    """Replace a small text file at once: temporary name, flush, rename."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    flush(fresh)
    fresh.replace(path)


def find_folder(place: str | os.PathLike[str]) -> Path:
    """The folder at ``place``, or its previous version while a new one is being put there.

    Raises an Error if there is neither.
    """
    place = Path(os.path.abspath(place))
    for folder in (place, previous_of(place), place):
        if folder.is_dir():
            return folder
    if place.exists():
        raise ModelError(f"{place} is a file; a folder was expected")
    raise ModelError(f"{place}: there is no such folder")


def check_folder(folder: Path) -> None:
    """Compare the files of a folder with its manifest; raise a ModelError at the first doubt."""
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict):
        raise ModelError(f"{folder / MANIFEST}: has no list of files; the folder is damaged")
    for name, entry in files.items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise ModelError(f"{folder / MANIFEST}: names {name!r}, a file outside the folder")
        path = folder / parts
        if not path.is_file():
            raise ModelError(f"{path}: is missing; the folder is incomplete")
        if not isinstance(entry, dict) or path.stat().st_size != entry.get("bytes"):
            expected = entry.get("bytes") if isinstance(entry, dict) else entry
            raise ModelError(
                f"{path}: has {path.stat().st_size} bytes, the manifest says {expected}; "
                "the folder is damaged"
            )
        if digest(path) != entry.get("sha256"):
            raise ModelError(f"{path}: its checksum is not the manifest's; the file is damaged")


def read_json(path: Path) -> dict:
    """The object in a JSON file; a ModelError if it is missing, malformed or not an object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path}: holds a {type(found).__name__}; a JSON object was expected")
    return found


def previous_of(place: Path) -> Path:
    return place.parent / f".{place.name}.previous"


def write_manifest(folder: Path) -> None:
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        files[name] = {"bytes": path.stat().st_size, "sha256": digest(path)}
        flush(path)
    target = folder / MANIFEST
    target.write_text(json.dumps({"files": files}, indent=1) + "\n", encoding="utf-8")
    flush(target)
    for path in folder.rglob("*"):
        if path.is_dir():
            flush(path)
    flush(folder)


def digest(path: Path) -> str:
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def flush(path: Path) -> None:
    """Have the system write a file or a folder's entries to disk."""
    if path.is_dir() and os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
