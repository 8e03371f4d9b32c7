"""Whatever operation of a save fails, or is the last of a killed process, a whole version loads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from faults import HOW, SCENARIOS

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("faults are put under the process by LD_PRELOAD: needs Linux and a C compiler")
    made = tmp_path_factory.mktemp("faults") / "faults.so"
    options = ["-shared", "-fPIC", "-O1", "-w", "-o", str(made)]
    subprocess.run([compiler, *options, str(HERE / "faults.c"), "-ldl"], check=True)
    return made


QUICK = [("model", "kill"), ("checkpoint", "kill"), ("checkpoint", "full")]


@pytest.mark.parametrize(
    ("scenario", "how"),
    [
        pytest.param(name, how, marks=[] if (name, how) in QUICK else pytest.mark.slow)
        for name in SCENARIOS
        for how in HOW
    ],
)
def test_the_old_or_the_new_version_is_there(library, scenario, how, capsys):
    memory = Path("/dev/shm")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        ran = subprocess.run(
            [sys.executable, str(HERE / "faults.py"), scenario, how, folder],
            env=environment,
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    counts = json.loads(ran.stdout)
    with capsys.disabled():
        if "-s" in sys.argv:
            print(f"\n{scenario}, {how}: {counts}")
    assert counts["operations"] >= 5
    assert counts["old"]
    assert counts["new"] or how != "kill"
