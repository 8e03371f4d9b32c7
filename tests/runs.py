"""Small training runs that are stopped, and what tells two runs apart."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from pathlib import Path

import numpy as np

import fastnplm
from fastnplm.interrupts import Interrupts

WALL_CLOCK = ("seconds", "tokens_per_second", "valid_seconds")


def kernels() -> str:
    """The compiled kernels where they are whole, else the specification."""
    if importlib.util.find_spec("fastnplm.kernels.native") is None:
        return "reference"
    from fastnplm.kernels import native

    return "native" if hasattr(native, "softmax_step") else "reference"


def text(words: int, types: int, seed: int = 0) -> str:
    """Words of Zipf's law in lines of 1 to 12, the same for the same seed."""
    generator = np.random.default_rng(seed)
    ids = np.minimum(generator.zipf(1.3, size=words), types)
    breaks = np.cumsum(generator.integers(1, 13, size=words))
    lines = np.split(ids, breaks[breaks < words])
    return "".join(" ".join(f"w{i}" for i in line) + "\n" for line in lines)


def network(corpus, loss="softmax", **sizes):
    sizes = {"context": 2, "dim": 4, "hidden": 6, "seed": 3} | sizes
    return fastnplm.NPLM(corpus.vocabulary, **sizes)


@contextlib.contextmanager
def stopped_after(monkeypatch, batches: int):
    """Training in the block meets Ctrl-C between two batches, after so many of them."""
    left = [batches]

    def check(self):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "check", check)
        yield


def without_clock(value):
    """JSON values without what the wall clock wrote."""
    if isinstance(value, dict):
        return {k: without_clock(v) for k, v in value.items() if k not in WALL_CLOCK}
    if isinstance(value, list):
        return [without_clock(item) for item in value]
    return value


def contents(folder: Path) -> dict[str, object]:
    """Every file of a run's output by name; what holds times is compared without them.

    Of the checkpoints only the newest: the one before depends on where a run was stopped.
    """
    found: dict[str, object] = {}
    newest = max((folder / "checkpoints").glob("0*"), default=folder)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if name.startswith("checkpoints") and not path.is_relative_to(newest):
            continue
        if path.name == "manifest.json":
            files = json.loads(path.read_text())["files"]
            found[name] = {k: v for k, v in files.items() if k != "state.json"}
        elif path.name == "state.json":
            found[name] = without_clock(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            found[name] = [without_clock(json.loads(x)) for x in path.read_text().splitlines()]
        else:
            found[name] = path.read_bytes()
    return found
