import os
from pathlib import Path

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("fastnplm", "how long the tests of robustness run")
    group.addoption("--stops", type=int, default=2, help="random stops of each resumed run")
    group.addoption("--kills", type=int, default=200, help="processes killed while they train")
    group.addoption("--executions", type=int, default=2000, help="of each fuzzed reader and kernel")
    group.addoption("--kib", type=int, default=0, help="size of files that are damaged; 0: small")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of corpora beside the checkout, or where FASTNPLM_DATA says."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FASTNPLM_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}; set FASTNPLM_DATA")
    return folder
