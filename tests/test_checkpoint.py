"""Checkpoints: the newest whole one is found, the one before is kept, damage is told."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import runs

import fastnplm
from fastnplm import checkpoint
from fastnplm.errors import CheckpointError, Error, ModelError, SettingsError
from fastnplm.folder import MANIFEST, render, write_manifest

OPTIONS = {
    "kernels": "reference", "quiet": True, "batch_size": 16, "epochs": 2, "checkpoint_every": 3,
    "weight_decay": 0.1, "optimizer": "adam",
}  # fmt: skip


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr("fastnplm.folder.flush", lambda path: None)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A corpus and the output folder of a run that stopped in its second epoch."""
    with fastnplm.Corpus.prepare(runs.text(150, 20).splitlines(), min_count=1) as corpus:
        with runs.stopped_after(monkeypatch, 14), pytest.raises(KeyboardInterrupt):
            fastnplm.train(runs.network(corpus), corpus, out=tmp_path / "out", **OPTIONS)
        yield corpus, tmp_path / "out"


def places(out):
    return sorted((out / "checkpoints").iterdir(), reverse=True)


def resume(corpus, out):
    model = runs.network(corpus)
    fastnplm.train(model, corpus, out=out, resume=True, **OPTIONS)
    return model


def edit(place, name, change):
    """Change a file of a checkpoint and put its manifest right: only the readers are left."""
    (place / MANIFEST).unlink()
    change(place / name)
    write_manifest(place)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, (None, None)), (500, (500, None)), ("500", (500, None)), ("10m", (None, 600.0)),
        ("1.5h", (None, 5400.0)), ("2s", (None, 2.0)),
    ],
)  # fmt: skip
def test_every(given, found):
    assert checkpoint.every(given) == found


@pytest.mark.parametrize("given", [0, -1, "0", "0m", "x", "", "10 m", "1e3", "٣m", "٣", 1.5, "m"])
def test_every_refuses(given):
    with pytest.raises(SettingsError, match="checkpoint_every"):
        checkpoint.every(given)


def test_the_newest_and_the_one_before_are_kept(run):
    _, out = run
    found = places(out)
    assert [int(p.name) for p in found] == [12, 11]
    assert checkpoint.newest(out) == found[0]
    for place in found:
        assert sorted(p.name for p in place.iterdir()) == [
            MANIFEST, "optimizer.safetensors", "parameters.safetensors", "state.json",
        ]  # fmt: skip


@pytest.mark.parametrize("name", [MANIFEST, "state.json", "parameters.safetensors", "all"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(run, tmp_path, name):
    corpus, out = run
    shutil.copytree(out, tmp_path / "copy")
    whole = resume(corpus, tmp_path / "copy")
    if name == "all":
        shutil.rmtree(places(out)[0])
    else:
        path = places(out)[0] / name
        path.write_bytes(path.read_bytes()[:-1])
    again = resume(corpus, out)
    assert all((v == again.parameters[k]).all() for k, v in whole.parameters.items())


def test_a_run_all_of_whose_checkpoints_are_damaged_says_so(run):
    corpus, out = run
    for place in places(out):
        (place / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint is whole: .*state.json: is missing"):
        resume(corpus, out)


def test_a_checkpoint_that_was_being_replaced_is_found(run):
    corpus, out = run
    newest, before = places(out)
    shutil.rmtree(before)
    newest.rename(newest.parent / f".{newest.name}.previous")
    assert checkpoint.newest(out) == newest
    resume(corpus, out)


def test_what_a_killed_process_left_is_cleared_away(run):
    corpus, out = run
    left = out / "checkpoints" / ".000000000099.0123abcd.new"
    left.mkdir()
    (left / "half").write_text("")
    resume(corpus, out)
    assert not left.exists()


STATES = [
    {"epoch": -1}, {"epoch": True}, {"epoch": 1.0}, {"epoch": None}, {"batch": "1"},
    {"batch": 10**30}, {"updates": 1}, {"updates": []}, {"loss_sum": None}, {"loss_sum": math.nan},
    {"tokens": -4}, {"seconds": -1.0}, {"seconds": math.inf}, {"best": "low"}, {"best": math.nan},
    {"best_epoch": 2}, {"best_epoch": 0}, {"best_epoch": -3}, {"waited": None}, {"halvings": 1.5},
    {"random": {}}, {"random": None}, {"random": {"bit_generator": "MT19937"}},
    {"random": {"bit_generator": "PCG64", "state": {"state": -1, "inc": 2}, "has_uint32": 0,
                "uinteger": 0}},
    {"random": {"bit_generator": "PCG64", "state": {"state": 10**60, "inc": "x"}, "has_uint32": 0,
                "uinteger": 0}},
    {"decay": {}}, {"decay": {"embedding": None}}, {"decay": {"embedding": math.inf}},
    {"decay": 3}, {"history": []}, {"history": [1]}, {"history": {}}, {"settings": None},
    {"format": 2}, {"format": None},
]  # fmt: skip


@pytest.mark.parametrize("change", STATES, ids=str)
def test_a_state_that_no_run_wrote_is_refused(run, change):
    corpus, out = run

    def apply(path):
        path.write_text(json.dumps(json.loads(path.read_text()) | change))

    for place in places(out):
        edit(place, "state.json", apply)
    with pytest.raises(CheckpointError):
        resume(corpus, out)


@pytest.mark.parametrize("name", ["optimizer.safetensors", "parameters.safetensors"])
def test_arrays_of_another_shape_are_refused(run, name):
    from safetensors.numpy import load_file, save_file

    corpus, out = run
    changes = [
        lambda arrays: {k: v[:-1] for k, v in arrays.items()},
        lambda arrays: {k: v.astype(np.float16) for k, v in arrays.items()},
        lambda arrays: dict(list(arrays.items())[1:]),
        lambda arrays: arrays | {"more": np.zeros(3, np.float32)},
        lambda arrays: {},
    ]
    for change in changes:
        for place in places(out):
            edit(place, name, lambda path, change=change: save_file(change(load_file(path)), path))
        with pytest.raises(ModelError, match=name):
            resume(corpus, out)


def test_numbers_that_are_not_finite_are_refused(run):
    from safetensors.numpy import load_file, save_file

    corpus, out = run
    for place in places(out):
        arrays = load_file(place / "parameters.safetensors")
        arrays["embedding"][0, 0] = np.nan
        edit(place, "parameters.safetensors", lambda path, arrays=arrays: save_file(arrays, path))
    with pytest.raises(ModelError, match="embedding holds a number that is not finite"):
        resume(corpus, out)


def test_the_best_weights_must_still_be_there(run):
    corpus, out = run
    (out / "parameters.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"parameters.safetensors: has 0 bytes"):
        resume(corpus, out)


def test_files_that_the_manifest_does_not_list_are_not_believed(run):
    corpus, out = run
    for place in places(out):
        files = json.loads((place / MANIFEST).read_text())["files"]
        del files["parameters.safetensors"]
        (place / MANIFEST).write_text(render(files))
    with pytest.raises(Error, match=r"does not list parameters.safetensors"):
        resume(corpus, out)
