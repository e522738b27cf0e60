"""Cameras, streams and video files, by OpenCV: frames that differ from the one asked about last."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import cv2
import numpy as np

from fairshot.benchmarks.pictures import Bytes
from fairshot.progress import SILENT, Reporter
from fairshot.watching.backoff import Backoff
from fairshot.watching.capture import Capture, Captures, Prepare, as_it_is, identity
from fairshot.watching.change import Cells, cells, change
from fairshot.watching.errors import UnreadableVideo

TIMEOUT = 10_000  # milliseconds to open a stream, and without a frame of it
CHANGE = 0.01  # share of cells that must differ for a frame to be asked about


@dataclass
class _Changed:
    """Passes on frames that differ enough from the one passed on last."""

    least: float
    _last: Cells | None = None

    def __call__(self, frame: Bytes) -> bool:
        now = cells(frame)
        if self._last is not None and change(self._last, now) < self.least:
            return False
        self._last = now
        return True


@dataclass
class VideoFile:
    """A video file, of which a frame is looked at every so many seconds of its own time."""

    path: Path
    every: float = 1.0
    change: float = CHANGE
    prepare: Prepare = as_it_is

    @property
    def name(self) -> str:
        """The file."""
        return str(self.path)

    def batches(self, stop: Event) -> Captures:
        """Give changed frames up to the end of the file."""
        video = cv2.VideoCapture(str(self.path))
        try:
            if not video.isOpened():
                raise UnreadableVideo(self.path)
            rate, changed, due, number = video.get(cv2.CAP_PROP_FPS) or 25.0, _Changed(self.change), 0.0, 0
            while not stop.is_set() and video.grab():
                at, number = number / rate, number + 1
                if at < due:
                    continue
                due = at + self.every
                frame = _retrieved(video)
                if frame is not None and changed(frame):
                    yield [Capture(f"frame at {at:.2f} s", identity(self.name, at), self.prepare(frame))]
            if not number and not stop.is_set():
                raise UnreadableVideo(self.path)
        finally:
            video.release()


@dataclass
class LiveVideo:
    """A camera of this machine, by its number, or a stream, by its address: RTSP, or JPEGs by HTTP.

    A thread reads all frames and keeps the latest alone, so that answers never lag behind what is to be seen.
    When frames stop coming the camera or stream is opened again, after ever longer pauses.
    """

    device: int | str
    every: float = 1.0
    change: float = CHANGE
    prepare: Prepare = as_it_is
    reporter: Reporter = SILENT
    _latest: deque[Bytes] = field(init=False, default_factory=lambda: deque(maxlen=1))
    _session: str = field(init=False, default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def name(self) -> str:
        """The camera or the address, without a user name and a password."""
        if isinstance(self.device, int):
            return f"camera {self.device}"
        scheme, _, rest = self.device.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"

    def batches(self, stop: Event) -> Captures:
        """Give changed frames, at most one every so many seconds."""
        ended = Event()
        reader = threading.Thread(target=self._read, args=(ended,), daemon=True, name="frames")
        reader.start()
        changed, number = _Changed(self.change), 0
        try:
            while not stop.is_set():
                if self._latest and changed(frame := self._latest.pop()):
                    number += 1
                    yield [Capture(f"frame {number}", f"{self._session}-{number}", self.prepare(frame))]
                stop.wait(self.every)
        finally:
            ended.set()
            reader.join(1.0)  # a read of a dead stream may take longer, and ends with the process

    def _read(self, ended: Event) -> None:
        away = Backoff(self.reporter, f"{self.name} gives no frames", f"{self.name} gives frames again")
        while not ended.is_set():
            video = self._open()
            try:
                while video.isOpened() and not ended.is_set() and video.grab():
                    frame = _retrieved(video)
                    if frame is not None:
                        away.succeeded()
                        self._latest.append(frame)
            except cv2.error as problem:  # of a frame that cannot be decoded
                self.reporter.say(f"{self.name}: {problem}")
            finally:
                video.release()
            if not ended.is_set():
                ended.wait(away.failed("it is not there, or has ended"))

    def _open(self) -> cv2.VideoCapture:
        if isinstance(self.device, int):
            return cv2.VideoCapture(self.device)
        limits = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, TIMEOUT, cv2.CAP_PROP_READ_TIMEOUT_MSEC, TIMEOUT]
        return cv2.VideoCapture(self.device, cv2.CAP_FFMPEG, limits)


def _retrieved(video: cv2.VideoCapture) -> Bytes | None:
    """Return the frame that was grabbed as RGB (H, W, 3)."""
    found, frame = video.retrieve()
    if not found or frame is None:
        return None
    return np.ascontiguousarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), dtype=np.uint8)
