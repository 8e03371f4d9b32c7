"""Which kernel module is loaded, and what loading leaves behind: nothing."""

import os
import subprocess
import sys

import pytest
from subjects import HAS_NATIVE

from fastnplm import kernels
from fastnplm.errors import SettingsError

CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def test_an_unknown_name_is_refused():
    with pytest.raises(SettingsError, match="kernels is 'blas'; expected one of auto, native"):
        kernels.load("blas")


def test_waiting_threads_give_way_soon(monkeypatch):
    for name in CHOSEN:
        monkeypatch.delenv(name, raising=False)
    with kernels._patience():
        assert os.environ["GOMP_SPINCOUNT"] == "5000"
        assert os.environ["KMP_BLOCKTIME"] == "1"
    assert not set(CHOSEN) & set(os.environ)


@pytest.mark.parametrize("name", CHOSEN)
def test_what_the_user_chose_stands(monkeypatch, name):
    for other in CHOSEN:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "7")
    before = dict(os.environ)
    with kernels._patience():
        assert dict(os.environ) == before
    assert dict(os.environ) == before


@pytest.mark.skipif(not HAS_NATIVE, reason="the native kernels are not built")
def test_loading_leaves_the_environment_as_it_was():
    program = (
        "import os; before = dict(os.environ); from fastnplm import kernels;"
        " kernels.load('native'); assert dict(os.environ) == before"
    )
    environment = {k: v for k, v in os.environ.items() if k not in CHOSEN}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
