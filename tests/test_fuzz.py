"""Readers meet what no writer wrote; what once broke one is tried again."""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import pickle
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from fuzz import KEPT, fuzz, mutate, tried
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readers import READERS

import fastnplm

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=READERS)
def reader(request):
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        path = READERS[request.param].build(Path(made))
        yield request.param, path, path.read_bytes()


calm = settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@calm
@given(data=st.binary(max_size=200) | st.text(max_size=100).map(str.encode), mend=st.booleans())
def test_arbitrary_bytes(reader, data, mend):
    name, path, _ = reader
    tried(name, path, data, mend)


@calm
@given(seed=st.integers(0, 2**32), mend=st.booleans())
def test_mutations_of_a_good_file(reader, seed, mend):
    name, path, good = reader
    path.write_bytes(good)
    READERS[name].mend(path)
    tried(name, path, mutate(good, random.Random(seed)), mend)


@calm
@given(
    lines=st.lists(
        st.lists(
            st.sampled_from(
                ["a", "b", "0", "1", "-1.5", "1e40", "nan", "<s>", "</s>", "<unk>", "\\data\\",
                 "\\end\\", "\\1-grams:", "\\2-grams:", "ngram", "1=3", "2=1", "2", "3", "\t", ""]
            )
        ).map(" ".join)
    )
)  # fmt: skip
def test_lines_of_the_words_of_text_formats(reader, lines):
    name, path, _ = reader
    tried(name, path, "\n".join(lines).encode(), False)


@pytest.mark.parametrize("name", READERS)
def test_what_once_broke_a_reader(name, tmp_path):
    path = READERS[name].build(tmp_path)
    for kept in sorted(KEPT.joinpath(name).glob("*")):
        for mend in (False, True):
            tried(name, path, kept.read_bytes(), mend)


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return open, (self.canary, "w")


@pytest.mark.parametrize("name", READERS)
def test_fc_53_nothing_in_a_file_is_run(name, tmp_path):
    canary = tmp_path / "CANARY"
    stream = pickle.dumps(Evil(str(canary)))
    archive, array = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as held:
        held.writestr("archive/data.pkl", stream)
    np.save(array, np.array([Evil(str(canary))], dtype=object), allow_pickle=True)
    path = READERS[name].build(tmp_path)
    for data in (stream, archive.getvalue(), array.getvalue()):
        for mend in (False, True):
            assert tried(name, path, data, mend)
    assert not canary.exists()


def test_fc_53_no_module_can_unpickle_or_evaluate():
    named = {"pickle", "marshal", "shelve", "eval", "exec", "compile", "__import__"}
    for path in sorted(Path(fastnplm.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = set()
            if isinstance(node, ast.Import):
                found = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found = {node.module}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found = {node.func.id}
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                found = {"pickle"}
            assert not found & named, f"{path}: {found & named}"


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_mutations(name, tmp_path, request, capsys):
    counts = fuzz(name, request.config.getoption("executions"), 1, tmp_path)
    with capsys.disabled():
        print(f"\n{name}: {counts}", end=" ")
    assert counts["refused"] > counts["executions"] // 2


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not installed (pip install)"
)
@pytest.mark.parametrize("name", ["vocabulary", "vectors-text", "vectors-binary", "arpa"])
def test_guided_by_coverage(name):
    ran = subprocess.run(
        [sys.executable, str(HERE / "fuzz.py"), name, "--atheris", "-runs=5000", "-max_len=400"],
        env={"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
