"""Named arrays in safetensors files, written and read without a second copy of them in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import numpy as np

from .errors import ModelError

_KINDS = {"float32": "F32", "float64": "F64", "int64": "I64"}
_ROWS = 1 << 14  # rows read or written at a time


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, np.ndarray]) -> None:
    """Write named arrays as safetensors, little-endian, without a second copy of them in memory."""
    header: dict[str, object] = {}
    end = 0
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    for name, value in ordered:
        begin, end = end, end + value.nbytes
        header[name] = {
            "dtype": _KINDS[value.dtype.name], "shape": value.shape, "data_offsets": [begin, end]
        }  # fmt: skip
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for _, value in ordered:
            for part in _parts(value):
                block = value[part]
                block = np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<"))
                file.write(block.reshape(-1).view(np.uint8).data)


def read_tensors(path: str | os.PathLike[str], targets: dict[str, np.ndarray]) -> None:
    """Fill the arrays ``targets`` (by name) from a safetensors file of their shapes and dtypes.

    All of the file's header is checked before anything is filled.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as opened:
            found = set(opened.keys())
            if found != set(targets):
                odd = ", ".join(sorted(found ^ set(targets)))
                raise ModelError(f"{path} does not hold the expected arrays: {odd}")
            slices = {name: opened.get_slice(name) for name in targets}
            for name, target in targets.items():
                have = tuple(slices[name].get_shape())
                if have != target.shape:
                    raise ModelError(f"{path}: {name} has shape {have}; expected {target.shape}")
                kind = slices[name].get_dtype()
                if kind != _KINDS[target.dtype.name]:
                    raise ModelError(f"{path}: {name} has dtype {kind}; expected {target.dtype}")
            for name, target in targets.items():
                for part in _parts(target):
                    target[part] = slices[name][part]
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is not a whole safetensors file: {error}") from None


def _parts(value: np.ndarray) -> Iterator[tuple[slice, ...]]:
    """Indices that cut an array along its rows, so that a copy of a part is a small one."""
    if value.size == 0:
        return
    axis = max(value.ndim - 2, 0)
    rows = value.shape[axis]
    for first in np.ndindex(value.shape[:axis]):
        for low in range(0, rows, _ROWS):
            yield (*(slice(i, i + 1) for i in first), slice(low, min(low + _ROWS, rows)))
