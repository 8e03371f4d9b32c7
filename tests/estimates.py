"""Train in a process of its own and compare what it took with what was estimated.

    python estimates.py CORPUS '{"dim": 64, ..., "train": {...}}' [LIMIT]

Prints one JSON object: estimated and largest resident size, bytes. LIMIT: of the address space.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np
import runs

import fastnplm
from fastnplm import estimate, plan

WORDS_OF_VALIDATION = 3000


def prepared(place: Path, types: int, tokens: int) -> Path:
    """A corpus of random words, all of the vocabulary of ``types`` words known."""
    words = ["<unk>", "<s>", "</s>"] + [f"word{i}" for i in range(types - 3)]
    counts = np.arange(types, 0, -1)
    vocabulary = fastnplm.Vocabulary(words, [1, 0, *counts[2:].tolist()])
    ids = np.random.default_rng(0).integers(3, types, tokens)
    lines = (" ".join(words[i] for i in ids[low : low + 20]) for low in range(0, tokens, 20))
    fastnplm.Corpus.prepare(lines, vocabulary=vocabulary, out=place).close()
    return place


def largest() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def main(corpus_place: str, sizes: dict, limit: int | None = None) -> dict[str, object]:
    options = {"epochs": 1, "batch_size": 256, "average": 0.0, "quiet": True}
    options["kernels"] = runs.kernels()
    options |= sizes.pop("train")
    held_out = sizes.pop("valid", False)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with tempfile.TemporaryDirectory() as folder, fastnplm.Corpus.open(corpus_place) as corpus:
        if options.pop("saved", False):
            options |= {"out": f"{folder}/model", "checkpoint_every": 20}
        valid = None
        if held_out:
            text = [" ".join(corpus.vocabulary.words[3 : 3 + WORDS_OF_VALIDATION])]
            valid = fastnplm.Corpus.prepare(text, vocabulary=corpus.vocabulary)
        checked = plan.check(valid=valid, **options).fitted(len(corpus), len(corpus.vocabulary))
        outline = estimate.Outline(corpus.vocabulary, **sizes)
        found = estimate.of_run(outline, checked, corpus, valid)
        try:
            found.require()
        except fastnplm.Error as error:
            return {"refused": str(error), "estimate": found.peak}
        before = largest()
        fastnplm.train(fastnplm.NPLM(corpus.vocabulary, **sizes), corpus, valid, **options)
        if valid is not None:
            valid.close()
        return {"estimate": found.peak, "peak": largest(), "parts": found.memory, "before": before}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]), *map(int, sys.argv[3:]))))
