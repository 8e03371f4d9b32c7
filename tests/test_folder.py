"""Folders appear whole or not at all, and damage is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastnplm.errors import Error, ModelError
from fastnplm.folder import MANIFEST, check_folder, find_folder, new_folder, read_json


def write(place, text="one", **options):
    with new_folder(place, **options) as folder:
        (folder / "inner").mkdir()
        (folder / "a.txt").write_text(text)
        (folder / "inner" / "b.bin").write_bytes(bytes(5))


def test_a_folder_is_written_and_checked(tmp_path):
    place = tmp_path / "new" / "model"
    write(place)
    assert find_folder(place) == place
    check_folder(place)
    assert set(read_json(place / MANIFEST)["files"]) == {"a.txt", "inner/b.bin"}
    assert [path.name for path in place.parent.iterdir()] == ["model"]


def test_an_error_leaves_nothing_behind(tmp_path):
    def fail():
        with new_folder(tmp_path / "model") as folder:
            (folder / "a.txt").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_kept_unless_overwriting_is_asked_for(tmp_path):
    place = tmp_path / "model"
    write(place)
    with pytest.raises(Error, match="exists already"):
        write(place, "two")
    assert (place / "a.txt").read_text() == "one"
    write(place, "two", overwrite=True)
    assert (place / "a.txt").read_text() == "two"
    check_folder(place)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_error_while_overwriting_keeps_the_old_folder(tmp_path):
    place = tmp_path / "model"
    write(place)

    def fail():
        with new_folder(place, overwrite=True) as folder:
            (folder / "a.txt").write_text("half")
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        fail()
    check_folder(place)
    assert (place / "a.txt").read_text() == "one"


def test_a_folder_that_cannot_be_put_in_place_brings_the_old_one_back(tmp_path, monkeypatch):
    place = tmp_path / "model"
    write(place)
    rename = Path.rename

    def fail(path, target):
        if path.name.endswith(".new"):
            raise OSError("no permission")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="no permission"):
        write(place, "two", overwrite=True)
    check_folder(place)
    assert (place / "a.txt").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_foreign_folders_and_files_are_never_overwritten(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    (tmp_path / "file").write_text("x")
    for name in ("home", "file"):
        with pytest.raises(Error, match="not overwritten"):
            write(tmp_path / name, overwrite=True)
    assert (tmp_path / "home" / "letter").read_text() == "dear"
    assert (tmp_path / "file").read_text() == "x"


def test_a_reader_between_the_renames_finds_the_previous_folder(tmp_path):
    place = tmp_path / "model"
    write(place)
    place.rename(tmp_path / ".model.previous")
    found = find_folder(place)
    check_folder(found)
    assert (found / "a.txt").read_text() == "one"
    with pytest.raises(Error, match="exists already"):
        write(place, "two")
    write(place, "two", overwrite=True)
    assert (find_folder(place) / "a.txt").read_text() == "two"
    assert not found.exists()


def test_a_missing_folder_and_a_file_are_told_apart(tmp_path):
    with pytest.raises(ModelError, match="no such folder"):
        find_folder(tmp_path / "model")
    (tmp_path / "model").write_text("")
    with pytest.raises(ModelError, match="is a file"):
        find_folder(tmp_path / "model")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "a.txt").unlink(), "a.txt: is missing"),
        (lambda p: (p / "a.txt").write_text("on"), "has 2 bytes, the manifest says 3"),
        (lambda p: (p / "inner" / "b.bin").write_bytes(b"\0\0\1\0\0"), "checksum"),
        (lambda p: (p / MANIFEST).unlink(), "cannot be read"),
        (lambda p: (p / MANIFEST).write_text("{"), "is not JSON"),
        (lambda p: (p / MANIFEST).write_bytes(b"\xff"), "is not JSON"),
        (lambda p: (p / MANIFEST).write_text("[" * 100_000), "is not JSON"),
        (lambda p: (p / MANIFEST).write_text("[]"), "holds a list"),
        (lambda p: (p / MANIFEST).write_text("{}"), "no list of files"),
        (lambda p: (p / MANIFEST).write_text('{"files": {"a.txt": 3}}'), "does not describe"),
        (lambda p: (p / MANIFEST).write_text('{"files": {"%s": {}}}' % ("a" * 5000)), "too long"),
        (lambda p: (p / MANIFEST).write_bytes((p / MANIFEST).read_bytes()[:-1]), "not as it was"),
        (lambda p: (p / MANIFEST).write_text('{"files": {}}'), "not as it was written"),
    ],
)
def test_damage_is_noticed(tmp_path, damage, message):
    place = tmp_path / "model"
    write(place)
    damage(place)
    with pytest.raises(ModelError, match=message):
        check_folder(place)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "inner/../../secret"])
def test_names_outside_the_folder_are_refused(tmp_path, name):
    place = tmp_path / "model"
    write(place)
    (tmp_path / "secret").write_text("")
    (place / MANIFEST).write_text(json.dumps({"files": {name: {"bytes": 0, "sha256": ""}}}))
    with pytest.raises(ModelError, match="outside the folder"):
        check_folder(place)
