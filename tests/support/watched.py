"""What tests of watching share: pictures that come, a watch in a thread, an HTTP server that may fail."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image

from fairshot.progress import Reporter
from fairshot.teaching import Store
from fairshot.watching.capture import Source
from fairshot.watching.journal import Journal
from fairshot.watching.receivers import Receiver, Record
from fairshot.watching.watch import watch
from support.stores import drawings

LONGEST_WAIT = 120.0  # seconds; a busy machine is slow, and a test that waits for less is not to be trusted


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread or process does."""
    until = time.monotonic() + LONGEST_WAIT
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def put(folder: Path, name: str, word: str = "yak", index: int = 0) -> Path:
    """Put a picture file into a folder, whole at once."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.tmp")
    Image.fromarray(drawings(word, index + 1)[index][..., 0]).save(hidden, "PNG")
    os.replace(hidden, path)
    return path


class Said(Reporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: object) -> None:
        self.lines.append(str(text))


@dataclass
class Watching:
    """A watch under way in a thread."""

    records: list[dict[str, Any]] = field(default_factory=list)
    said: Said = field(default_factory=Said)
    stop: threading.Event = field(default_factory=threading.Event)
    problem: BaseException | None = None

    def keep(self, record: Record) -> None:
        """Keep a record as it is printed."""
        self.records.append(json.loads(json.dumps(record)))

    @property
    def images(self) -> list[str]:
        return [record["image"] for record in self.records]


@contextmanager
def watching(
    store: Store, source: Source, journal: Journal, receivers: list[Receiver] | None = None
) -> Iterator[Watching]:
    """Watch until the end of the block."""
    running = Watching()
    if hasattr(source, "reporter"):
        source.reporter = running.said

    def run() -> None:
        try:
            watch(store, source, journal, receivers or [], running.keep, running.stop, running.said)
        except BaseException as problem:
            running.problem = problem

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield running
    finally:
        running.stop.set()
        thread.join(LONGEST_WAIT)
        assert not thread.is_alive()
    if running.problem is not None:
        raise running.problem


class HookServer(ThreadingHTTPServer):
    """Keeps the bodies of requests, and answers with the statuses in `statuses`, then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        self.statuses: list[int] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/api/webhook/secret"


class _Handler(BaseHTTPRequestHandler):
    server: HookServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == 200:
            self.server.bodies.append(body)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hook_server() -> Iterator[HookServer]:
    server = HookServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
