"""Fail every disk operation of a save, once each, and look at what is left (SQLite's way).

    python faults.py SCENARIO HOW FOLDER

HOW: ``once`` (that call fails), ``full`` (that call and all that need room after it fail),
``half`` (a write is cut short), ``kill`` (the process dies there). Prints one JSON object. The
process must run with the library of ``faults.c`` preloaded.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import runs

import fastnplm
from fastnplm import checkpoint, folder, storage, word2vec
from fastnplm.arpa import read_arpa, write_arpa
from fastnplm.errors import Error

HOW = {"once": (0, errno.EIO), "full": (1, errno.ENOSPC), "half": (2, 0), "kill": (3, 0)}
library = ctypes.CDLL(None)


class Scenario:
    """``old`` puts the first version there, ``act`` the second; ``look`` says which is there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.corpus = fastnplm.Corpus.prepare(["a b c", "b c", "c"], min_count=1)
        self.network = runs.network(self.corpus)

    def old(self) -> None:
        self.put(1)

    def act(self) -> None:
        self.put(2)

    def put(self, version: int) -> None:
        raise NotImplementedError

    def look(self) -> int:
        raise NotImplementedError

    def set(self, version: int) -> None:
        for name, value in self.network.parameters.items():
            value[...] = version + len(name) / 100


class Model(Scenario):
    def put(self, version):
        self.set(version)
        storage.save(self.network, self.place / "model", overwrite=True)
        folder.replace_text(self.place / "model" / "history.jsonl", f"{version}\n")

    def look(self):
        if not (self.place / "model").exists():
            folder.find_folder(self.place / "model")
        found = {int(v.flat[0]) for v in fastnplm.load(self.place / "model").parameters.values()}
        assert len(found) == 1, f"a mixture of versions {found}"
        history = folder.find_folder(self.place / "model") / "history.jsonl"
        assert not history.exists() or history.read_text() in ("1\n", "2\n")
        return found.pop()


class FirstModel(Model):
    def old(self):
        pass


class Checkpoint(Scenario):
    """The third of a run: the first goes, the second stays; its folder exists from before."""

    def put(self, version):
        self.set(version)
        step = fastnplm.Step(self.network, "adam", 4, kernels="reference")
        for updates in (10, 20) if version == 1 else (30,):
            step.state.updates = updates
            self.save(step, version)

    def save(self, step, version):
        for slots in step.state.slots.values():
            slots[...] = version
        state = {
            "settings": {}, "epoch": 0, "batch": step.state.updates, "loss_sum": float(version),
            "updates": step.state.updates, "tokens": 1, "seconds": 0.0, "best": None,
            "best_epoch": None, "waited": 0, "halvings": 0, "decay": {}, "history": [],
            "random": np.random.default_rng(0).bit_generator.state,
        }  # fmt: skip
        checkpoint.save(self.place, step, state, {})

    def look(self):
        for place in (self.place / "checkpoints").glob("0*"):
            folder.check_folder(place)  # nothing at a final name that does not verify
        step = fastnplm.Step(self.network, "adam", 4, kernels="reference")
        state = checkpoint.load(self.place, step, {}, {})
        found = {int(v.flat[0]) for v in self.network.parameters.values()}
        found |= {int(slots.flat[0]) for slots in step.state.slots.values()}
        assert found == {state["loss_sum"]}, f"a mixture of versions {found}"
        return found.pop()


class SameCheckpoint(Checkpoint):
    """One that is written twice (Ctrl-C just after it): it is replaced."""

    def put(self, version):
        self.set(version)
        step = fastnplm.Step(self.network, "adam", 4, kernels="reference")
        step.state.updates = 10
        self.save(step, version)


class Corpus(Scenario):
    def put(self, version):
        text = ["a b c"] * version
        fastnplm.Corpus.prepare(text, out=self.place / "corpus", min_count=1, overwrite=True)

    def look(self):
        with fastnplm.Corpus.open(self.place / "corpus") as corpus:
            corpus.verify()
            return corpus.sentences


