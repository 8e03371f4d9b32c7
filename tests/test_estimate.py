"""What a run takes was said before it began."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import estimates
import pytest
from subjects import HAS_NUMBA

import fastnplm
from fastnplm import estimate, plan
from fastnplm.errors import ResourceError

HERE = Path(__file__).parent
MIB = 1 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
numba = pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A prepared corpus of so many types and tokens, made once."""
    made = {}

    def corpus(types, tokens=6000):
        if (types, tokens) not in made:
            folder = tmp_path_factory.mktemp("corpora") / "corpus"
            made[types, tokens] = estimates.prepared(folder, types, tokens)
        return made[types, tokens]

    return corpus


def run(corpus, sizes, *limit):
    environment = os.environ | {
        "PYTHONPATH": f"{HERE}:{HERE.parent}", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, str(HERE / "estimates.py"), str(corpus), json.dumps(sizes), *limit],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


ADAM = {"optimizer": "adam"}
CASES = {
    "softmax adam": (80_000, {"dim": 64, "hidden": 64, "train": ADAM | {"loss": "softmax"}}),
    "ns adagrad, validated": (
        200_000,
        {"dim": 100, "hidden": 80, "valid": True,
         "train": {"loss": "ns", "optimizer": "adagrad", "epochs": 2}},
    ),
    "softmax sgd bf16 tied, direct": (
        100_000,
        {"dim": 96, "hidden": 96, "tied": True, "direct": True,
         "train": {"loss": "softmax", "optimizer": "sgd", "precision": "bf16"}},
    ),
    "nce momentum direct, saved": (
        50_000,
        {"context": 3, "dim": 64, "hidden": 32, "direct": True,
         "train": {"loss": "nce", "optimizer": "momentum", "saved": True}},
    ),
    "ns adam decayed, saved, validated": (
        150_000,
        {"dim": 80, "hidden": 80, "valid": True,
         "train": ADAM | {"loss": "ns", "weight_decay": 0.01, "saved": True, "epochs": 2}},
    ),
    "two layers, dropout, large batches": (
        30_000,
        {"context": 6, "dim": 100, "hidden": 300, "layers": 2, "valid": True,
         "train": {"optimizer": "rmsprop", "batch_size": 2048, "buffer_mib": 1024, "dropout": 0.2,
                   "input_dropout": 0.1, "saved": True}},
    ),
    "softmax adam averaged": (
        50_000,
        {"dim": 64, "hidden": 64, "valid": True,
         "train": ADAM | {"average": 0.1, "saved": True, "checkpoint_every": 2}},
    ),
    "tied, direct, hashed": (
        50_000,
        {"dim": 64, "hidden": 64, "tied": True, "direct": True, "hashed": 400_000, "valid": True,
         "train": {"loss": "nce", "saved": True, "weight_decay": 0.01, "epochs": 2}},
    ),
    "untied, hashed, L1": (
        20_000,
        {"context": 3, "dim": 30, "hidden": 500, "hashed": 100_000, "valid": True,
         "train": {"loss": "ns", "saved": True, "l1": 0.01, "epochs": 2}},
    ),
    "reference": (20_000, {"dim": 32, "hidden": 32, "train": ADAM | {"kernels": "reference"}}),
    "numba": (50_000, {"dim": 64, "hidden": 64, "train": ADAM | {"kernels": "numba"}}),
    "numba ns": (50_000, {"dim": 64, "hidden": 64, "train": {"loss": "ns", "kernels": "numba"}}),
    "many examples": (
        20_000, {"context": 2, "dim": 8, "hidden": 8, "train": {"loss": "ns", "batch_size": 4096}},
    ),
}  # fmt: skip
QUICK = ("ns adagrad, validated", "nce momentum direct, saved")


@linux
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=([] if name in QUICK else [pytest.mark.slow])
            + ([numba] if name.startswith("numba") else []),
        )
        for name in CASES
    ],
)
def test_a_run_takes_what_was_estimated(corpora, name, capsys):
    types, sizes = CASES[name]
    tokens = 3_000_000 if name == "many examples" else 6000
    found = run(corpora(types, tokens), sizes)
    with capsys.disabled():
        print(f"\n{name}: {found['peak'] / MIB:.0f} of {found['estimate'] / MIB:.0f} MiB", end=" ")
    assert found["peak"] <= 1.1 * found["estimate"] + 64 * MIB, found
    # nor is it so large that it says nothing
    assert found["estimate"] <= 1.5 * found["peak"] + 64 * MIB, found


