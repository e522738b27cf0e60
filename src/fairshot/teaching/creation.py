"""StoreSpec a store: on a trained run, or on a backbone with weights of its own."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairshot.errors import UserError
from fairshot.progress import SILENT, Reporter
from fairshot.teaching import calibration, confidence
from fairshot.teaching.calibration import CalibrationSettings
from fairshot.teaching.confidence import Confidence
from fairshot.teaching.database import connect, to_blob, transaction
from fairshot.teaching.derived import Shapes, derive
from fairshot.teaching.event_log import EventLog
from fairshot.teaching.names import checked_name
from fairshot.teaching.network import FILE_NAME, Network, Photo
from fairshot.teaching.store import DATABASE, Store


@dataclass(frozen=True)
class BaseClasses:
    """Classes that the embedder was trained on, as training left them."""

    names: Sequence[str]
    g: Tensor  # prototypes (B, V, d)
    g_tilde: Tensor  # (B, V, d~)
    counts: Sequence[int]  # images behind each prototype
    samples: dict[int, list[Photo]] = field(default_factory=dict)  # by position: some of those images


@dataclass(frozen=True)
class StoreSpec:
    """All a new store begins with."""

    network: Network
    base: BaseClasses | None = None
    gamma: float = 0.0  # strength of Resistance; 0: none
    calibration: CalibrationSettings = field(default_factory=CalibrationSettings)  # of `adapt`
    confidence: Confidence = field(default_factory=Confidence)
    lessons: dict[str, list[Photo]] = field(default_factory=dict)  # classes it is taught at once, in order
    left_out: tuple[str, ...] = ()  # classes that were learnt after the base session, and are not taught
    origin: dict[str, Any] = field(default_factory=dict)  # for the history


def check_free(folder: Path) -> None:
    """Refuse a folder that holds something; to be asked before the long work of founding a store."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already; give the name of a new folder")


def create_store(folder: str | Path, founding: StoreSpec, reporter: Reporter = SILENT) -> Store:
    """Make a store; it appears whole or not at all."""
    folder = Path(folder)
    check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        founding.network.write(temporary / FILE_NAME)
        connection = connect(temporary / DATABASE, create=True)
        with transaction(connection):
            _fill(connection, founding, reporter)
        connection.close()
        with Store(temporary) as store:
            for name, photos in founding.lessons.items():
                store.teach_embedded(name, photos)
        temporary.chmod(0o755)
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Store(folder)


def _fill(connection: sqlite3.Connection, founding: StoreSpec, reporter: Reporter) -> None:
    settings = {
        "gamma": repr(founding.gamma),
        calibration.SETTING: founding.calibration.model_dump_json(),
        confidence.SETTING: founding.confidence.model_dump_json(),
    }
    connection.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
    ledger = EventLog(connection, "new", founding.origin)
    if founding.base is None:
        return
    shapes = Shapes(founding.network.shape, founding.network.shape_tilde)
    zeros = to_blob(torch.zeros(shapes.specific, dtype=torch.int64))
    classes = []
    with reporter.track("filling in base classes", len(founding.base.names)) as advance:
        for position, name in enumerate(founding.base.names):
            class_id = ledger.new_class(checked_name(name))
            g, g_tilde = founding.base.g[position], founding.base.g_tilde[position]
            blobs = (to_blob(g), None if shapes.g_tilde is None else to_blob(g_tilde))
            cursor = connection.execute(
                "INSERT INTO base (class, count, g, g_tilde) VALUES (?, ?, ?, ?)",
                (class_id, int(founding.base.counts[position]), *blobs),
            )
            connection.execute("INSERT INTO delta VALUES (?, ?)", (cursor.lastrowid, zeros))
            for sample in founding.base.samples.get(position, ()):
                _add_sample(connection, sample, class_id, cursor.lastrowid, shapes)
            classes.append(class_id)
            advance()
    derive(connection, classes, shapes)


def _add_sample(
    connection: sqlite3.Connection, sample: Photo, class_id: int, base_id: int | None, shapes: Shapes
) -> None:
    """Keep an image of a base class, to see what later lessons take from it and to show it."""
    g_tilde = None if shapes.g_tilde is None else to_blob(sample.g_tilde)
    connection.execute(
        "INSERT OR IGNORE INTO images (sha256, class, sample_of, g, g_tilde, thumbnail) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (sample.sha256, class_id, base_id, to_blob(sample.g), g_tilde, sample.thumbnail),
    )