class NGram(Scenario):
    def put(self, version):
        with fastnplm.Corpus.prepare(["a b c", "b c"] * version, min_count=1) as corpus:
            fastnplm.NGram.train(corpus, order=version).save(self.place / "kn")

    def look(self):
        return fastnplm.load(self.place / "kn").order


class Vectors(Scenario):
    def put(self, version):
        vocabulary = SimpleNamespace(words=["a", "b"])
        vectors = SimpleNamespace(vocabulary=vocabulary, rows=np.full((2, 3), version))
        word2vec.write(vectors, self.place / "v.vec", binary=version == 2)

    def look(self):
        return int(word2vec.read(self.place / "v.vec")[1][0, 0])


class Vocabulary(Scenario):
    def put(self, version):
        words = ["<unk>", "<s>", "</s>", "word"]
        fastnplm.Vocabulary(words, [0, 0, 0, version]).save(self.place / "v.tsv")

    def look(self):
        return int(fastnplm.Vocabulary.load(self.place / "v.tsv").counts[3])


class Arpa(Scenario):
    def put(self, version):
        with fastnplm.Corpus.prepare(["a b c", "b c"] * version, min_count=1) as corpus:
            model = fastnplm.NGram.train(corpus, order=version)
        write_arpa(model.backoff, model.vocabulary.words, self.place / "m.arpa")

    def look(self):
        return read_arpa(self.place / "m.arpa")[0].order


SCENARIOS = {
    "model": Model, "first-model": FirstModel, "checkpoint": Checkpoint,
    "same-checkpoint": SameCheckpoint, "corpus": Corpus, "ngram": NGram, "vectors": Vectors,
    "vocabulary": Vocabulary, "arpa": Arpa,
}  # fmt: skip


def looked(scenario: Scenario) -> int:
    """The version that loads; 0 for nothing, where nothing was before."""
    try:
        return scenario.look()
    except Error:
        if isinstance(scenario, FirstModel):
            return 0
        raise


def names(place: Path) -> list[str]:
    return sorted(p.relative_to(place).as_posix() for p in place.rglob("*"))


def attempt(scenario: Scenario, n: int, how: str) -> str:
    """``act`` with a fault at operation n; what became of it."""
    library.fault_arm(n, *HOW[how])
    try:
        scenario.act()
    except (Error, OSError):
        return "refused"
    finally:
        library.fault_disarm()
    return "done"


def main(name: str, how: str, place: Path) -> dict[str, int]:
    """Every operation of ``name`` in turn; raises if anything but the old or new is left."""
    library.fault_disarm.restype = ctypes.c_long
    make = SCENARIOS[name]
    clean = fresh(make, place / "clean")
    library.fault_arm(0, 0, 0)
    clean.act()
    operations = library.fault_disarm()
    expected = names(clean.place)
    counts = {"operations": operations, "old": 0, "new": 0, "refused": 0}
    for n in range(1, operations + 1):
        scenario = fresh(make, place / "tried")
        before = looked(scenario)
        if how == "kill":
            child = os.fork()
            if child == 0:
                attempt(scenario, n, how)
                os._exit(0)
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), f"operation {n}: not killed"
            outcome = "killed"
        else:
            outcome = attempt(scenario, n, how)
        found = looked(scenario)
        assert found in (before, 2), f"operation {n}: found version {found}"
        # A fault while old things are cleared away need not be told, but then all is new.
        assert outcome != "done" or found == 2, f"operation {n}: success without a result"
        counts["refused"] += outcome == "refused"
        counts["new" if found == 2 else "old"] += 1
        scenario.act()
        assert looked(scenario) == 2
        left = set(names(scenario.place)) ^ set(expected)
        if name in ("model", "first-model", "checkpoint", "same-checkpoint", "ngram", "corpus"):
            assert not left, f"operation {n}: {left}"
    return counts


def fresh(make: type[Scenario], place: Path) -> Scenario:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    scenario = make(place)
    scenario.old()
    return scenario


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
