"""Feed readers with what no writer wrote: a result or an Error, never anything else.

    python fuzz.py READER EXECUTIONS [SEED]     mutations of a good file
    python fuzz.py READER --atheris [...]       guided by coverage (pip install atheris)

What fails is kept under tests/corpus/READER and tried again by test_fuzz.py. Prints the counts.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import random
import re
import sys
import tempfile
from pathlib import Path

from readers import READERS, limited, outcome

KEPT = Path(__file__).parent / "corpus"
NUMBERS = [
    b"0", b"-1", b"1", b"255", b"65536", b"2147483647", b"2147483648", b"4294967296",
    b"4611686018427387904", b"9223372036854775808", b"1" + b"0" * 40, b"1e999", b"-1e999", b"nan",
    b"-inf", b"1e-999", b"0x10", b"1_0", b"9" * 5000, b"", b"1.5", "٣".encode(),
]  # fmt: skip
VALUES = [
    None, True, False, 0, -1, 1, 2**31, 2**62, 2**64, 10**400, 0.5, float("nan"), float("inf"), "",
    "x", "\ud800", "a\0b", "../x", "/etc/passwd", "x" * 5000, [], {}, [[]], [None], {"": {}},
    [1, 2], ["F32"], {"x": 1}, "float64", "reference", [-1, 5], [0, 2**63], 1e308,
]  # fmt: skip
BLOCK = 1000
BYTES = [b"\0", b"\n", b"\t", b" ", b"\r", b"\xff", b"\xef\xbb\xbf", b"\\", b'"', b"{", b"[", b"_"]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """One to four changes of ``data``."""
    for _ in range(chance.randint(1, 4)):
        data = chance.choice(CHANGES)(data, chance)
    return data[: 1 << 16]


def _flip(data, chance):
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _set(data, chance):
    at = chance.randint(0, len(data))
    return data[:at] + chance.choice(BYTES) + data[at + chance.randint(0, 1) :]


def _cut(data, chance):
    low, high = sorted(chance.randint(0, len(data)) for _ in range(2))
    return data[:low] + data[high:] if chance.random() < 0.8 else data[:low]


def _double(data, chance):
    low = chance.randint(0, len(data))
    part = data[low : low + chance.choice([1, 8, 64, 1000])]
    at = chance.randint(0, len(data))
    return data[:at] + part * chance.choice([1, 2, 50]) + data[at:]


def _number(data, chance):
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if not found:
        return data
    at = chance.choice(found)
    return data[: at.start()] + chance.choice(NUMBERS) + data[at.end() :]


def _word(data, chance):
    """Little-endian numbers as they stand in binary headers."""
    at = chance.randint(0, max(len(data) - 8, 0)) if chance.random() < 0.7 else 0
    value = chance.choice([0, 1, 7, 2**16, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1])
    return data[:at] + value.to_bytes(8, "little") + data[at + 8 :]


def _lines(data, chance):
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    lines.insert(chance.randint(0, len(lines)), chance.choice(lines))
    if chance.random() < 0.5:
        lines.pop(chance.randrange(len(lines)))
    return b"".join(lines)


def _json(data, chance):
    """Another value somewhere in a JSON file, or in the JSON header of a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    head, body = (data[8 : 8 + size], data[8 + size :]) if size <= len(data) else (data, None)
    try:
        value = json.loads(head)
    except (ValueError, RecursionError):
        return data
    if not isinstance(value, dict | list):
        return data
    place = value
    while place:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = chance.choice(list(keys))
        if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.7:
            place = place[key]
            continue
        if chance.random() < 0.15:
            del place[key]
        else:
            place[key] = chance.choice(VALUES)
        break
    try:
        text = json.dumps(value, indent=chance.choice([None, 1])).encode()
    except ValueError:
        return data
    return text if body is None else len(text).to_bytes(8, "little") + text + body


CHANGES = [_flip, _set, _cut, _double, _number, _word, _lines, _json, _json]


def tried(name: str, path: Path, data: bytes, mend: bool, limit: bool = True) -> bool:
    """Whether ``data`` was refused; keeps it, if it was not met with a result or an Error.

    limit : hold the reader to its memory; else the caller does
    """
    path.write_bytes(data)
    if mend:
        READERS[name].mend(path)
    try:
        with limited(2 * len(data) + (64 << 20)) if limit else contextlib.nullcontext():
            return outcome(READERS[name], path)
    except BaseException:
        KEPT.joinpath(name).mkdir(parents=True, exist_ok=True)
        kept = KEPT / name / hashlib.sha256(data).hexdigest()[:16]
        kept.write_bytes(data)
        print(f"kept as {kept}", file=sys.stderr)
        raise


def fuzz(
    name: str, executions: int, seed: int, folder: Path, watched: bool = False
) -> dict[str, int]:
    """So many mutations of a good file; every second time the checksums around it are mended.

    watched : the process ends, and says where, when a thousand take an hour
    """
    chance = random.Random(seed)
    path = READERS[name].build(folder)
    good = path.read_bytes()
    refused = 0
    for first in range(0, executions, BLOCK):
        path.write_bytes(good)  # what a reader may have left or a mutation broken
        READERS[name].mend(path)
        if watched:
            faulthandler.dump_traceback_later(3600, exit=True)
        with limited(64 << 20):  # of all of the block together; to ask each time takes its time
            for number in range(first, min(first + BLOCK, executions)):
                data = mutate(good, chance)
                refused += tried(name, path, data, number % 2 == 0, limit=False)
    return {"executions": executions, "refused": refused}


def guided(name: str, folder: Path) -> None:
    import atheris

    atheris.instrument_all()
    path = READERS[name].build(folder)

    def one(data: bytes) -> None:
        tried(name, path, data, True)

    seeds = folder / "seeds"  # what is found is put there too
    seeds.mkdir()
    (seeds / "good").write_bytes(path.read_bytes())
    atheris.Setup([sys.argv[0], *sys.argv[3:], str(seeds)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as made:
        if sys.argv[2] == "--atheris":
            guided(sys.argv[1], Path(made))
        else:
            seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
            counts = fuzz(sys.argv[1], int(sys.argv[2]), seed, Path(made), watched=True)
            print(json.dumps({"reader": sys.argv[1]} | counts))
