"""Beyond memory and beyond 32 bits: with sparse files and pages that are never touched."""

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import subjects
from sparse import sparse_corpus

import fastnplm
from fastnplm.batches import Epoch

ROOT = str(Path(__file__).parents[1])
F = np.float32

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")

_RUN = """
import json, sys, threading, time
import fastnplm

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10

peaks, phase, stop = {}, "start", threading.Event()
def watch():
    while not stop.is_set():
        peaks[phase] = max(peaks.get(phase, 0), anonymous())
        time.sleep(0.002)
watching = threading.Thread(target=watch)
watching.start()
phase = "prepare"
corpus = fastnplm.Corpus.prepare("-", min_count=2, threads=2)
phase = "train"
model = fastnplm.NPLM(corpus.vocabulary, context=1, dim=2, hidden=2)
fastnplm.train(model, corpus, epochs=1, batch_size=1 << 14, loss="ns", negatives=1,
               optimizer="sgd", quiet=True, threads=2)
stop.set()
watching.join()
print(json.dumps(peaks | {"tokens": len(corpus)}))
"""


@linux
@pytest.mark.long
@pytest.mark.corpus
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """The same text 1, 4 and 16 times through standard input: prepared, trained on for an epoch.

    It is some windows of the shuffle long (20 million tokens, 100 MB), so that the first run meets
    all there is to hold; below that less is held.
    """
    random = np.random.default_rng(0)
    ids = np.minimum(random.zipf(1.2, 4_500_000), 10**6).tolist()
    text = "".join(f"w{id}{chr(10) if place % 9 == 0 else ' '}" for place, id in enumerate(ids))
    data = text.encode() + b"\n"
    found = {}
    for times in (1, 4, 16):
        run = subprocess.Popen(
            [sys.executable, "-c", _RUN], env={**os.environ, "PYTHONPATH": ROOT},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        for _ in range(4 * times):
            run.stdin.write(data)
        out, _ = run.communicate()
        assert run.returncode == 0
        found[times] = json.loads(out)
        assert found[times]["tokens"] > 18_000_000 * times
    print(found)
    peaks = [max(found[times]["prepare"], found[times]["train"]) for times in (1, 4, 16)]
    assert max(peaks) <= 1.05 * peaks[0]


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """A corpus of 4,294,967,310 tokens: a sparse file of zeros, the last ten of them 1 to 10."""
    folder = tmp_path_factory.mktemp("far") / "corpus"
    sparse_corpus(folder, 2**32 + 14)
    with fastnplm.Corpus.open(folder) as corpus:
        yield corpus


@pytest.mark.parametrize("subject", subjects.SUBJECTS)
def test_fc_18_examples_beyond_2_to_the_32(far, subject):
    last = np.arange(2**32 + 4, 2**32 + 14)  # tokens 1 to 10; 2 is </s>, 1 stands before a sentence
    positions = np.array([0, 1, 2**31, 2**32 - 1, 2**32, *last[::-1]])
    contexts = np.full((len(positions), 3), -1, np.int32)
    targets = np.full(len(positions), -1, np.int32)
    with subject() as kernels:
        kernels.form_contexts(far.tokens, positions, 1, 2, contexts, targets)
    assert targets.tolist() == [0, 0, 0, 0, 0, *range(10, 0, -1)]
    assert contexts[:5].tolist() == [[1, 1, 1], [1, 1, 0], [0] * 3, [0] * 3, [0] * 3]
    assert contexts[5:].tolist() == [
        [7, 8, 9], [6, 7, 8], [5, 6, 7], [4, 5, 6], [3, 4, 5], [1, 3, 4], [1, 1, 3], [1, 1, 1],
        [0, 0, 1], [0, 0, 0],
    ]  # fmt: skip


def test_fc_18_training_on_examples_beyond_2_to_the_32(far):
    model = fastnplm.NPLM(far.vocabulary, context=2, dim=3, hidden=4)
    step = fastnplm.Step(model, "sgd", 5)
    positions = np.arange(2**32 + 4, 2**32 + 9)
    contexts, targets = np.empty((5, 2), np.int32), np.empty(5, np.int32)
    step.kernels.form_contexts(far.tokens, positions, 1, 2, contexts, targets)
    assert targets.tolist() == [1, 2, 3, 4, 5]
    loss = step(contexts, targets)
    assert 0 < loss < 100


def test_batches_reach_beyond_2_to_the_32(far):
    """The first batches of an epoch hold positions of the whole stream, near its end too."""
    epoch = Epoch(len(far), 1 << 16, seed=3, window=1 << 16, block=256)
    taken = np.concatenate([batch for _, batch in zip(range(4), epoch, strict=False)])
    assert taken.dtype == np.int64
    assert taken.min() >= 0
    assert taken.max() < len(far)
    beyond_31 = np.count_nonzero(taken >= 2**31) / len(taken)
    assert 0.45 < beyond_31 < 0.55  # 1,024 blocks: a standard error of 0.016
    assert len(np.unique(taken)) == len(taken)


@pytest.fixture(scope="module")
def tables():
    """Two float32 tables of more than 2^31 elements, whose pages exist once they are touched."""
    rows, width = 2**24 + 5, 129
    assert rows * width > 2**31
    made = []
    for _ in range(2):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = mmap.mmap(-1, rows * width * 4, flags=flags)
        made.append(np.frombuffer(memory, F).reshape(rows, width))
    return made


def far_rows(table):
    """Ids on both sides of element 2^31, the first and the last."""
    rows, width = table.shape
    edge = 2**31 // width
    return np.array([0, 1, edge - 1, edge, edge + 1, rows - 2, rows - 1], np.int32)


def sampled_step(kernels, side, hidden, targets, noise):
    """A step of negative sampling on the output layer of ``side``: losses and grad_hidden."""
    batch, negatives, block = len(hidden), noise.shape[1], len(hidden) // len(noise)
    losses, grad_hidden = np.empty(batch), np.empty_like(hidden)
    scratch = np.empty(
        kernels.negative_step_scratch(batch, block, negatives, hidden.shape[1]), np.uint8
    )
    kernels.negative_step(
        hidden, side["of"][targets].astype(np.int32), np.ones(batch, F),
        side["of"][noise].astype(np.int32), block, False, np.zeros(0, F), "sgd",
        np.array([0.1, 0, 0, 0, 0, 1.0]), scratch, losses, grad_hidden, side["weight"],
        side["bias"], side["weight"][None][:0], side["bias"][None][:0],
    )  # fmt: skip
    return np.concatenate([losses, grad_hidden.ravel()])


@linux
@pytest.mark.parametrize("subject", subjects.SUBJECTS)
def test_rows_beyond_2_to_the_31_elements_are_gathered_and_updated(tables, subject):
    table = tables[0]
    ids = far_rows(table)
    values = np.random.default_rng(0).normal(size=(len(ids), table.shape[1])).astype(F)
    table[ids] = values
    rows = np.empty_like(values)
    with subject() as kernels:
        kernels.gather_rows(ids, table, rows)
        np.testing.assert_array_equal(rows, values)
        hyper = np.array([0.5, 0, 0, 0, 0, 1.0])
        twice = np.concatenate([ids, ids[:1]])
        grads = np.ones((len(twice), table.shape[1]), F)
        kernels.scatter_update(twice, grads, "sgd", hyper, table, table[None][:0])
    expected = values - F(0.5)
    expected[0] -= F(0.5)  # it was named twice
    np.testing.assert_allclose(table[ids], expected, rtol=1e-6, atol=1e-6)
    assert not table[ids[3] + 7].any()


@linux
@pytest.mark.parametrize("shared", [1, 4])
def test_sampled_step_reaches_rows_beyond_2_to_the_31_elements(tables, shared):
    """The step on far rows is, number for number, the one on a small table of the same rows."""
    from fastnplm import kernels

    loaded = kernels.load("auto")
    table = tables[1]
    ids = far_rows(table)
    random = np.random.default_rng(1)
    values = random.normal(size=(len(ids), table.shape[1])).astype(F) * F(0.1)
    near = {"weight": values.copy(), "bias": np.zeros(len(ids), F), "of": np.arange(len(ids))}
    far = {"weight": table, "bias": np.zeros(len(table), F), "of": ids}
    table[ids] = values
    batch, negatives = 8, 3
    hidden = random.normal(size=(batch, table.shape[1])).astype(F)
    targets = random.integers(0, len(ids), batch)
    noise = random.integers(0, len(ids), (batch // shared, negatives))
    losses = [sampled_step(loaded, side, hidden, targets, noise) for side in (near, far)]
    np.testing.assert_array_equal(losses[0], losses[1])
    np.testing.assert_array_equal(near["weight"], table[ids])
    np.testing.assert_array_equal(near["bias"], far["bias"][ids])
    assert (near["weight"] != values).any()
