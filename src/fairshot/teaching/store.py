"""Store: a folder that can be taught, asked and undone.

It holds the embedder, the classifiers of the base session and a database. Answers come from a snapshot in
memory; a change is one transaction, of one writer at a time, and is kept whole or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from fairshot.benchmarks.pictures import Pictures
from fairshot.errors import CannotWrite
from fairshot.models.embedder import Features
from fairshot.progress import SILENT, Reporter
from fairshot.teaching import event_log, queries
from fairshot.teaching.adaptation import Adaptation, absorb
from fairshot.teaching.base_classifier import read_classifier
from fairshot.teaching.base_counts import CLASSIFIER
from fairshot.teaching.confidence import SETTING, Confidence, Trials
from fairshot.teaching.creation import StoreSpec, write_base
from fairshot.teaching.database import (
    DATABASE,
    derived_hold,
    in_memory,
    is_read_only,
    read_transaction,
    transaction,
)
from fairshot.teaching.derived import Layout, derive, derive_all
from fairshot.teaching.errors import NoClasses, NotAStore, PhotoHasClass, UnreadablePhotos
from fairshot.teaching.event_log import EventLog
from fairshot.teaching.folders import new_folder
from fairshot.teaching.held_out import leave_one_out
from fairshot.teaching.learning_curve import ClassCurve, learning_curves, read_shots, worst_first
from fairshot.teaching.names import UNKNOWN, checked_name
from fairshot.teaching.network import EMBEDDER, Network, Photo
from fairshot.teaching.photos import ReadPhotos
from fairshot.teaching.records import Records
from fairshot.teaching.snapshot import Snapshot, labels_of, read_snapshot
from fairshot.teaching.teach_report import (
    TeachReport,
    answers,
    closest_classes,
    mistaken_photos,
    reassigned_images,
)

COMPARED = 1000  # stored images whose answers are compared before and after a teaching
MOST_PHOTOS = 500  # that are answered for without themselves
MOST_SCORES = 5_000_000  # of those photos, over all classes
WARN_SHARE = 0.2
Photos = Sequence[Any] | Pictures  # paths, arrays or PIL images; `Pictures` are prepared already


@dataclass(frozen=True)
class Candidate:
    """A class and the similarity of an image to it."""

    name: str
    similarity: float


@dataclass(frozen=True)
class Prediction:
    """The answer for one image."""

    answer: str | None  # None: unknown
    confidence: float  # that the best candidate is right: P(known) x P(right | known)
    p_known: float  # that the image shows a known class
    top: tuple[Candidate, ...]  # the best first; equally similar ones in the order of classes

    def sentence(self) -> str:
        """Tell it in one line."""
        return f"{UNKNOWN} ({self.remark()})" if self.answer is None else f"{self.answer}, {self.remark()}"

    def remark(self) -> str:
        """Say how sure the answer is; of "unknown", which class it may show all the same."""
        if self.answer is None:
            return f"perhaps {self.top[0].name}, {self.confidence:.0%}"
        return f"{self.confidence:.0%} sure"


@dataclass
class _Change:
    """A change under way: the snapshot before it and, when it is done, after it."""

    before: Snapshot
    after: Snapshot
    keep: bool


class _NotKept(Exception):
    """Leaves a transaction without keeping it."""


class Store(Records):
    """An open store. Safe to use from several threads; several processes may open one folder."""

    def __init__(self, folder: str | Path) -> None:
        if not (Path(folder) / DATABASE).is_file():
            raise NotAStore(Path(folder))
        self.network = Network.read(Path(folder) / EMBEDDER)
        self.base = read_classifier(Path(folder) / CLASSIFIER, self.network)  # of the base session
        self.layout = Layout.of(self.network, self.base)
        super().__init__(folder)
        self._snapshot: Snapshot | None = None
        self._data_version = -1
        with ExitStack() as opened:
            opened.callback(self.close)
            self._derive_if_needed()
            opened.pop_all()  # it stays open

    @classmethod
    def create(cls, folder: str | Path, spec: StoreSpec, reporter: Reporter = SILENT) -> Self:
        """Make a store; it appears whole or not at all."""
        with new_folder(Path(folder)) as temporary:
            write_base(temporary, spec, reporter)
            with cls(temporary) as store:
                for name, photos in spec.taught.items():
                    store.teach(name, photos)
        return cls(folder)

    # Asking

    def read(self, photos: Photos) -> ReadPhotos:
        """Prepare photos for the embedder; files of a list of paths that cannot be read are left out."""
        return self.network.preparation.read(photos)

    def embed(self, photos: Photos) -> list[Photo]:
        """Embed photos one by one, as they are taught; each once, however often it was given."""
        return self.network.photos(self.read(photos).pictures)

    def predict(self, photos: Photos | Features, top: int = 5) -> list[Prediction]:
        """Answer for each photo, or for features at hand; a file that cannot be read is an error."""
        if not isinstance(photos, dict):
            read = self.read(photos)
            if read.unreadable:
                raise UnreadablePhotos(read.unreadable)
            photos = self.network.embed(read.pictures)
        snapshot = self.snapshot()
        if not snapshot.rows:
            raise NoClasses
        scores, confidence, known = snapshot.confidence.judge(snapshot.classifier, photos)
        predictions = []
        for row, sure, p_known in zip(scores, confidence.tolist(), known.tolist(), strict=True):
            candidates = tuple(Candidate(*pair) for pair in snapshot.most_similar(row, top))
            answer = candidates[0].name if p_known >= snapshot.confidence.threshold else None
            predictions.append(Prediction(answer, sure, p_known, candidates))
        return predictions

    def snapshot(self) -> Snapshot:
        """Return all classes as they are now, also those that another process taught."""
        with self._derived():
            version = self._reader.execute("PRAGMA data_version").fetchone()[0]
            if self._snapshot is None or version != self._data_version:
                self._snapshot = self._read_snapshot(self._reader, self._snapshot)
                self._data_version = version
            return self._snapshot

    def classes(self) -> list[queries.ClassInfo]:
        """Return all classes."""
        calibrated = self.snapshot().calibrated
        with self._reading:
            return queries.class_infos(self._reader, self.base.counts.tolist(), calibrated)

    def leave_one_out(self) -> Trials:
        """Answer for taught photos, each as if it had not been taught."""
        with self._derived():
            snapshot = self._read_snapshot(self._reader, self._snapshot)
            return self._leave_one_out(self._reader, snapshot)

    def _leave_one_out(self, connection: sqlite3.Connection, snapshot: Snapshot) -> Trials:
        """Answer for a fair sample of the photos of those taught classes that have at least two."""
        at_most = min(MOST_PHOTOS, MOST_SCORES // max(len(snapshot.rows), 1))
        photos = queries.repeated_photos(connection, self.layout, at_most)
        return leave_one_out(snapshot.classifier, photos.features, labels_of(photos, snapshot.rows))

    def learning_curves(self) -> list[ClassCurve]:
        """Estimate how often taught classes are answered right at 1, 2, ... photos, the worst class first."""
        return worst_first(curve for part in self.learning_curve_parts() for curve in part)

    def learning_curve_parts(self) -> Iterator[list[ClassCurve]]:
        """Give the curves of some classes at a time, all of one state; other work can come in between."""
        with self._derived():
            snapshot = self._read_snapshot(self._reader, self._snapshot)
            shots = read_shots(self._reader, self.layout, len(snapshot.rows))
        yield from learning_curves(snapshot, shots)

    def base_samples(self) -> queries.Stored:
        """Return the images of base classes that the store keeps."""
        with self._reading:
            return queries.base_samples(self._reader, self.layout)

    def digest(self) -> str:
        """Return a hash of the state: equal for two stores that know the same, whatever the order."""
        with self._derived():
            return queries.digest(self._reader, self.base)

    # Changing

    def teach(
        self,
        name: str,
        photos: Photos | Sequence[Photo],
        dry_run: bool = False,
        warn_share: float = WARN_SHARE,
    ) -> TeachReport:
        """Teach a new class, or more photos of a known one; `dry_run` only reports what it would do.

        Files that cannot be read are left out and named in the report; photos may be embedded already.
        """
        name = checked_name(name)
        embedded, skipped = self._embedded(photos)
        with self._changing(keep=not dry_run) as change:
            log = EventLog(self._writer, "teach", {"name": name})
            known = queries.class_id(self._writer, name)
            class_id = log.new_class(name) if known is None else known
            added = sum([self._add(log, photo, class_id) for photo in embedded])
            log.describe(photos=added)
            change.keep &= added > 0
        repeated = len(embedded) - added
        report = TeachReport(name, added, repeated, known is None, warn_share, dry_run, skipped=skipped)
        if not added:
            return report
        if known is not None:
            report = replace(report, mistaken=mistaken_photos(change.before, embedded, known))
        return self._with_effects(report, change, class_id)

    def adapt(self, photos: Photos | Sequence[Photo]) -> Adaptation:
        """Calibrate classes with unlabelled photos, within bounds; `undo` takes it back."""
        embedded, skipped = self._embedded(photos)
        with self._changing() as change:
            if not change.before.rows:
                raise NoClasses
            log = EventLog(self._writer, "adapt", {"images": len(embedded)})
            absorbed = absorb(log, embedded, change.before.classifier, change.before.names)
            change.keep = bool(absorbed)
        return Adaptation(len(embedded), absorbed, skipped)

    def set_confidence(self, confidence: Confidence) -> None:
        """Answer with this confidence and threshold from now on."""
        with self._changing():
            log = EventLog(self._writer, "confidence", {"source": confidence.source})
            log.change("setting", SETTING, confidence.model_dump_json())

    def _embedded(self, photos: Photos | Sequence[Photo]) -> tuple[list[Photo], dict[str, str]]:
        """Embed photos unless they are embedded already; each once. And why files cannot be read."""
        given = list(photos) if isinstance(photos, Sequence) else []
        if given and all(isinstance(photo, Photo) for photo in given):
            return list({photo.sha256: photo for photo in given}.values()), {}
        read = self.read(photos)
        return self.network.photos(read.pictures), read.unreadable

    def _add(self, log: EventLog, photo: Photo, class_id: int) -> bool:
        """Put a photo into a class; False if it was there."""
        row = self._writer.execute(
            "SELECT images.id, c.id, c.name FROM images LEFT JOIN classes c ON c.id = images.class "
            "WHERE sha256 = ?",
            (photo.sha256,),
        ).fetchone()
        if row is None:
            row = queries.insert_image(self._writer, photo, self.layout), None, None
        image, owner, owner_name = row
        if owner == class_id:
            return False
        if owner_name is not None:
            raise PhotoHasClass(owner_name)
        log.change("image", image, class_id)
        return True

    def _read_snapshot(self, connection: sqlite3.Connection, former: Snapshot | None) -> Snapshot:
        return read_snapshot(connection, self.base, self.layout, former)

    @contextmanager
    def _changing(self, keep: bool = True) -> Iterator[_Change]:
        """Change recorded values in one transaction, and then all that is derived from them."""
        latest = self.snapshot()
        with self._writing:
            try:
                with transaction(self._writer):
                    if not derived_hold(self._writer):
                        self._derive_all(self._writer)
                    before = self._read_snapshot(self._writer, latest)
                    change = _Change(before, before, keep)
                    yield change
                    change.after = self._derive(before)
                    if not change.keep:
                        raise _NotKept
            except _NotKept:
                return
        with self._reading:  # by now a later change may have been read, which must not be lost
            if self._snapshot is None or self._snapshot.version < change.after.version:
                self._snapshot = change.after

    def _derive(self, before: Snapshot) -> Snapshot:
        """Derive anew what depends on the values that the last event changed."""
        changed = event_log.changed_classes(self._writer, before.version)
        derive(self._writer, changed, self.base, self.layout)
        return self._with_confidence(self._writer, self._read_snapshot(self._writer, before))

    def _derive_all(self, connection: sqlite3.Connection) -> None:
        """Derive anew all that is derived from recorded values."""
        derive_all(connection, self.base, self.layout)
        self._with_confidence(connection, self._read_snapshot(connection, None))

    def _derive_if_needed(self) -> None:
        """Derive what does not hold any more since recorded values were changed without the network.

        Where nothing can be written, this is done in a copy in memory, which is read from then on.
        """
        with self._writing:
            if derived_hold(self._writer):
                return
            try:
                with transaction(self._writer):
                    if not derived_hold(self._writer):  # another process may have done it meanwhile
                        self._derive_all(self._writer)
            except CannotWrite as problem:
                if not is_read_only(problem):
                    raise
                self._read_from_memory()

    def _read_from_memory(self) -> None:
        with self._reading:
            if derived_hold(self._reader):  # another thread has done it
                return
            copy = in_memory(self._reader)
            with transaction(copy):
                self._derive_all(copy)
            self._reader.close()
            self._reader = copy

    @contextmanager
    def _derived(self) -> Iterator[None]:
        """Read everything as of one moment at which all that is derived holds."""
        while True:
            with self._reading, read_transaction(self._reader):
                if derived_hold(self._reader):
                    yield
                    return
            self._derive_if_needed()

    def _with_confidence(self, connection: sqlite3.Connection, after: Snapshot) -> Snapshot:
        """Fit confidence to the taught photos as they are now, unless it was chosen on images of its own."""
        if not after.confidence.automatic:
            return after
        confidence, prior = Confidence(), after.confidence.prior
        if not after.classifier.base_classes:  # taught photos tell nothing about images of base classes
            trials = self._leave_one_out(connection, after)
            source = f"{len(trials.known)} taught photos, each answered for without itself"
            fitted = Confidence.fit(trials, source, automatic=True)
            confidence = fitted if prior is None else prior.confidence(trials, after.classifier.classes)
        confidence.write(connection)
        return replace(after, confidence=confidence)

    def _with_effects(self, report: TeachReport, change: _Change, class_id: int) -> TeachReport:
        """Add to a report what the teaching did to other classes."""
        with self._reading:
            stored = queries.stored_images(self._reader, self.layout, COMPARED, class_id)
        report = replace(report, closest=closest_classes(change.after, class_id))
        if not stored.classes:
            return report
        before, after = (answers(each, stored.features) for each in (change.before, change.after))
        names = {row.id: row.name for row in change.before.rows}
        return replace(
            report,
            stored=len(stored.classes),
            reassigned=reassigned_images(before, after, stored, class_id, names),
            changed=int((before != after).sum()),
        )
