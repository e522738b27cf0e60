"""Real data and a real browser for tests, where there are some."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fairshot", deadline=None)  # a busy machine is no failure
settings.load_profile("fairshot")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),  # films a test picture
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Keep the pictures that tests decode away from those of the user."""
    monkeypatch.setenv("FAIRSHOT_CACHE", str(tmp_path_factory.getbasetemp() / "pictures"))


@pytest.fixture(scope="module")
def browser():
    """Start a real Chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        yield opened
        opened.close()


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


@pytest.fixture(scope="session")
def cifar100_folder(shared_data, tmp_path_factory) -> Path:
    """Rebuild the python version of CIFAR-100 once."""
    folder = tmp_path_factory.mktemp("cifar")
    script = shared_data / "unpack_cifar100.py"
    subprocess.run([sys.executable, script, folder], check=True, capture_output=True)
    return folder
