from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairshot.teaching import Store
from fairshot.watching import backoff, receivers
from fairshot.watching.journal import Journal
from support.stores import drawings, make_store


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with make_store(tmp_path_factory.mktemp("watched") / "shop") as store:
        for word in ("yak", "emu"):
            store.teach(word, drawings(word, 3))
        yield store


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "state" / "journal.sqlite") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "SHORTEST", 0.05)
    monkeypatch.setattr(backoff, "LONGEST", 0.2)
    monkeypatch.setattr(receivers, "ENDING_SECONDS", 1.0)
