"""The server as its own process: many clients at once, slow and hostile ones, and one that is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from fairshot.teaching import Store
from support.servers import CERTIFICATES, Served, png
from support.stores import drawings, network, store_spec


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a store of photos."""
    folder = tmp_path_factory.mktemp("photos") / "store"
    Store.create(folder, store_spec(network(channels=3), ["ant", "bee", "cow"])).close()
    started = Served.start(folder)
    try:
        yield started.wait()
    finally:
        started.stop()


def test_many_clients_at_once_lose_nothing(served: Served) -> None:
    with Store(served.folder) as store:
        before = set(store.snapshot().names)

    def teach(number: int) -> int:
        photos = [("photos", ("x.png", png(image))) for image in drawings(f"load {number}", 3, 3)]
        sent = httpx.post(
            f"{served.url}/api/teach",
            data={"name": f"load {number}"},
            files=photos,
            timeout=60,
            verify=CERTIFICATES,
        )
        return sent.status_code

    def predict(number: int) -> int:
        image = png(drawings(f"load {number % 8}", 5, 3)[4])
        sent = httpx.post(
            f"{served.url}/api/predict", files={"images": ("x.png", image)}, timeout=60, verify=CERTIFICATES
        )
        return sent.status_code

    with ThreadPoolExecutor(12) as clients:
        teachings = [clients.submit(teach, number) for number in range(16)]
        predictions = [clients.submit(predict, number) for number in range(64)]
        statuses = [each.result() for each in (*teachings, *predictions)]
    assert statuses == [200] * 80
    with Store(served.folder) as store:
        assert set(store.snapshot().names) - before == {f"load {number}" for number in range(16)}
        assert {info.photos for info in store.classes() if info.name.startswith("load")} == {3}
    metrics = httpx.get(f"{served.url}/api/metrics", timeout=60, verify=CERTIFICATES).text
    batches, images = (float(_metric(metrics, f"fairshot_batch_images_{part}")) for part in ("count", "sum"))
    assert images >= 64
    assert batches < images  # some were answered together


def _metric(text: str, name: str) -> str:
    return next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} "))


def test_slow_and_silent_clients_block_nobody(served: Served) -> None:
    begun = (
        b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    )
    sockets = [served.connect() for _ in range(60)]
    try:
        for index, each in enumerate(sockets):
            each.sendall([b"", b"POST /api/pre", begun][index % 3])
        for _ in range(5):
            image = png(drawings("somebody", 1, 3)[0])
            answer = httpx.post(
                f"{served.url}/api/predict",
                files={"images": ("x.png", image)},
                timeout=60,
                verify=CERTIFICATES,
            )
            assert answer.status_code == 200
    finally:
        for each in sockets:
            each.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [(b"Host: [\r\n", 421), (b"Host: [::1\r\n", 421), (b"Host: localhost\r\nOrigin: http://[\r\n", 403)],
)
def test_headers_that_are_no_addresses_are_refused(served: Served, headers: bytes, status: int) -> None:
    with served.connect() as client:
        client.sendall(b"POST /api/undo HTTP/1.1\r\nContent-Length: 0\r\n" + headers + b"\r\n")
        assert client.recv(100).split()[1] == str(status).encode()


def test_a_killed_server_loses_nothing_that_was_taught(served: Served) -> None:
    """The last test here, as the server is gone after it."""
    names = [f"class {number}" for number in range(3)]
    for name in names:
        photos = [("photos", ("x.png", png(image))) for image in drawings(name, 2, 3)]
        sent = httpx.post(
            f"{served.url}/api/teach", data={"name": name}, files=photos, timeout=60, verify=CERTIFICATES
        )
        assert sent.status_code == 200
    served.process.send_signal(signal.SIGKILL)
    served.process.wait(60)
    with Store(served.folder) as store:
        assert set(names) < set(store.snapshot().names)
