"""The machine and the versions a result was measured with: part of every JSON."""

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path

PACKAGES = ("numpy", "numba", "torch", "gensim", "cython", "pytest-benchmark")


def describe():
    """A dict of plain values: processor, instruction sets, caches, memory, BLAS, versions."""
    import numpy as np

    from fastnplm import kernels, threads, version

    found = {
        "processor": _processor(),
        "instruction_sets": _flags(),
        "cores": os.cpu_count(),
        "threads_default": threads.default_threads(),
        "caches": _caches(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "huge_pages": _first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "blas": _blas(np),
        "fastnplm": version.__version__,
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "versions": {name: _version(name) for name in PACKAGES},
    }
    for name in ("native", "numba"):
        try:
            found[name] = kernels.load(name).describe()
        except Exception as error:
            found[name] = f"unavailable: {error}"
    return found


def peaks():
    """What one thread can do at most, measured: operations and bytes a second."""
    from . import probe
    from .contenders import UnavailableError

    try:
        return {
            "float32_flops": probe.multiply_add_peak(),
            "bf16_flops": probe.multiply_add_peak("bf16"),
            "copy_memory": probe.bandwidth(256),
            "modify_memory": probe.bandwidth(256, "modify"),
            "copy_cache": probe.bandwidth(0.25),
            "modify_cache": probe.bandwidth(0.5, "modify"),
        }
    except UnavailableError as reason:
        return {"unavailable": str(reason)}


def _processor():
    """The processor's name with family and model: virtual machines call Zen 4 and 5 the same."""
    found = {}
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    if "model name" not in found:
        return platform.processor() or platform.machine()
    numbers = [f"{key} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{found['model name']} ({', '.join(numbers)})" if numbers else found["model name"]


def _flags():
    wanted = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd")
    for line in _lines("/proc/cpuinfo"):
        if line.startswith(("flags", "Features")):
            return [flag for flag in wanted if flag in line.split()]
    return []


def _caches():
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_first_line(folder / name) for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = size
    return found


def _blas(np):
    try:
        return np.show_config(mode="dicts")["Build Dependencies"]["blas"].get("name")
    except (TypeError, KeyError):
        return None


def _commit():
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None
    except OSError:
        return None


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(path):
    lines = _lines(path)
    return lines[0].strip() if lines else None


def _lines(path):
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
