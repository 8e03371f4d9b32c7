"""Field cases of installing: compilers that lack something, NumPy old and new; the whole list."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent
CASES = ROOT.parent / "shared" / "field_cases.json"
# What no test can do here, with the reason; the rest of the case's family stands in the test named.
ELSEWHERE: dict[str, str] = {}

SMOKE = """
    import json, warnings
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        import fastnplm
        from fastnplm import kernels
        module = kernels.load("auto")
        with fastnplm.Corpus.prepare(["a b c d"] * 50, min_count=1) as corpus:
            model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=5, hidden=7)
            for loss in ("softmax", "ns"):
                fastnplm.train(model, corpus, loss=loss, epochs=2, batch_size=16, quiet=True)
        best = model.predict("a b", k=1)[0][0]
    import numpy
    print(json.dumps({"kernels": module.describe(), "best": best, "numpy": numpy.__version__,
                      "warnings": [str(w.message) for w in told if "fastnplm" in str(w.message)]}))
"""
WITHOUT_NUMBA = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "numba" else find(name, *more)
"""


def smoke(checkout, *before, code=SMOKE):
    """What a small training in a fresh Python says; ``before`` comes first on its path."""
    path = os.pathsep.join(map(str, [*before, checkout]))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, cwd=ROOT.anchor,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture
def checkout(tmp_path):
    """A copy of the sources without anything that was built."""
    place = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "native.c", "text.c")
    for name in ("fastnplm", "csrc"):
        shutil.copytree(ROOT / name, place / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, place / name)
    return place


def built(checkout, compiler):
    """Build in place with this compiler; what was said."""
    environment = {k: v for k, v in os.environ.items() if k != "FASTNPLM_REQUIRE_NATIVE"}
    environment |= {"CC": str(compiler), "LDSHARED": f"{compiler} -shared"}
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"], cwd=checkout, env=environment,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("cc") is None or importlib.util.find_spec("Cython") is None,
    reason="there is no compiler, or no Cython",
)
def test_fc_56_a_compiler_without_openmp(checkout, tmp_path):
    """It knows the baseline alone and does not optimise: what is compiled is not the question."""
    compiler = tmp_path / "cc"
    compiler.write_text(
        '#!/bin/sh\ncase " $* " in *" -fopenmp "*|*x86-64-v[34]*|*haswell*) exit 1;; esac\n'
        f'exec {shutil.which("cc")} "$@" -O0\n'
    )
    compiler.chmod(0o755)
    said = built(checkout, compiler)
    assert "the compiler has no OpenMP; the kernels will run on one thread" in said
    found = smoke(checkout)
    assert found["kernels"]["kernels"] == "native"
    assert found["kernels"]["threading"] == "one thread (built without OpenMP)"
    assert found["best"] == "c"
    assert found["warnings"] == []


@pytest.mark.slow
def test_fc_56_no_compiler_at_all(checkout):
    said = built(checkout, checkout / "no-such-compiler")
    assert said.count("was NOT built") == 2, said
    assert "fastnplm works without it, but slower" in said
    found = smoke(checkout)
    assert found["kernels"]["kernels"].split()[0] in ("numba", "reference")
    assert found["best"] == "c"
    found = smoke(checkout, code=WITHOUT_NUMBA + textwrap.dedent(SMOKE))
    assert found["kernels"]["kernels"] == "reference"
    assert len(found["warnings"]) == 1, found["warnings"]
    assert "several times slower" in found["warnings"][0]


def test_fc_57_one_build_with_the_oldest_and_the_newest_numpy():
    """FASTNPLM_OLDEST names a folder with the oldest NumPy (pip install --target); see .ci/run."""
    newest = smoke(ROOT)
    oldest = os.environ.get("FASTNPLM_OLDEST")
    if oldest is None:
        pytest.skip("no folder with the oldest NumPy; set FASTNPLM_OLDEST")
    found = smoke(ROOT, oldest)
    wanted = re.search(r"numpy>=([0-9.]+)", (ROOT / "pyproject.toml").read_text())[1]
    assert found["numpy"].startswith(wanted)
    assert found["numpy"] != newest["numpy"]
    assert found["best"] == newest["best"] == "c"
    assert found["kernels"] == newest["kernels"]


def names_of_tests():
    """Names and docstrings of all test functions."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("test_*.py")))
    named = re.findall(r"def test_fc_?(\d\d)", text)
    told = re.findall(r'"""[^"]*"""', text)
    return {f"FC-{number}" for number in [*named, *re.findall(r"FC-(\d\d)", " ".join(told))]}


def test_every_field_case_has_a_test():
    """FC-01 to FC-61: each is in the name or the docstring of a test."""
    wanted = {f"FC-{number:02}" for number in range(1, 62)}
    if CASES.is_file():
        cases = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
        assert wanted == {case["id"] for case in cases}
    assert wanted - names_of_tests() == set(ELSEWHERE)
