"""Two running servers, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairshot.teaching.creation import StoreSpec, create_store
from support.servers import Served
from support.stores import base_classes, network


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    """Serve a store of drawings and one of photos, started side by side."""
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    started = {}
    for kind, channels in (("drawings", 1), ("photos", 3)):
        net = network(channels=channels, drawings=kind == "drawings")
        base = base_classes(["ant", "bee", "cow"], net)
        folder = tmp_path_factory.mktemp(kind) / "store"
        create_store(folder, StoreSpec(net, base, gamma=0.3)).close()
        started[kind] = Served.start(folder)
    try:
        yield {kind: served.wait() for kind, served in started.items()}
    finally:
        for served in started.values():
            served.stop()
