"""Cut short at every length, or with any bit turned over: no file is believed, none is fatal."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from readers import READERS, limited, outcome

KIB_64 = 64 << 10


@pytest.fixture
def folder():
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


def sample(numbers, count, seed):
    numbers = list(numbers)
    if len(numbers) <= count:
        return numbers
    return sorted(np.random.default_rng(seed).choice(numbers, count, replace=False).tolist())


@pytest.mark.parametrize("name", READERS)
def test_a_good_file_is_read(folder, name):
    reader = READERS[name]
    path = reader.build(folder)
    assert not outcome(reader, path)
    reader.mend(path)
    assert not outcome(reader, path)


def truncations(folder, name, count):
    reader = READERS[name]
    path = reader.build(folder)
    data = path.read_bytes()
    lengths = sample(range(min(len(data), KIB_64)), count, 1)
    with limited(2 * len(data) + (64 << 20)):
        for length in lengths:
            path.write_bytes(data[:length])
            refused = outcome(reader, path)
            assert refused or length >= len(data) - reader.slack, f"{length} of {len(data)} bytes"
    return len(lengths)


def flips(folder, name, count):
    reader = READERS[name]
    path = reader.build(folder)
    data = path.read_bytes()
    bits = sample(range(8 * len(data)), count, 2)
    with limited(2 * len(data) + (64 << 20)):
        for bit in bits:
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            refused = outcome(reader, path)
            assert refused or not reader.certain, f"bit {bit % 8} of byte {bit // 8}"
    return len(bits)


@pytest.mark.parametrize("name", READERS)
def test_some_truncations_are_reported(folder, name):
    assert truncations(folder, name, 60)


@pytest.mark.parametrize("name", READERS)
def test_some_flipped_bits_are_reported(folder, name):
    assert flips(folder, name, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_truncation_is_reported(folder, name, capsys):
    count = truncations(folder, name, KIB_64)
    with capsys.disabled():
        print(f"\n{name}: {count:,} truncations", end=" ")


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_flipped_bit_is_reported(folder, name, capsys, request):
    count = flips(folder, name, max(4000, request.config.getoption("executions")))
    with capsys.disabled():
        print(f"\n{name}: {count:,} bits", end=" ")
