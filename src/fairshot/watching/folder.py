"""A folder into which picture files come: each is answered once, when nobody writes it any more."""

from __future__ import annotations

import heapq
import math
import os
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from fairshot.benchmarks.images import is_image_name, read_image
from fairshot.errors import BadImage
from fairshot.progress import SILENT, Reporter
from fairshot.watching.backoff import Backoff
from fairshot.watching.capture import Capture, Captures, Prepare, Version, as_it_is, as_text, identity
from fairshot.watching.journal import Journal

File = tuple[str, Version]  # its path in the folder, and what it was when it was looked at
AT_ONCE = 8  # pictures that are answered together
WAITING = 1024  # files that are looked at together, the oldest first; the others come later
COMPLETION_SECONDS = 30.0  # in which a file that cannot be read may still be completed
IDLE_SHARE = 5  # times as long as a look took, to wait before the next: a large folder keeps no core busy


@dataclass
class FolderSource:
    """Watches a folder and its sub-folders; hidden ones and those in `without` are passed over.

    A file is read when its size and time have not changed for `every` seconds. One that cannot be read then
    is tried once more, half a minute later.
    """

    folder: Path
    journal: Journal
    every: float = 1.0  # seconds
    once: bool = False  # end when all files are answered, instead of waiting for more
    prepare: Prepare = as_it_is
    without: Collection[Path] = ()
    reporter: Reporter = SILENT
    _waiting: dict[File, float] = field(init=False, default_factory=dict)  # when it was first seen so
    _failed: dict[File, float] = field(init=False, default_factory=dict)  # when it could not be read

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.folder)

    def batches(self, stop: Event) -> Captures:
        """Give the pictures of files that are new or have changed, the oldest first."""
        away = Backoff(self.reporter, f"{self.folder} cannot be read", f"{self.folder} is there again")
        while not stop.is_set():
            began = time.monotonic()
            try:
                found = self._unanswered()
            except OSError as problem:
                stop.wait(away.failed(problem.strerror or str(problem)))
                continue
            away.succeeded()
            settled = self._settled(found)
            for start in range(0, len(settled), AT_ONCE):
                captures = map(self._read, settled[start : start + AT_ONCE])
                if batch := [capture for capture in captures if capture is not None]:
                    yield batch
                if stop.is_set():
                    return
            if self.once and not found:
                return
            if not settled:
                stop.wait(max(self.every, IDLE_SHARE * (time.monotonic() - began)))

    def _unanswered(self) -> list[File]:
        """List files that are not answered yet, as they are now: the oldest, and not too many at once."""
        if not self.folder.is_dir():
            raise FileNotFoundError(2, "there is no such folder")
        return heapq.nsmallest(WAITING, self._files(), key=lambda each: (each[1].changed, each[0]))

    def _files(self) -> Iterator[File]:
        without = {path.resolve() for path in self.without}
        for parent, folders, files in os.walk(self.folder):
            folders[:] = [
                name
                for name in folders
                if not name.startswith(".") and not (without and Path(parent, name).resolve() in without)
            ]
            for name in filter(is_image_name, files):
                path = os.path.join(parent, name)
                try:
                    status = os.stat(path)
                except OSError:  # it has just been moved or removed
                    continue
                if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
                    continue
                image, version = os.path.relpath(path, self.folder), Version.of(status)
                if not self.journal.is_answered(image, version):
                    yield image, version

    def _settled(self, found: list[File]) -> list[File]:
        """Choose the files that have not changed for a while, and for longer if they could not be read."""
        now = time.monotonic()
        self._waiting = {file: self._waiting.get(file, now) for file in found}
        self._failed = {file: at for file, at in self._failed.items() if file in self._waiting}
        return [
            file
            for file, since in self._waiting.items()
            if now - since >= self.every and now - self._failed.get(file, -math.inf) >= COMPLETION_SECONDS
        ]

    def _read(self, file: File) -> Capture | None:
        """Read a file; none if it may still be completed."""
        image, version = file
        path = self.folder / image
        id = identity(self.name, image, version)
        try:
            picture = self.prepare(read_image(path))
        except BadImage as problem:
            if not path.exists():
                return None
            if file not in self._failed and not self.once:
                self._failed[file] = time.monotonic()
                return None
            return Capture(as_text(image), id, None, problem.reason, path, version)
        try:
            unchanged = Version.of(path.stat()) == version
        except OSError:  # it has just been moved or removed
            return None
        # what was written meanwhile is not answered for as it was
        return Capture(as_text(image), id, picture, "", path, version) if unchanged else None
