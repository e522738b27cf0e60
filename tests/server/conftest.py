"""Real servers, for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fairshot.teaching import Store
from support.browsing import BASE, PageServer
from support.stores import network, store_spec


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
