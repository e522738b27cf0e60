"""A live server under the worst images that are allowed: memory is bounded, and others are served soon."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from support.hostile_images import flat, photo, progressive
from support.stores import store_spec

pytest.importorskip("fastapi", reason="the extra serve is not installed")
import httpx

from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.flips import FlipViews
from fairshot.teaching import Store
from fairshot.teaching.network import Network
from support.servers import CERTIFICATES, Served, decoders

MOST_BYTES = 2_500_000_000
SECONDS, MOST_SECONDS = 5.0, 60.0  # of the attack
ANSWERED = 4  # times, at least, that an honest client is answered meanwhile
ASKED = 20  # times, at most: on a machine that others keep busy too, it is asked to come again now and then
LONGEST_WAIT = 90.0  # seconds; without turns by cost, an honest client waits for all images of all attackers
ATTACKERS = 100
BUSY = 2  # programs per processor that wait for it: two tests at once are none of these
SIDE, SHORT_SIDE = 32, 512  # of the input of the network, and of the photos that are kept in memory for it


class Load(NamedTuple):
    """What was measured while a server was attacked."""

    most_bytes: int  # of memory, of the server and its decoders
    statuses: list[int]  # of an honest client
    attacks: set[int]  # statuses that attackers got
    busy: bool  # whether other programs kept the machine busy too


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    """Attack a server for some seconds by a hundred requests at once, each of twenty images."""
    folder = tmp_path_factory.mktemp("attacked") / "store"
    with torch.random.fork_rng(devices=[]):
        embedder = Embedder(ModelSettings(backbone="tiny", small_stem=False, size=SIDE), 3, 24)
    Store.create(
        folder, store_spec(Network(embedder, FlipViews(flip=True), short_side=SHORT_SIDE), ["ant", "bee"])
    ).close()
    served = Served.start(folder).wait()
    try:
        yield _attack(served)
    finally:
        served.process.kill()
        served.process.wait()


def _attack(served: Served) -> Load:
    worst = [
        flat(12_000, 600, "PNG"),
        flat(8000, 5000, "WEBP", lossless=True, method=0),
        flat(8000, 5000, "PNG", "RGBA"),
        progressive(64, 8000, 5000),
        flat(12_000, 600, "PNG") + bytes(900_000),  # files of less than 1 MB stay in memory as they arrive
    ]
    ended, attacks = threading.Event(), set()

    address = f"{served.url}/api/predict"
    forms = [httpx.Request("POST", address, files=[("images", ("x", file))] * 20) for file in worst]
    for form in forms:
        form.read()  # written once: the attack is on the server

    def attack(number: int) -> None:
        form = forms[number % len(forms)]
        while not ended.is_set():
            try:
                sent = httpx.post(
                    address, content=form.content, headers=form.headers, timeout=10, verify=CERTIFICATES
                )
                attacks.add(sent.status_code)
                time.sleep(0.2)
            except httpx.HTTPError:
                continue

    for number in range(2):  # both decoders start when they are first needed
        _ask(served, number)
    most, statuses = 0, []
    busy = os.getloadavg()[0] > BUSY * (os.cpu_count() or 1)
    end = time.monotonic() + SECONDS
    latest = end + MOST_SECONDS - SECONDS

    def honest() -> None:
        for number in range(ASKED):
            if ended.is_set() or (statuses.count(200) >= ANSWERED and time.monotonic() > end):
                return
            statuses.append(_ask(served, number))
            time.sleep(0.1)

    with ThreadPoolExecutor(ATTACKERS + 1) as clients:
        for number in range(ATTACKERS):
            clients.submit(attack, number)
        asked = clients.submit(honest)
        while not asked.done() and most < 2 * MOST_BYTES and time.monotonic() < latest:
            most = max(most, _memory(served.process.pid))
            time.sleep(0.02)
        ended.set()
        served.process.kill()  # otherwise the clients would wait for their answers
    asked.result()
    return Load(most, statuses, attacks, busy)


def _ask(served: Served, number: int) -> int:
    """Ask about a photo as an honest client does, and return the status; 0 if it was too slow to send it."""
    image = {"images": ("x.jpg", photo(1200, 900 + number))}
    try:
        return httpx.post(
            f"{served.url}/api/predict", files=image, timeout=LONGEST_WAIT, verify=CERTIFICATES
        ).status_code
    except (httpx.NetworkError, httpx.RemoteProtocolError):
        return 0


def _memory(server: int) -> int:
    """Return the resident bytes of a server and its decoders."""
    total = 0
    for process in (server, *decoders(server)):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:  # it has just ended
            continue
        total += int(status.split("VmRSS:")[1].split()[0]) * 1024 if "VmRSS:" in status else 0
    return total


def test_memory_is_bounded(load: Load) -> None:
    assert 500_000_000 < load.most_bytes < MOST_BYTES


def test_an_honest_client_is_answered_meanwhile(load: Load) -> None:
    if load.busy and load.statuses.count(200) < ANSWERED:
        pytest.skip("other programs keep this machine so busy that nobody would be served in time")
    assert load.statuses.count(200) >= ANSWERED
    assert set(load.statuses) <= {200, 503, 0}
    assert load.attacks <= {200, 422, 503}
