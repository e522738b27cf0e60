"""Attack a server with the worst images that are allowed, and measure how long an honest client waits.

    python scripts/attack_server.py

A hundred clients send requests of twenty images each, without a pause. The server is a process of its own,
with a store of photos and an untrained network, as in tests/security/test_memory.py, which asserts all but
the seconds. All clients run in this process, so that the honest one also waits for the others to be sent.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.flips import FlipViews
from fairshot.teaching import Store
from fairshot.teaching.network import Network
from support.hostile_images import flat, photo, progressive
from support.servers import Served
from support.stores import store_spec


def attack(url: str, content: bytes, ended: threading.Event) -> None:
    """Send requests of twenty images until it is over."""
    while not ended.is_set():
        with suppress(httpx.HTTPError):
            httpx.post(f"{url}/api/predict", files=[("images", ("x", content))] * 20, timeout=10)


def ask(url: str) -> tuple[int, float]:
    """Ask about a photo; return the status, 0 if the connection was closed, and the seconds it took."""
    image, status = {"images": ("x.jpg", photo(1200, 900))}, 0
    began = time.perf_counter()
    with suppress(httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
        status = httpx.post(f"{url}/api/predict", files=image, timeout=90).status_code
    return status, round(time.perf_counter() - began, 2)


def main() -> None:
    """Print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attackers", type=int, default=100)
    parser.add_argument("--requests", type=int, default=20, help="of the honest client, one after the other")
    options = parser.parse_args()
    torch.manual_seed(0)
    network = Network(
        Embedder(ModelSettings(backbone="tiny", small_stem=False, size=32), 3, 24),
        FlipViews(flip=True),
        short_side=512,
    )
    worst = [
        flat(12_000, 600, "PNG"),
        flat(8000, 5000, "WEBP", lossless=True, method=0),
        flat(8000, 5000, "PNG", "RGBA"),
        progressive(64, 8000, 5000),
    ]
    ended = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        Store.create(Path(folder) / "store", store_spec(network, ["ant", "bee"])).close()
        served = Served.start(Path(folder) / "store").wait()
        try:
            alone = [ask(served.url) for _ in range(3)][-1]
            for number in range(options.attackers):
                content = worst[number % len(worst)]
                threading.Thread(target=attack, args=(served.url, content, ended), daemon=True).start()
            time.sleep(3)
            load_before = os.getloadavg()[0]
            answers = [ask(served.url) for _ in range(options.requests)]
        finally:
            ended.set()
            served.process.kill()
            served.process.wait()
    seconds = sorted(taken for status, taken in answers if status == 200)
    measured = {
        "cores": os.cpu_count(),
        "load_average": round(load_before, 1),
        "attackers": options.attackers,
        "alone_seconds": alone[1],
        "answered": len(seconds),
        "told_to_come_again": sum(status == 503 for status, _ in answers),
        "closed": sum(status == 0 for status, _ in answers),
        "median_seconds": seconds[len(seconds) // 2] if seconds else None,
        "longest_seconds": max(taken for _, taken in answers),
    }
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
