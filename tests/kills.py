"""Kill training processes at random moments; nothing may be lost.

    python kills.py KILLS FOLDER [WORDS [SEED]]

With the default vocabulary of 8,000 words a checkpoint has 12 MB; with 200 a run is so short that
thousands can be killed. Every second kill is aimed at the inside of a save. After each the
checkpoints are looked at: every folder at a final name must verify, the newest must load, and no
update that was saved before may be gone. The next process resumes. Runs that come to their end
must have the weights of the run that was never killed, bit for bit. Prints one JSON object with
the counts.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import runs

import fastnplm
from fastnplm import checkpoint, folder, storage

WORDS, BATCH = 8000, 64
OPTIONS = {
    "quiet": True, "batch_size": BATCH, "epochs": 3, "checkpoint_every": 8, "optimizer": "adam",
    "weight_decay": 0.01, "dropout": 0.1, "average": 0.0, "threads": 1, "loss": "ns",
    "kernels": runs.kernels(),
}  # fmt: skip


def prepared(place: Path, types: int) -> None:
    words = ["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(types)]
    vocabulary = fastnplm.Vocabulary(words, [1, 0, *range(types + 1, 0, -1)])
    text = runs.text(BATCH * 30, types).splitlines()
    fastnplm.Corpus.prepare(text, vocabulary=vocabulary, out=place).close()


def network(corpus: fastnplm.Corpus, seed: int | None = 3) -> fastnplm.NPLM:
    width = 64 if len(corpus.vocabulary) > 1000 else 8
    return runs.network(corpus, dim=width, hidden=width, seed=seed)


def train(corpus_place: Path, out: Path, told: int | None = None) -> None:
    """Train or go on; ``told`` is a pipe that hears when a save begins and ends."""
    if told is not None:
        for module in (checkpoint, storage):
            save = module.save

            def saving(*arguments, save=save, **options):
                os.write(told, b"(")
                save(*arguments, **options)
                os.write(told, b")")

            module.save = saving
    with fastnplm.Corpus.open(corpus_place) as corpus:
        model = network(corpus)
        fastnplm.train(model, corpus, out=out, resume=True, **OPTIONS)


def child(*arguments) -> tuple[int, int]:
    """A process that trains; its id and the pipe it writes to."""
    hears, told = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.close(hears)
        try:
            train(*arguments, told=told)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(told)
    return process, hears


def timed(*arguments) -> tuple[float, float]:
    """Seconds that a whole run takes, and its longest save."""
    began = time.perf_counter()
    process, hears = child(*arguments)
    longest, save = 0.0, began
    while heard := os.read(hears, 1):
        if heard == b"(":
            save = time.perf_counter()
        longest = max(longest, time.perf_counter() - save) if heard == b")" else longest
    os.close(hears)
    assert os.waitpid(process, 0)[1] == 0
    return time.perf_counter() - began, longest


def kill_one(
    generator: np.random.Generator, aim: bool, seconds: tuple[float, float], *arguments
) -> tuple[int, bool]:
    """Start a process and kill it; its exit status, and whether it was in the middle of a save.

    aim : kill within a save; seconds : what a whole run and a save take
    """
    process, hears = child(*arguments)
    heard = b""
    if aim:
        for _ in range(int(generator.integers(1, 4))):
            while heard.count(b"(") <= heard.count(b")"):
                if not select.select([hears], [], [], 20)[0] or not (more := os.read(hears, 1)):
                    break
                heard += more
            else:
                time.sleep(generator.uniform(0, seconds[1]))
                break
    else:
        time.sleep(generator.uniform(0, seconds[0]))
    os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    while more := os.read(hears, 1 << 16):
        heard += more
    os.close(hears)
    return status, heard.count(b"(") > heard.count(b")")


def look(corpus: fastnplm.Corpus, out: Path) -> int:
    """Check everything at a final name; updates of the newest checkpoint, 0 if there is none."""
    # A kill between the renames leaves the checkpoints in the previous version of the folder;
    # training that resumes moves them over first, as here.
    folder.recover(out, storage.KEEP)
    for place in [out, *(out / "checkpoints").glob("0*")]:
        if place != out or (out / folder.MANIFEST).exists():
            folder.check_folder(place)
    newest = checkpoint.newest(out)
    if newest is None:
        return 0
    if (out / "config.json").exists():
        fastnplm.load(out)
    step = fastnplm.Step(
        network(corpus, seed=None),
        fastnplm.Optimizer("adam", lr=0.001, weight_decay=0.01),
        BATCH,
        kernels="reference",
        dropout=0.1,
    )
    step.network.adopt(fastnplm.NegativeSampling())
    step = fastnplm.Step(step.network, step.optimizer, BATCH, kernels="reference", dropout=0.1)
    settings = folder.read_json(newest / "state.json")["settings"]
    return checkpoint.load(out, step, settings, {})["updates"]


def weights(out: Path) -> bytes:
    return (out / "parameters.safetensors").read_bytes()


def main(kills: int, place: Path, types: int = WORDS, seed: int = 0) -> dict[str, int]:
    generator = np.random.default_rng(seed)
    corpus_place, whole, out = place / "corpus", place / "whole", place / "run"
    prepared(corpus_place, types)
    seconds = timed(corpus_place, whole)
    corpus = fastnplm.Corpus.open(corpus_place)
    counts = {"kills": 0, "in a save": 0, "finished": 0, "sizes": 0}
    counts["sizes"] = sum(p.stat().st_size for p in checkpoint.newest(whole).iterdir())
    before, whole_run, save = 0, *seconds
    while counts["kills"] < kills:
        aim = counts["in a save"] * 2 <= counts["kills"] + 4  # some of those aimed miss
        status, saving = kill_one(generator, aim, (whole_run, save), corpus_place, out)
        if aim:  # the save that was timed may have been a slow one, and most shots then too late
            save = min(save * 1.1, seconds[1]) if saving else save * 0.8
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "a process failed of itself"
            assert weights(out) == weights(whole), "other weights than the run never killed"
            counts["finished"] += 1
            shutil.rmtree(out)
            before = 0
            continue
        counts["kills"] += 1
        counts["in a save"] += saving
        updates = look(corpus, out)
        assert updates >= before, f"update {before} was saved, now the newest is {updates}"
        before = updates
    process, _ = child(corpus_place, out)
    assert os.waitpid(process, 0)[1] == 0
    assert weights(out) == weights(whole)
    look(corpus, out)
    left = [p for p in out.rglob(".*")] + [p for p in place.glob(".*")]
    assert not left, f"left behind: {left}"
    counts["finished"] += 1
    return counts


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))))
