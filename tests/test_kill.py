"""Processes that are killed while they train or save lose nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("types", [8000, 200], ids=["checkpoints of 12 MB", "short runs"])
def test_fc_48_kills_lose_nothing(request, capsys, types):
    """``--kills`` beyond 200 kills short runs: five thousand take ten minutes."""
    kills = request.config.getoption("kills")
    if types > 1000:
        kills = min(kills, 60)
    memory = Path("/dev/shm")  # a kill does not lose what the system holds: no disk is needed
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        ran = subprocess.run(
            [sys.executable, str(HERE / "kills.py"), str(kills), folder, str(types)],
            env={"PYTHONPATH": f"{HERE}:{HERE.parent}", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    counts = json.loads(ran.stdout)
    with capsys.disabled():
        print(f"\n{counts}", end=" ")
    assert counts["kills"] == kills
    assert counts["in a save"] * 2 >= kills
    assert counts["finished"] >= 1
