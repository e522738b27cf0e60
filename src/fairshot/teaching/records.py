"""The recorded values of a store, to be read and changed without its network.

Nothing here imports torch, which takes seconds. A change leaves the derived tables to be derived anew by
whoever asks the store next.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Self

from fairshot.teaching import event_log, queries, single_photos
from fairshot.teaching.base_counts import CLASSIFIER, read_counts
from fairshot.teaching.database import DATABASE, check_content, connect, invalidate_derived, transaction
from fairshot.teaching.errors import BadName, ClassExists, NotAStore, UnknownClass
from fairshot.teaching.event_log import RECORDED, Event, EventLog
from fairshot.teaching.names import checked_name
from fairshot.teaching.write_ahead_log import check_log


class Records:
    """An open store that can tell its classes and its history, and change what is recorded of classes."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path = self.folder / DATABASE
        if not path.is_file():
            raise NotAStore(self.folder)
        self._reading, self._writing = threading.Lock(), threading.Lock()
        check_log(path)
        with ExitStack() as opened:
            self._reader, self._writer = (opened.enter_context(closing(connect(path))) for _ in range(2))
            check_content(self._reader, path)
            opened.pop_all()  # nothing is damaged, and both stay open

    def close(self) -> None:
        """Close the database."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def classes(self) -> list[queries.ClassInfo]:
        """Return all classes."""
        with self._reading:
            if not queries.adapted(self._reader):
                return queries.class_infos(self._reader, read_counts(self.folder / CLASSIFIER))
        from fairshot.teaching.store import Store  # which classes calibration moved is computed

        with Store(self.folder) as store:
            return store.classes()

    def thumbnails(self, name: str, at_most: int = 5) -> list[bytes]:
        """Return small images (PNG or JPEG) of a class, taught ones first."""
        return [photo.thumbnail for photo in self.photos(name, at_most)]

    def photos(self, name: str, at_most: int = -1, skipped: int = 0) -> list[single_photos.StoredPhoto]:
        """Return the photos of a class, taught ones first, each with the id that `drop` and `move` take."""
        with self._reading:
            return single_photos.class_photos(self._reader, name, at_most, skipped)

    def image_thumbnails(self, images: Sequence[int]) -> list[bytes]:
        """Return small versions of stored images, by their ids."""
        with self._reading:
            return queries.image_thumbnails(self._reader, images)

    def history(self, at_most: int | None = None) -> list[Event]:
        """Return what was done, the latest first."""
        with self._reading:
            return event_log.history(self._reader, at_most)

    def class_of_photo(self, sha256: bytes) -> str | None:
        """Return the class that a photo was taught to, by its fingerprint; none if it was not taught."""
        with self._reading:
            return queries.class_of_photo(self._reader, sha256)

    def forget(self, name: str) -> None:
        """Take a class out; `undo` brings it back."""
        with self._changing():
            class_id = self._class_id(name)
            EventLog(self._writer, "forget", {"name": name}).change("class", class_id, None)

    def rename(self, name: str, new_name: str) -> None:
        """Give a class another name."""
        new_name = checked_name(new_name)
        with self._changing():
            class_id = self._class_id(name)
            if queries.class_id(self._writer, new_name) is not None:
                raise ClassExists(name, new_name)
            log = EventLog(self._writer, "rename", {"name": name, "to": new_name})
            log.change("class", class_id, new_name)

    def merge(self, name: str, into: str) -> None:
        """Put all that is known of one class into another."""
        with self._changing():
            source, target = self._class_id(name), self._class_id(into)
            if source == target:
                raise BadName(name, "cannot be merged into itself; give two classes")
            log = EventLog(self._writer, "merge", {"name": name, "into": into})
            for subject in ("base", "image"):
                query = f"SELECT id FROM {RECORDED[subject].table} WHERE class = ?"  # noqa: S608 - our names
                rows = self._writer.execute(query, (source,)).fetchall()
                for (row,) in rows:
                    log.change(subject, row, target)
            log.change("class", source, None)

    def drop(self, name: str, photos: Sequence[int]) -> None:
        """Take single photos out of a class, by their ids; a taught class is forgotten with its last one."""
        with self._changing():
            log = EventLog(self._writer, "drop", {"name": name})
            single_photos.take_out(log, name, self._class_id(name), photos, None)

    def move(self, name: str, photos: Sequence[int], into: str) -> None:
        """Put single photos of a class into another one, known or new; its last one takes the class along."""
        into = checked_name(into)
        with self._changing():
            log = EventLog(self._writer, "move", {"name": name, "into": into})
            source, target = self._class_id(name), queries.class_id(self._writer, into)
            target = log.new_class(into) if target is None else target
            single_photos.take_out(log, name, source, photos, target)

    def undo(self) -> Event:
        """Take back the last event that still stands, and return it."""
        with self._changing():
            return event_log.undo(self._writer)

    def _class_id(self, name: str) -> int:
        class_id = queries.class_id(self._writer, name)
        if class_id is None:
            names = [
                row[0] for row in self._writer.execute("SELECT name FROM classes WHERE name IS NOT NULL")
            ]
            raise UnknownClass(name, self.folder, names)
        return class_id

    @contextmanager
    def _changing(self) -> Iterator[object]:
        """Change recorded values in one transaction; what is derived from them does not hold any more."""
        with self._writing, transaction(self._writer):
            yield None
            invalidate_derived(self._writer)
