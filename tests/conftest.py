"""Real data for tests, where there is some."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Find the folder of real data: `FAIRSHOT_TEST_DATA`, or `shared/data` beside the checkout."""
    candidates = [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    if "FAIRSHOT_TEST_DATA" in os.environ:
        candidates.insert(0, Path(os.environ["FAIRSHOT_TEST_DATA"]))
    for folder in candidates:
        if folder.is_dir():
            return folder
    pytest.skip("no real data: set FAIRSHOT_TEST_DATA, or put it in shared/data beside the checkout")
