import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of corpora beside the checkout, or where FASTNPLM_DATA says."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FASTNPLM_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}; set FASTNPLM_DATA")
    return folder
