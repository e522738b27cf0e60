"""What a store is made from, and how its folder is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairshot.classifiers.dual import DualClassifier
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.base_classifier import write_classifier
from fairshot.teaching.base_counts import CLASSIFIER
from fairshot.teaching.confidence import Confidence
from fairshot.teaching.database import DATABASE, create, transaction
from fairshot.teaching.derived import Layout, derive_all
from fairshot.teaching.event_log import EventLog
from fairshot.teaching.names import checked_name
from fairshot.teaching.network import EMBEDDER, Network, Photo
from fairshot.teaching.queries import insert_image


@dataclass(frozen=True)
class StoreSpec:
    """What a store is made from."""

    network: Network
    classifier: DualClassifier  # of the base session; without classes if there are no base classes
    names: Sequence[str] = ()  # of the base classes
    samples: Mapping[int, Sequence[Photo]] = field(default_factory=dict)  # training images, by base class
    confidence: Confidence = field(default_factory=Confidence)
    taught: Mapping[str, Sequence[Photo]] = field(default_factory=dict)  # classes taught at once, in order
    left_out: Sequence[str] = ()  # classes of the run's sessions that are not taught
    origin: Mapping[str, Any] = field(default_factory=dict)  # for the history
    remark: str = ""  # for whoever makes the store


def write_base(folder: Path, spec: StoreSpec, reporter: Reporter) -> None:
    """Write a store that knows the base classes."""
    spec.network.write(folder / EMBEDDER)
    write_classifier(folder / CLASSIFIER, spec.classifier)
    with closing(create(folder / DATABASE)) as connection, transaction(connection):
        _fill(connection, spec, reporter)


def _fill(connection: sqlite3.Connection, spec: StoreSpec, reporter: Reporter) -> None:
    layout = Layout.of(spec.network, spec.classifier)
    spec.confidence.write(connection)
    derive_all(connection, spec.classifier, layout)  # no class yet
    log = EventLog(connection, "new", dict(spec.origin))
    shown = reporter if spec.names else SILENT
    with shown.track("filling in base classes", len(spec.names)) as advance:
        for position, name in enumerate(spec.names):
            class_id = log.new_class(checked_name(name))
            connection.execute("INSERT INTO base (id, class) VALUES (?, ?)", (position + 1, class_id))
            for sample in spec.samples.get(position, ()):
                insert_image(connection, sample, layout, class_id, position + 1)
            advance()
