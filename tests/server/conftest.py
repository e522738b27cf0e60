"""A real browser and real servers, for the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fairshot.teaching import Store
from support.browsing import BASE, PageServer
from support.stores import network, store_spec

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",  # a camera that films a test picture
    "--use-fake-ui-for-media-stream",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start a real Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, PageServer]]:
    """Serve a store of drawings and one of photos."""
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    from support.servers import serving

    with ExitStack() as stack:
        started = {}
        for kind, channels in (("drawings", 1), ("photos", 3)):
            net = network(channels=channels, drawings=kind == "drawings")
            folder = tmp_path_factory.mktemp(kind) / "store"
            store = stack.enter_context(Store.create(folder, store_spec(net, BASE)))
            port = stack.enter_context(serving(store))
            started[kind] = PageServer(folder, f"http://127.0.0.1:{port}")
        yield started
