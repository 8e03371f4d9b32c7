"""Cut short at every length, or with any bit turned over: no file is believed, none is fatal.

    pytest tests/test_damage.py -m "slow or not slow" --kib 64 --executions 8000

damages files of 64 KiB instead of some hundred bytes: all truncations, all bits of the headers and
so many others of each kind of file.
"""

from __future__ import annotations

import collections
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from readers import READERS, limited, outcome

DONE: collections.Counter[str] = collections.Counter()


@pytest.fixture
def folder():
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


@pytest.fixture
def kib(request):
    return request.config.getoption("kib")


def sample(numbers, count, seed):
    numbers = list(numbers)
    if len(numbers) <= count:
        return numbers
    return sorted(np.random.default_rng(seed).choice(numbers, count, replace=False).tolist())


def specimen(folder, name, kib):
    """A good file: a small one, or, where its format can grow, one of nearly so many KiB."""
    reader = READERS[name]

    def built(more):
        place = folder / str(more)
        place.mkdir()
        path = reader.build(place, more)
        return path, path.stat().st_size

    path, size = built(0)
    if not kib or not reader.grows:
        return path
    last, before, more = 0, size, 5
    for _ in range(8):
        path, size = built(more)
        if 900 * kib <= size <= 1024 * kib:
            return path
        each = (size - before) / (more - last)
        last, before, more = more, size, more + int((970 * kib - size) / each)
    raise AssertionError(f"{name}: no file of {kib} KiB, the last has {before:,} bytes")


@pytest.mark.parametrize("name", READERS)
def test_a_good_file_is_read(folder, name):
    reader = READERS[name]
    path = reader.build(folder)
    assert not outcome(reader, path)
    reader.mend(path)
    assert not outcome(reader, path)


def truncations(folder, name, count, kib=0):
    reader = READERS[name]
    path = specimen(folder, name, kib)
    size = path.stat().st_size
    lengths = sample(range(size), count, 1)
    with open(path, "r+b", buffering=0) as file, limited(2 * size + (64 << 20)):
        for length in reversed(lengths):
            file.truncate(length)
            refused = outcome(reader, path)
            assert refused or length >= size - reader.slack, f"{length} of {size} bytes"
    return len(lengths)


def flips(folder, name, count, kib=0):
    """How many bits were flipped: all of the header (``count`` at most, if negative), others."""
    reader = READERS[name]
    path = specimen(folder, name, kib)
    data = path.read_bytes()
    head = 8 * reader.header(data)
    header = sample(range(head), abs(count) if count < 0 else head, 2)
    others = sample(range(head, 8 * len(data)), abs(count), 2)
    with open(path, "r+b", buffering=0) as file, limited(2 * len(data) + (64 << 20)):
        for bit in header + others:
            at = bit // 8
            os.pwrite(file.fileno(), bytes([data[at] ^ 1 << bit % 8]), at)
            refused = outcome(reader, path)
            assert refused or not reader.certain, f"bit {bit % 8} of byte {at}"
            os.pwrite(file.fileno(), data[at : at + 1], at)
    assert path.read_bytes() == data
    return len(header), len(others)


@pytest.mark.parametrize("name", READERS)
def test_some_truncations_are_reported(folder, name):
    assert truncations(folder, name, 60)


@pytest.mark.parametrize("name", READERS)
def test_some_flipped_bits_are_reported(folder, name):
    assert flips(folder, name, -30)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_truncation_is_reported(folder, name, kib, capsys):
    count = truncations(folder, name, 64 << 10, kib)
    DONE["truncations"] += count
    with capsys.disabled():
        print(f"\n{name}: {count:,} truncations ({DONE['truncations']:,} so far)", end=" ")


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_flipped_bit_is_reported(folder, name, kib, capsys, request):
    header, others = flips(folder, name, request.config.getoption("executions"), kib)
    DONE["header"] += header
    DONE["others"] += others
    with capsys.disabled():
        print(
            f"\n{name}: {header:,} bits of the header, {others:,} others"
            f" ({DONE['header']:,} and {DONE['others']:,} so far)",
            end=" ",
        )