@linux
@pytest.mark.slow
def test_fc_47_memory_is_predicted_then_kept(corpora):
    corpus = corpora(1_000_000, 256_000)
    sizes = {"context": 4, "dim": 100, "hidden": 100,
             "train": {"loss": "ns", "optimizer": "adagrad"}}  # fmt: skip
    found = run(corpus, sizes)
    assert found["peak"] <= 1.1 * found["estimate"] + 64 * MIB, found
    limit = 2 * found["estimate"] // 3
    refused = run(corpus, sizes, str(limit))["refused"]
    assert "training takes 1." in refused
    assert "more can be had (ulimit, RLIMIT_AS)" in refused


@pytest.fixture
def small(tmp_path):
    with fastnplm.Corpus.prepare(["a b c", "b c"], min_count=1) as corpus:
        yield corpus, fastnplm.NPLM(corpus.vocabulary, context=2, dim=4, hidden=6)


def test_too_little_of_either_is_refused_before_the_work(small, tmp_path, monkeypatch):
    corpus, model = small
    before = {name: value.copy() for name, value in model.parameters.items()}
    with monkeypatch.context() as patch:
        patch.setattr(estimate, "limits", lambda: [(1 << 10, "a small machine", False)])
        with pytest.raises(ResourceError, match=r"takes 0 MiB .* only 0 MiB .*\(a small machine\)"):
            fastnplm.train(model, corpus, out=tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(estimate, "disk_free", lambda place: 1 << 20)
        with pytest.raises(ResourceError, match=r"writes 2 MiB in .*, but 1 MiB are free"):
            fastnplm.train(model, corpus, out=tmp_path / "m")
    assert not (tmp_path / "m").exists()
    assert all((value == before[name]).all() for name, value in model.parameters.items())


def test_what_stands_there_already_is_not_needed_again(small, tmp_path):
    corpus, model = small
    options = {"out": tmp_path / "m", "checkpoint_every": 1, "quiet": True, "batch_size": 2}
    fastnplm.train(model, corpus, epochs=1, **options)
    checked = plan.check(resume=True, **options).fitted(len(corpus), len(corpus.vocabulary))
    found = estimate.of_run(model, checked, corpus)
    there = sum(path.stat().st_size for path in (tmp_path / "m").rglob("*") if path.is_file())
    assert found.kept == there > 0
    assert set(found.disk) == {"model", "checkpoints"}
    assert found.place == str(tmp_path)


def test_the_disk_holds_what_was_estimated(tmp_path, monkeypatch):
    """The largest size that a run's folder has at any moment, looked at before each rename."""
    from fastnplm import folder

    with fastnplm.Corpus.prepare([" ".join(f"w{i}" for i in range(3000))], min_count=1) as corpus:
        model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=64, hidden=64)
        options = {"out": tmp_path / "m", "checkpoint_every": 4, "quiet": True, "epochs": 2}
        found = estimate.of_run(
            model, plan.check(**options).fitted(len(corpus), len(corpus.vocabulary)), corpus
        )
        sizes = []
        put = folder.put_in_place

        def watched(*arguments):
            sizes.append(sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()))
            return put(*arguments)

        monkeypatch.setattr(folder, "put_in_place", watched)
        fastnplm.train(model, corpus, **options)
    assert len(sizes) > 4
    assert max(sizes) <= sum(found.disk.values()) <= 1.3 * max(sizes) + 2 * MIB


def test_control_groups_and_tables_are_read(tmp_path, monkeypatch):
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "a" / "memory.max").write_text("1000000\n")
    (tmp_path / "a" / "memory.current").write_text("700000\n")
    (tmp_path / "a" / "memory.stat").write_text("anon 5\ninactive_file 50000\n")
    (group / "memory.max").write_text("max\n")
    monkeypatch.setattr(estimate, "_CGROUP", tmp_path)
    monkeypatch.setattr(estimate, "_control_groups", lambda: [group, tmp_path / "a"])
    found = {limit: left for left, limit, _ in estimate.limits()}
    assert found[f"memory limit of {tmp_path / 'a'}"] == 350_000
    assert f"memory limit of {group}" not in found
    assert estimate.memory_left() == (350_000, f"memory limit of {tmp_path / 'a'}")
