"""Store: a folder that can be taught, asked and undone.

It holds the embedder and a database. Readers answer from a snapshot in memory; a change is one transaction
of the one writer, whole or absent whatever interrupts it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch

from fairshot.errors import UserError, did_you_mean
from fairshot.models.embedder import Features
from fairshot.teaching import event_log as log
from fairshot.teaching import queries
from fairshot.teaching.calibration import Adaptation, Sample, absorb, derive_shifts
from fairshot.teaching.confidence import SETTING, Confidence, Decisions, Trials
from fairshot.teaching.database import connect, one_moment, to_blob, transaction
from fairshot.teaching.derived import Shapes, derive
from fairshot.teaching.event_log import Event, EventLog
from fairshot.teaching.held_out import choose_automatically, leave_one_out
from fairshot.teaching.names import UNKNOWN, checked_name
from fairshot.teaching.network import FILE_NAME, Network, Photo
from fairshot.teaching.snapshot import Snapshot, SnapshotReader
from fairshot.teaching.teach_report import Stored, TeachReport, answers, closest_classes, taken_images

DATABASE = "store.sqlite"
LOOKED_AT = 1000  # stored images whose answers are compared before and after a lesson
WARN_SHARE = 0.2


@dataclass(frozen=True)
class Candidate:
    """A class and the similarity of an image to it."""

    name: str
    similarity: float


@dataclass(frozen=True)
class Prediction:
    """The answer for one image."""

    answer: str | None  # None: unknown
    confidence: float  # that the best candidate is right, if the image shows a known class
    p_known: float  # that it does
    top: tuple[Candidate, ...]  # the best first; equally similar ones in the order of classes

    def sentence(self) -> str:
        """Tell it in one line."""
        return f"{UNKNOWN} ({self.remark()})" if self.answer is None else f"{self.answer}, {self.remark()}"

    def remark(self) -> str:
        """Say how sure the answer is; of what is unknown, what it is if it shows a known class after all."""
        if self.answer is None:
            return f"nearest: {self.top[0].name}, {self.confidence:.0%}"
        return f"{self.confidence:.0%} sure"


@dataclass
class _Change:
    """A change under way: the classes before it and, when it is done, after it."""

    before: Snapshot
    after: Snapshot
    keep: bool


class _NotKept(Exception):
    """Leaves a transaction without keeping it."""


class Store:
    """An open store. Safe to use from several threads; several processes may open one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / DATABASE).is_file():
            raise UserError(
                f"{self.folder} is not a store; make one from a run or a pretrained network: "
                f"fairshot new {self.folder} --from RUN, or --backbone NAME"
            )
        self.network = Network.read(self.folder / FILE_NAME)
        self.shapes = Shapes(self.network.shape, self.network.shape_tilde)
        self._reader, self._writer = (connect(self.folder / DATABASE) for _ in range(2))
        self._reading, self._writing = threading.Lock(), threading.Lock()
        gamma = self._reader.execute("SELECT value FROM settings WHERE key = 'gamma'").fetchone()
        self._snapshots = SnapshotReader(self.shapes, float(gamma[0]))
        self._snapshot: Snapshot | None = None
        self._data_version = -1

    def close(self) -> None:
        """Close the database."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Asking

    def predict(self, photos: Sequence[Any], top: int = 5) -> list[Prediction]:
        """Answer for photos given as paths, arrays or PIL images."""
        return self.answer(self.network.embed_together(self.network.preparation.pictures(photos)), top)

    def answer(self, features: Features, top: int = 5) -> list[Prediction]:
        """Answer for features."""
        snapshot = self.snapshot()
        if not snapshot.entries:
            raise UserError("the store knows no class yet; teach it one first")
        scores, second_look = snapshot.scores(features)
        decisions, judge = Decisions.of(scores, second_look), snapshot.confidence
        judged = torch.stack([judge.right.of(decisions), judge.familiar.of(decisions)], dim=1).tolist()
        predictions = []
        for (sure, familiar), row in zip(judged, scores, strict=True):
            candidates = tuple(Candidate(*pair) for pair in snapshot.most_similar(row, top))
            answer = candidates[0].name if familiar >= judge.threshold else None
            predictions.append(Prediction(answer, sure, familiar, candidates))
        return predictions

    def snapshot(self) -> Snapshot:
        """Return all classes as they are now, also those that another process taught."""
        with self._reading:
            version = self._reader.execute("PRAGMA data_version").fetchone()[0]
            if self._snapshot is None or version != self._data_version:
                self._snapshot = self._snapshots.read(self._reader, self._snapshot)
                self._data_version = version
            return self._snapshot

    def classes(self) -> list[queries.ClassInfo]:
        """Return all classes."""
        with self._reading:
            return queries.class_infos(self._reader)

    def thumbnails(self, name: str, at_most: int = queries.SHOWN_THUMBNAILS) -> list[bytes]:
        """Return small images of a class."""
        with self._reading:
            return queries.thumbnails(self._reader, name, at_most)

    def image_thumbnails(self, images: Sequence[int]) -> list[bytes]:
        """Return small versions of stored images, by their ids."""
        with self._reading:
            return queries.image_thumbnails(self._reader, images)

    def history(self, at_most: int | None = None) -> list[Event]:
        """Return what was done, the latest first."""
        with self._reading:
            return log.history(self._reader, at_most)

    def left_out_trials(self) -> Trials:
        """Answer for taught photos, each without itself in its class."""
        snapshot = self.snapshot()
        with self._reading:
            return leave_one_out(self._reader, snapshot, self.shapes)

    def base_samples(self) -> Stored:
        """Return the images of base classes that the store keeps."""
        with self._reading:
            return queries.base_samples(self._reader, self.shapes)

    def digest(self) -> str:
        """Return a hash of the state: equal for two stores that know the same, however they got there."""
        with self._reading, one_moment(self._reader):
            return queries.digest(self._reader)

    # Teaching

    def teach(
        self, name: str, photos: Sequence[Any], dry_run: bool = False, warn_share: float = WARN_SHARE
    ) -> TeachReport:
        """Teach a new class, or more photos of a known one; `dry_run` only tells what it would do."""
        name = checked_name(name)
        pictures = self.network.preparation.pictures(photos)
        return self.teach_embedded(name, self.network.embed_photos(pictures), dry_run, warn_share)

    def teach_embedded(
        self, name: str, photos: Sequence[Photo], dry_run: bool = False, warn_share: float = WARN_SHARE
    ) -> TeachReport:
        """Teach photos whose features are at hand."""
        name = checked_name(name)
        with self._changing(keep=not dry_run) as change:
            ledger = EventLog(self._writer, "teach", {"name": name})
            known = queries.class_id(self._writer, name)
            class_id = ledger.new_class(name) if known is None else known
            added = sum([self._add(ledger, photo, class_id) for photo in photos])
            ledger.describe(photos=added)
            change.keep &= added > 0
        lesson = TeachReport(name, added, len(photos) - added, known is None, warn_share, dry_run)
        return self._told(lesson, change, class_id) if added else lesson

    def forget(self, name: str) -> None:
        """Take a class out; `undo` brings it back."""
        with self._changing():
            class_id = self._known(name)
            EventLog(self._writer, "forget", {"name": name}).change("class", class_id, None)

    def rename(self, name: str, new_name: str) -> None:
        """Give a class another name."""
        new_name = checked_name(new_name)
        with self._changing():
            class_id = self._known(name)
            if queries.class_id(self._writer, new_name) is not None:
                raise UserError(
                    f"there is a class {new_name!r} already; to put both together: "
                    f"merge {name!r} {new_name!r}"
                )
            ledger = EventLog(self._writer, "rename", {"name": name, "to": new_name})
            ledger.change("class", class_id, new_name)

    def merge(self, name: str, into: str) -> None:
        """Put all that is known of one class into another."""
        with self._changing():
            source, target = self._known(name), self._known(into)
            if source == target:
                raise UserError(f"{name!r} cannot be merged into itself; give two classes")
            ledger = EventLog(self._writer, "merge", {"name": name, "into": into})
            for subject, table in (("base", "base"), ("image", "images")):
                rows = self._writer.execute(f"SELECT id FROM {table} WHERE class = ?", (source,)).fetchall()
                for (row,) in rows:
                    ledger.change(subject, row, target)
            ledger.change("class", source, None)

    def adapt(self, photos: Sequence[Any]) -> Adaptation:
        """Calibrate classes with unlabelled photos, within bounds; `undo` takes it back."""
        pictures = self.network.preparation.pictures(photos)
        return self.adapt_embedded(self.network.embed_photos(pictures))

    def adapt_embedded(self, photos: Sequence[Photo]) -> Adaptation:
        """Calibrate classes with unlabelled photos whose features are at hand."""
        samples = [Sample(photo.sha256, photo.g) for photo in photos]
        with self._changing() as change:
            if not change.before.entries:
                raise UserError("the store knows no class yet; teach it one first")
            ledger = EventLog(self._writer, "adapt", {"images": len(samples)})
            adaptation = absorb(ledger, samples, self.shapes)
            change.keep = bool(adaptation.absorbed)
        return adaptation

    def set_confidence(self, confidence: Confidence) -> None:
        """Answer with this confidence and threshold from now on."""
        with self._changing():
            ledger = EventLog(self._writer, "confidence", {"source": confidence.source})
            ledger.change("setting", SETTING, confidence.model_dump_json())

    def undo(self) -> Event:
        """Take back the last event that still stands, and return it."""
        with self._changing():
            return log.undo(self._writer)

    def _add(self, ledger: EventLog, photo: Photo, class_id: int) -> bool:
        """Put a photo into a class; False if it was there."""
        row = self._writer.execute(
            "SELECT images.id, c.id, c.name FROM images LEFT JOIN classes c ON c.id = images.class "
            "WHERE sha256 = ?",
            (photo.sha256,),
        ).fetchone()
        if row is None:
            g_tilde = None if self.shapes.g_tilde is None else to_blob(photo.g_tilde)
            cursor = self._writer.execute(
                "INSERT INTO images (sha256, g, g_tilde, thumbnail) VALUES (?, ?, ?, ?)",
                (photo.sha256, to_blob(photo.g), g_tilde, photo.thumbnail),
            )
            ledger.change("image", cursor.lastrowid, class_id)
            return True
        image, owner, owner_name = row
        if owner == class_id:
            return False
        if owner_name is not None:
            raise UserError(
                f"one of the photos is stored as {owner_name!r} already, and a photo has one class; leave it "
                f"out, or merge or forget {owner_name!r} first"
            )
        ledger.change("image", image, class_id)
        return True

    def _known(self, name: str) -> int:
        class_id = queries.class_id(self._writer, name)
        if class_id is None:
            names = [info.name for info in queries.class_infos(self._writer)]
            raise UserError(
                f"there is no class {name!r} in {self.folder}, see: fairshot classes {self.folder}"
                f"{did_you_mean(name, names)}"
            )
        return class_id

    @contextmanager
    def _changing(self, keep: bool = True) -> Iterator[_Change]:
        """Change facts in one transaction, and all that follows from them."""
        latest = self.snapshot()
        with self._writing:
            try:
                with transaction(self._writer):
                    before = self._snapshots.read(self._writer, latest)
                    change = _Change(before, before, keep)
                    yield change
                    change.after = self._follow(before)
                    if not change.keep:
                        raise _NotKept
            except _NotKept:
                return
        with self._reading:  # by now a later change may have been read, which must not be lost
            if self._snapshot is None or self._snapshot.version < change.after.version:
                self._snapshot = change.after

    def _follow(self, before: Snapshot) -> Snapshot:
        """Bring in line what follows from the facts that the last event changed."""
        touched = log.touched_classes(self._writer, before.version)
        derive(self._writer, touched, self.shapes)
        derive_shifts(self._writer, self.shapes)
        after = self._snapshots.read(self._writer, before)
        if not after.confidence.automatic:
            return after
        confidence = choose_automatically(self._writer, after, self.shapes)
        confidence.write(self._writer)
        return replace(after, confidence=confidence)

    def _told(self, lesson: TeachReport, change: _Change, class_id: int) -> TeachReport:
        """Add to a lesson what it did to other classes."""
        with self._reading:
            stored = queries.stored_images(self._reader, self.shapes, LOOKED_AT, class_id)
        lesson = replace(lesson, closest=closest_classes(change.after, class_id))
        if not stored.classes:
            return lesson
        before, after = answers(change.before, stored), answers(change.after, stored)
        names = {entry.id: entry.name for entry in change.before.entries}
        return replace(
            lesson,
            stored=len(stored.classes),
            taken=taken_images(before, after, stored, class_id, names),
            changed=int((before != after).sum()),
        )
