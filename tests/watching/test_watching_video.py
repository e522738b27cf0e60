"""Cameras, streams and videos: only frames that have changed are asked about."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event

import cv2
import numpy as np
import pytest
from PIL import Image

from fairshot.benchmarks.pictures import Bytes
from fairshot.teaching import Store
from fairshot.watching.change import cells, change
from fairshot.watching.errors import UnreadableVideo
from fairshot.watching.journal import Journal
from fairshot.watching.video import LiveVideo, VideoFile
from fairshot.watching.watch import preparation
from support.stores import drawings
from support.watched import wait_for, watching

SIDE = 64


def frame(word: str) -> Bytes:
    """Return a picture of a taught word as a camera shows it."""
    return drawings(word, 1, 1)[0].repeat(4, 0).repeat(4, 1).repeat(3, 2)


def test_the_change_is_the_share_of_cells_that_differ() -> None:
    still = np.full((480, 640, 3), 100, np.uint8)
    noisy = (still + np.random.default_rng(0).integers(-20, 20, still.shape)).astype(np.uint8)
    brighter = still + np.uint8(20)
    assert change(cells(still), cells(noisy)) == change(cells(still), cells(brighter)) == 0
    bird = still.copy()
    bird[:60, :80] = 200  # an eighth of the height and width: 16 of 1024 cells
    assert change(cells(still), cells(bird)) == pytest.approx(16 / 1024)
    assert change(cells(still), cells(255 - still)) == 1


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a video of 3 s: yak, emu, and yak again."""
    path = tmp_path_factory.mktemp("video") / "video.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (SIDE, SIDE))
    for word in ("yak", "emu", "yak"):
        for _ in range(10):
            writer.write(frame(word))
    writer.release()
    return path


def test_of_a_video_changed_frames_are_answered(shop: Store, journal: Journal, video: Path) -> None:
    for least, expected in (
        (0.01, ["0.00", "1.00", "2.00"]),
        (0.0, ["0.00", "0.50", "1.00", "1.50", "2.00", "2.50"]),
    ):
        source = VideoFile(video, 0.5, least, preparation(shop))
        with watching(shop, source, journal) as running:
            wait_for(lambda: len(running.records) == len(expected))  # noqa: B023 - called at once
        assert running.images == [f"frame at {at} s" for at in expected]
    source = VideoFile(video, 1.0, 0.01, preparation(shop))
    with watching(shop, source, journal) as running:
        wait_for(lambda: len(running.records) == 3)
    assert [record["answer"] for record in running.records] == ["yak", "emu", "yak"]


def test_what_is_no_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.mp4").write_bytes(b"no video" * 100)
    with pytest.raises(UnreadableVideo):
        list(VideoFile(tmp_path / "no.mp4").batches(Event()))


class _Camera(BaseHTTPRequestHandler):
    """A stream of JPEGs, as cameras for the network give it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        camera = self.server
        assert isinstance(camera, Camera)
        while not camera.ended:
            file = io.BytesIO()
            Image.fromarray(camera.picture).save(file, "JPEG", quality=95)
            head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {file.tell()}\r\n\r\n"
            try:
                self.wfile.write(head.encode() + file.getvalue() + b"\r\n")
            except OSError:
                return
            time.sleep(0.02)

    def log_message(self, *_: object) -> None:
        pass


class Camera(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    ended = False
    picture = frame("yak")


@contextmanager
def camera(port: int = 0) -> Iterator[Camera]:
    server = Camera(("127.0.0.1", port), _Camera)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.ended = True
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_stream_may_end_and_come_back(shop: Store, journal: Journal) -> None:
    with camera() as first:
        port = first.server_address[1]
        source = LiveVideo(
            f"http://user:secret@127.0.0.1:{port}/video?key=secret", 0.05, 0.02, preparation(shop)
        )
        assert source.name == f"http://127.0.0.1:{port}/video"
        running_watch = watching(shop, source, journal)
        running = running_watch.__enter__()
        try:
            wait_for(lambda: len(running.records) == 1)
            first.picture = frame("emu")
            wait_for(lambda: len(running.records) == 2)
        except BaseException:
            running.stop.set()
            raise
    try:
        wait_for(lambda: any("gives no frames" in line for line in running.said.lines))
        with camera(port):
            wait_for(lambda: len(running.records) == 3)
            running_watch.__exit__(None, None, None)
    finally:
        running.stop.set()
    assert [record["answer"] for record in running.records] == ["yak", "emu", "yak"]
    assert any("gives frames again" in line for line in running.said.lines)
    assert "secret" not in str(running.records) + str(running.said.lines)


def test_a_camera_that_is_not_there_is_waited_for() -> None:
    source, stop = LiveVideo(4711, 0.05), Event()
    batches = source.batches(stop)
    threading.Timer(0.5, stop.set).start()
    assert list(batches) == []
