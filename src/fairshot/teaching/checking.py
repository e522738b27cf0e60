"""Whether a store that comes from elsewhere holds only what fairshot writes."""

from __future__ import annotations

import math
import sqlite3
from datetime import datetime
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, create_model

from fairshot.classifiers.dual import DualClassifier
from fairshot.errors import BadInput
from fairshot.teaching.confidence import SETTING, Confidence
from fairshot.teaching.derived import Layout
from fairshot.teaching.event_log import RECORDED
from fairshot.teaching.names import checked_name


def _is_spelt_so(name: str) -> str:
    if checked_name(name) != name:
        raise ValueError("a class name that is not in its one spelling")
    return name


def _detail(**fields: Any) -> TypeAdapter[Any]:
    """Describe a JSON object of just these fields."""
    required: dict[str, Any] = {name: (kind, ...) for name, kind in fields.items()}
    config = ConfigDict(extra="forbid", strict=True)
    return TypeAdapter(create_model("detail", __config__=config, **required))


Name = Annotated[str, AfterValidator(_is_spelt_so)]
LONGEST_TEXT = 4096  # characters; paths have fewer
Text = Annotated[  # nothing that controls a terminal
    str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", max_length=LONGEST_TEXT)
]
Count = Annotated[int, Field(ge=1, lt=2**40)]
LARGEST = 1e12  # of a feature, so that sums of squares stay numbers
MOST_THUMBNAIL_BYTES = 64 * 2**10

EVENTS = {  # the details of each kind of event
    "new": TypeAdapter(dict[str, Text | int]),
    "teach": _detail(name=Name, photos=Count),
    "forget": _detail(name=Name),
    "rename": _detail(name=Name, to=Name),
    "merge": _detail(name=Name, into=Name),
    "drop": _detail(name=Name, photos=Count),
    "move": _detail(name=Name, photos=Count, into=Name),
    "adapt": _detail(images=Count),
    "confidence": _detail(source=Text),
}
SETTINGS = {SETTING: TypeAdapter(Confidence)}
_EMPTY = """
SELECT name FROM classes WHERE name IS NOT NULL AND id NOT IN (SELECT class FROM base)
AND id NOT IN (SELECT class FROM images WHERE class IS NOT NULL)
"""
TABLE_OF = {subject: table for subject, (table, _, key) in RECORDED.items() if key == "id"}
IDS = (*TABLE_OF.values(), "events")
LARGEST_ID = 2**40  # after the largest of all, SQLite has none for the next event


def check_values(connection: sqlite3.Connection, base: DualClassifier, layout: Layout) -> None:
    """Refuse values that fairshot would not have written."""
    try:
        _check_classifier(base)
        _check_recorded(connection, base)
        _check_features(connection, layout)
        _check_thumbnails(connection)
        _check_settings(connection)
        _check_events(connection)
        _check_changes(connection)
    except (ValueError, TypeError, KeyError) as problem:
        raise BadInput("store", f"it holds what no store holds: {problem}") from None


def _check_classifier(base: DualClassifier) -> None:
    tensors = base.tensors()
    for name, values in tensors.items():
        if not bool((values.abs() < LARGEST).all()):
            raise ValueError(f"numbers that no classifier has in {name}")
    if bool(tensors["h_tilde.delta"].any()) or bool((base.counts < 1).any()):
        raise ValueError("a classifier that is not of a base session")


def _check_recorded(connection: sqlite3.Connection, base: DualClassifier) -> None:
    for (name,) in connection.execute("SELECT name FROM classes WHERE name IS NOT NULL"):
        _is_spelt_so(name)
    for (name,) in connection.execute(_EMPTY):
        raise ValueError(f"the class {name!r} without an image")
    for table in IDS:
        least, most = connection.execute(f"SELECT min(id), max(id) FROM {table}").fetchone()  # noqa: S608 - our names
        if least is not None and not 0 < least <= most < LARGEST_ID:
            raise ValueError(f"ids of {table} from {least} to {most}")
    if [row[0] for row in connection.execute("SELECT id FROM base ORDER BY id")] != list(
        range(1, base.classes + 1)
    ):
        raise ValueError(f"other base classes than the {base.classes} of its classifier")
    for (kept,) in connection.execute("SELECT DISTINCT kept FROM unlabelled WHERE kept NOT IN (0, 1)"):
        raise ValueError(f"an unlabelled sample kept {kept} times")


def _check_features(connection: sqlite3.Connection, layout: Layout) -> None:
    sizes = {"g": 4 * math.prod(layout.g), "g_tilde": layout.g_tilde and 4 * math.prod(layout.g_tilde)}
    for table, column in (("images", "g"), ("images", "g_tilde"), ("unlabelled", "g")):
        for (blob,) in connection.execute(f"SELECT {column} FROM {table}"):  # noqa: S608 - our names
            if (None if blob is None else len(blob)) != sizes[column]:
                raise ValueError(f"features of another size than the embedder's in {table}")
            if blob is not None and not (np.abs(np.frombuffer(blob, "<f4")) < LARGEST).all():
                raise ValueError(f"features that no embedder gives in {table}")


def _check_thumbnails(connection: sqlite3.Connection) -> None:
    largest = connection.execute("SELECT max(length(thumbnail)) FROM images").fetchone()[0] or 0
    if largest > MOST_THUMBNAIL_BYTES:
        raise ValueError(f"a small image of {largest:,} bytes")


def _check_settings(connection: sqlite3.Connection) -> None:
    values = dict(connection.execute("SELECT key, value FROM settings"))
    if values.keys() != SETTINGS.keys():
        raise ValueError(f"settings {sorted(values)}")
    for key, value in values.items():
        SETTINGS[key].validate_json(value)


def _check_events(connection: sqlite3.Connection) -> None:
    events = connection.execute("SELECT at, kind, detail FROM events ORDER BY id").fetchall()
    if [kind for _, kind, _ in events[:1]] != ["new"]:
        raise ValueError("a history that does not begin with a new store")
    for at, kind, detail in events:
        if datetime.fromisoformat(at).isoformat(timespec="seconds") != at:
            raise ValueError(f"the time {at[:40]!r}")
        _check_event(kind, TypeAdapter(dict[str, int | str]).validate_json(detail, strict=True))


def _check_event(kind: Any, detail: dict[str, int | str]) -> None:
    if kind == "undo":  # its details are those of the event that it took back
        TypeAdapter(Count).validate_python(detail.pop("event"))
        kind = detail.pop("kind")
    EVENTS[kind].validate_python(detail)


def _check_changes(connection: sqlite3.Connection) -> None:
    """Check what an undo would write."""
    ids = {
        subject: {row[0] for row in connection.execute(f"SELECT id FROM {table}")}  # noqa: S608 - our names
        for subject, table in TABLE_OF.items()
    }
    for subject, key, *values in connection.execute("SELECT subject, key, before, after FROM changes"):
        for value in values:
            if subject == "setting":
                SETTINGS[key].validate_json(value)
            elif key not in ids[subject] or not _may_be(subject, value, ids["class"]):
                raise ValueError(f"a change of {subject} {key!r} to {value!r}")


def _may_be(subject: str, value: Any, classes: set[int]) -> bool:
    """Say whether a recorded value can be this one."""
    match subject:
        case "class":
            return value is None or checked_name(value) == value
        case "image":
            return value is None or value in classes
        case "base":
            return value in classes
        case _:
            return value in (0, 1)
