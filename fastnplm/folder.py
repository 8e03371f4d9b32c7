"""Folders that are written whole or not at all, and read back checked.

A new folder is filled under a temporary name beside its place, described by ``manifest.json``
(size and SHA-256 of each file), flushed to disk, and put in place by a rename. A folder that was
there before steps aside under the name ``.NAME.previous`` for the moment between two renames, and
``find_folder`` looks there too.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TypeVar

from fastnplm.errors import Error, ModelError

try:
    import fcntl
except ImportError:  # Windows: temporary folders of killed processes stay
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "MANIFEST",
    "check_folder",
    "discard",
    "find_folder",
    "locked_folder",
    "new_folder",
    "put_in_place",
    "read_config",
    "read_folder",
    "read_json",
    "recover",
    "replace_text",
    "sweep",
    "unlock",
]

MANIFEST = "manifest.json"
OBJECT_BYTES = 72
"""What a small JSON object takes in memory, at most."""
Read = TypeVar("Read")


@contextmanager
def new_folder(
    place: str | os.PathLike[str], overwrite: bool = False, keep: tuple[str, ...] = ()
) -> Iterator[Path]:
    """Give a temporary folder to fill; put it at ``place`` when the block ends without an error.

    Raises an Error, before the block runs, if something is at ``place`` already, unless
    ``overwrite`` is true and it is an empty folder or one with a manifest. After an error in the
    block the temporary folder is gone and what was at ``place`` is as before. Entries named in
    ``keep`` (they are not in the manifest) move over from the folder that is replaced. What a
    process that was killed left beside ``place`` is removed.
    """
    place = Path(os.path.abspath(place))
    recover(place, keep)
    sweep(place.parent, place.name)
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
    temporary, lock = locked_folder(place)
    try:
        yield temporary
        write_manifest(temporary)
        put_in_place(temporary, place, keep)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        unlock(lock)


def put_in_place(folder: Path, place: Path, keep: tuple[str, ...] = ()) -> None:
    """Let a finished folder, on the same disk, take the place of what is at ``place``.

    There is always either of them, at ``place`` or under the name of the previous version.
    """
    previous = previous_of(place)
    try:
        if place.exists():
            place.rename(previous)
        folder.rename(place)
        flush(place.parent)
    except BaseException:
        if previous.exists() and not place.exists():
            previous.rename(place)
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
        flush(place)
        discard(previous, place.name)


def discard(folder: Path, name: str) -> None:
    """Remove a folder; a crash half-way leaves a temporary one of ``name``, never half of it."""
    doomed = folder.parent / temporary_name(name)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(parent: Path, name: str | None = None) -> None:
    """Remove temporary folders in ``parent`` (of one ``name``) that no living process holds."""
    if fcntl is None:
        return
    for left in parent.glob(f".{'*' if name is None else glob.escape(name)}.????????.new"):
        try:
            lock = os.open(left, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except OSError:  # somebody fills it
            pass
        finally:
            os.close(lock)


def locked_folder(place: Path) -> tuple[Path, int | None]:
    """A new temporary folder for ``place``, and the lock that says that we live."""
    while True:
        temporary = place.parent / temporary_name(place.name)
        temporary.mkdir()
        if fcntl is None:
            return temporary, None
        lock = os.open(temporary, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks: nobody sweeps there either
            fcntl.flock(lock, fcntl.LOCK_EX)
        if temporary.is_dir():  # else it was swept away before it was locked
            return temporary, lock
        os.close(lock)


def temporary_name(name: str) -> str:
    return f".{name}.{secrets.token_hex(4)}.new"


def unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def replace_text(path: Path, text: str) -> None:
    """Replace a small text file at once: temporary name, flush, rename."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        flush(fresh)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


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


def read_folder(place: str | os.PathLike[str], read: Callable[[Path], Read]) -> Read:
    """``read(folder)`` of one version of ``place``: once more if a new one came meanwhile."""
    while True:
        folder = find_folder(place)
        before = identity(folder)
        try:
            found = read(folder)
        except Error:
            if identity(folder) == before:
                raise
            continue
        if identity(folder) == before:
            return found


def check_folder(folder: Path, needed: Sequence[str] = ()) -> None:
    """Compare the files of a folder with its manifest; raise a ModelError at the first doubt.

    needed : files that must be among them
    """
    place = folder / MANIFEST
    manifest = read_json(place)
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise ModelError(f"{place}: has no list of files; the folder is damaged")
    for name, entry in files.items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\\" in name:
            raise ModelError(f"{place}: names {name!r}, a file outside the folder")
        path = folder / parts
        if not isinstance(entry, dict):
            raise ModelError(f"{place}: does not describe {name!r}; it is damaged")
        try:
            if not path.is_file():
                raise ModelError(f"{path}: is missing; the folder is incomplete")
            size = path.stat().st_size
            if size != entry.get("bytes"):
                raise ModelError(
                    f"{path}: has {size} bytes, the manifest says {entry.get('bytes')}; "
                    "the folder is damaged"
                )
            if digest(path) != entry.get("sha256"):
                raise ModelError(f"{path}: its checksum is not the manifest's; the file is damaged")
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    for name in needed:
        if name not in files:
            raise ModelError(f"{place}: does not list {name}; the folder is incomplete")
    # Compared as text: no flipped bit and no missing byte survives, not even in white space.
    if file_bytes(place) != render(files).encode():
        raise ModelError(f"{place}: is not as it was written; it is damaged")


def read_json(path: Path) -> dict:
    """The object in a JSON file; a ModelError if it is missing, malformed or not an object."""
    data = file_bytes(path)
    # A file of nothing but brackets would take twenty times its size in memory.
    if OBJECT_BYTES * sum(map(data.count, (b",", b"[", b"{"))) > 2 * len(data) + (64 << 20):
        raise ModelError(f"{path}: holds more objects than such a file can have; it is damaged")
    try:
        found = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path}: holds a {type(found).__name__}; a JSON object was expected")
    return found


def read_config(place: Path, format: int, kind: str, asked: str | None = None) -> dict:
    """The config.json of a folder, which must be of this format and kind; raises ModelError.

    asked : the file as the user knows it, for the message; None: ``place``
    """
    config = read_json(place)
    if config.get("format") != format or config.get("kind") != kind:
        raise ModelError(
            f"{asked or place}: format {config.get('format')!r}, kind {config.get('kind')!r};"
            f" this version reads format {format}, kind {kind!r}"
        )
    return config


def file_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error


def identity(folder: Path) -> tuple[int, int, int] | None:
    """What tells one version of a folder from the next; None if there is none."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def render(files: dict) -> str:
    return json.dumps({"files": files}, indent=1) + "\n"


def previous_of(place: Path) -> Path:
    return place.parent / f".{place.name}.previous"


def write_manifest(folder: Path) -> None:
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        files[name] = {"bytes": path.stat().st_size, "sha256": digest(path)}
        flush(path)
    target = folder / MANIFEST
    target.write_text(render(files), encoding="utf-8")
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
