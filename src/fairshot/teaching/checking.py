"""Whether a database holds only what a store holds: asked of one that comes from elsewhere."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, create_model

from fairshot.errors import UserError
from fairshot.teaching import calibration, confidence
from fairshot.teaching.calibration import CalibrationSettings
from fairshot.teaching.confidence import Confidence
from fairshot.teaching.derived import Shapes
from fairshot.teaching.names import checked_name


def _is_spelt_so(name: str) -> str:
    if checked_name(name) != name:
        raise ValueError("a class name in another spelling than its one")
    return name


def _detail(**fields: Any) -> TypeAdapter[Any]:
    """Describe a JSON object of just these fields."""
    required: dict[str, Any] = {name: (kind, ...) for name, kind in fields.items()}
    config = ConfigDict(extra="forbid", strict=True)
    return TypeAdapter(create_model("detail", __config__=config, **required))


Name = Annotated[str, AfterValidator(_is_spelt_so)]
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]  # nothing that controls a terminal
Count = Annotated[int, Field(ge=1, lt=2**40)]
LARGEST = 1e12  # of a feature, so that sums of squares stay numbers

EVENTS = {  # what each kind of event tells of itself
    "new": TypeAdapter(dict[str, Text | int]),
    "teach": _detail(name=Name, photos=Count),
    "forget": _detail(name=Name),
    "rename": _detail(name=Name, to=Name),
    "merge": _detail(name=Name, into=Name),
    "adapt": _detail(images=Count),
    "confidence": _detail(source=Text),
}
SETTINGS: dict[str, TypeAdapter[Any]] = {
    "gamma": TypeAdapter(Annotated[float, Field(ge=0, allow_inf_nan=False)]),
    calibration.SETTING: TypeAdapter(CalibrationSettings),
    confidence.SETTING: TypeAdapter(Confidence),
}
_EMPTY = """
SELECT name FROM classes WHERE name IS NOT NULL AND id NOT IN (SELECT class FROM base)
AND id NOT IN (SELECT class FROM images WHERE class IS NOT NULL)
"""
TABLES = {"class": "classes", "image": "images", "base": "base", "sample": "unlabelled"}  # of what can change


def check_values(connection: sqlite3.Connection, shapes: Shapes) -> None:
    """Refuse values that fairshot would not have written."""
    try:
        _check_facts(connection)
        _check_features(connection, shapes)
        _check_settings(connection)
        _check_events(connection)
        _check_changes(connection)
    except (ValueError, TypeError, KeyError) as problem:
        raise UserError(f"the database of the store holds what no store holds: {problem}") from None


def _check_facts(connection: sqlite3.Connection) -> None:
    for (name,) in connection.execute("SELECT name FROM classes WHERE name IS NOT NULL"):
        _is_spelt_so(name)
    for (name,) in connection.execute(_EMPTY):
        raise ValueError(f"the class {name!r} without an image")
    for (count,) in connection.execute("SELECT count FROM base"):
        TypeAdapter(Count).validate_python(count)
    for (kept,) in connection.execute("SELECT DISTINCT kept FROM unlabelled WHERE kept NOT IN (0, 1)"):
        raise ValueError(f"an unlabelled sample kept {kept} times")


def _check_features(connection: sqlite3.Connection, shapes: Shapes) -> None:
    lengths = {"g": 4 * shapes.g[0] * shapes.g[1], "g_tilde": None}
    if shapes.g_tilde is not None:
        lengths["g_tilde"] = 4 * shapes.g_tilde[0] * shapes.g_tilde[1]
    for table, columns in (("base", ("g", "g_tilde")), ("images", ("g", "g_tilde")), ("unlabelled", ("g",))):
        for column in columns:
            for (blob,) in connection.execute(f"SELECT {column} FROM {table}"):
                if (None if blob is None else len(blob)) != lengths[column]:
                    raise ValueError(f"features of another size than the embedder's in {table}")
                if blob is not None and not (np.abs(np.frombuffer(blob, "<f4")) < LARGEST).all():
                    raise ValueError(f"features that no embedder gives in {table}")


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
        datetime.fromisoformat(at)
        _check_event(kind, TypeAdapter(dict[str, int | str]).validate_json(detail, strict=True))


def _check_event(kind: Any, detail: dict[str, int | str]) -> None:
    if kind == "undo":  # tells what the event told that it took back
        TypeAdapter(Count).validate_python(detail.pop("event"))
        kind = detail.pop("kind")
    EVENTS[kind].validate_python(detail)


def _check_changes(connection: sqlite3.Connection) -> None:
    """Look at what an undo would write."""
    ids = {
        subject: {row[0] for row in connection.execute(f"SELECT id FROM {table}")}
        for subject, table in TABLES.items()
    }
    for subject, key, *values in connection.execute("SELECT subject, key, before, after FROM changes"):
        for value in values:
            if subject == "setting":
                SETTINGS[key].validate_json(value)
            elif key not in ids[subject] or not _may_be(subject, value, ids["class"]):
                raise ValueError(f"a change of {subject} {key!r} to {value!r}")


def _may_be(subject: str, value: Any, classes: set[int]) -> bool:
    """Say whether a fact can have a value."""
    match subject:
        case "class":
            return value is None or checked_name(value) == value
        case "image":
            return value is None or value in classes
        case "base":
            return value in classes
        case _:
            return value in (0, 1)
