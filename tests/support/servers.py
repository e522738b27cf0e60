"""Servers for tests: in a thread of this process, or as a process of their own."""

from __future__ import annotations

import io
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from fairshot.server.serving import build_server, listen
from fairshot.teaching import Store

CERTIFICATES = ssl.create_default_context()  # which httpx otherwise reads anew for each request


@dataclass
class Served:
    """A server as its own process, and its store."""

    folder: Path
    process: subprocess.Popen[str]
    url: str

    @classmethod
    def start(cls, folder: Path) -> Served:
        program = "from fairshot.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", str(folder), "--port", "0"],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return cls(folder, process, "")

    def wait(self) -> Served:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("page http://127.0.0.1:"), line + self.process.stdout.read()
        self.url = line.split()[1].rstrip("/")
        for _ in range(600):
            try:
                if httpx.get(f"{self.url}/api/health", timeout=60, verify=CERTIFICATES).status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.1)
        raise TimeoutError("the server did not come up")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.url.rsplit(":", 1)[1])), timeout=60)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def serving(store: Store, token: str | None = None) -> Iterator[int]:
    """Serve a store on a port of this machine, in a thread."""
    server, listener = build_server(store, token), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def decoders(pid: int) -> list[int]:
    """Return the processes that decode images for a server."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [
        child
        for child in children
        if b"fairshot.server.decode_worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(file, "PNG")
    return file.getvalue()
