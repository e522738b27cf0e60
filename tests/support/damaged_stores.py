"""A store and an estimator whose files can be damaged, and all that can be asked of them."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from fairshot.estimators import SSS
from fairshot.teaching import Store
from fairshot.teaching.database import DATABASE, TABLES
from support.stores import drawings, make_store

Case = tuple[Path, Callable[[], Any]]  # a file, and what reads it


def store_cases(folder: Path) -> list[Case]:
    """Make a store to which much was done; return its files."""
    with make_store(folder, whitening=True, gate="left_out", gate_strength=0.6) as store:
        store.teach("yak", drawings("yak", 3))
        store.teach("emu", drawings("emu", 2))
        store.teach("ant", drawings("more ants", 2))
        store.rename("emu", "ostrich")
        store.adapt(drawings("yak", 5)[3:])
        store.merge("cow", "bee")
        store.undo()
    queries = drawings("query", 2) + drawings("yak", 1)

    def ask() -> Any:
        with Store(folder) as store:
            names = [info.name for info in store.classes()]
            answers = store.predict(queries), store.classes(), store.history(), store.snapshot().confidence
            small = [store.thumbnails(name, 10) for name in names]
            digest = store.digest()
        with closing(sqlite3.connect(folder / DATABASE)) as connection:
            rows = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES]
        return answers, small, digest, rows

    return [(path, ask) for path in sorted(folder.iterdir())]


def killed_store_cases(folder: Path) -> list[Case]:
    """Make a store as a killed process leaves it, its last changes in the write-ahead log; return the log."""
    with make_store(folder.with_name(f"open {folder.name}")) as store:
        for name in ("yak", "emu", "gnu"):
            store.teach(name, drawings(name, 3))
        shutil.copytree(store.folder, folder)

    def ask() -> Any:
        with tempfile.TemporaryDirectory() as temporary:  # whoever opens the store completes the changes
            copy = shutil.copytree(folder, Path(temporary) / "store")
            with Store(copy) as store:
                return store.digest(), store.history()

    return [(folder / f"{DATABASE}-wal", ask)]


def estimator_cases(folder: Path) -> list[Case]:
    """Save an estimator that was hardly trained; return its files."""
    estimator = SSS(epochs=1, size=16, batch=4, method={"sr_width": 8}, training={"warmup_epochs": 0})
    images = np.stack(drawings("ant", 4) + drawings("bee", 4))
    estimator.fit(images, ["ant"] * 4 + ["bee"] * 4).partial_fit(np.stack(drawings("yak", 2)), ["yak"] * 2)
    estimator.save(folder)

    def ask() -> Any:
        loaded = SSS.load(folder, device="cpu")
        return loaded.classes_.tolist(), loaded.predict_proba(images).tolist(), loaded.get_params()

    return [(path, ask) for path in sorted(folder.iterdir())]
