"""Attack a server with the worst images that are allowed, and measure how long an honest client waits.

    python scripts/attack_server.py

A hundred clients send requests of twenty images each, without a pause. The server is a process of its own,
with a store of photos and an untrained network, as in tests/security/test_memory.py, which asserts all but
the seconds. Attackers are a process of their own, which shares the cores with the server; the honest client
has another address (127.0.0.2) than theirs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
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


def attack(url: str, images: list[bytes], attackers: int) -> None:
    """Send requests of twenty images, from a process of its own, until it is killed."""

    def send(content: bytes) -> None:
        while True:
            with suppress(httpx.HTTPError):
                httpx.post(f"{url}/api/predict", files=[("images", ("x", content))] * 20, timeout=10)

    threads = [threading.Thread(target=send, args=[images[n % len(images)]]) for n in range(attackers)]
    for thread in threads:
        thread.start()


def honest_client() -> httpx.Client:
    """Return a client whose address is not that of the attackers."""
    return httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=90)


def ask(url: str) -> tuple[int, float]:
    """Ask about a photo; return the status, 0 if the connection was closed, and the seconds it took."""
    image, status = {"images": ("x.jpg", photo(1200, 900))}, 0
    with honest_client() as client:
        began = time.perf_counter()
        with suppress(httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            status = client.post(f"{url}/api/predict", files=image).status_code
    return status, round(time.perf_counter() - began, 2)


def requests_by_status(url: str) -> dict[str, int]:
    """Return how many questions the server has answered, as it counts them itself."""
    with honest_client() as client:
        counters = client.get(f"{url}/api/metrics").text
    counted = re.findall(r'fairshot_requests_total\{path="/api/predict",status="(\d+)"\} ([\d.]+)', counters)
    return {status: int(float(count)) for status, count in counted}


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
    with tempfile.TemporaryDirectory() as folder:
        Store.create(Path(folder) / "store", store_spec(network, ["ant", "bee"])).close()
        served = Served.start(Path(folder) / "store").wait()
        try:
            alone = [ask(served.url) for _ in range(3)][-1]
            attack_process = multiprocessing.get_context("spawn").Process(
                target=attack, args=(served.url, worst, options.attackers), daemon=True
            )
            attack_process.start()
            time.sleep(10)
            load_before = os.getloadavg()[0]
            answers = [ask(served.url) for _ in range(options.requests)]
            by_status = requests_by_status(served.url)
            attack_process.kill()
        finally:
            served.process.kill()
            served.process.wait()
    seconds = sorted(taken for status, taken in answers if status == 200)
    measured = {
        "cores": os.cpu_count(),
        "load_average": round(load_before, 1),
        "attackers": options.attackers,
        "requests_by_status": by_status,  # of all clients
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
