"""The server as its own process: many clients at once, slow and hostile ones, and people at the page."""

from __future__ import annotations

import io
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from fairshot.teaching import Store
from fairshot.teaching.creation import StoreSpec, create_store
from support.stores import base_classes, drawings, network

pytest.importorskip("gradio", reason="the extra serve is not installed")

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",  # a camera that films a test picture
    "--use-fake-ui-for-media-stream",
]


@dataclass
class Served:
    """A running server and its store."""

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
                if httpx.get(f"{self.url}/api/health").status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.1)
        raise TimeoutError("the server did not come up")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.url.rsplit(":", 1)[1])), timeout=30)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    """Serve a store of drawings and one of photos, started side by side."""
    started = {}
    for kind, channels in (("drawings", 1), ("photos", 3)):
        net = network(channels=channels, drawings=kind == "drawings")
        base = base_classes(["ant", "bee", "cow"], net)
        folder = tmp_path_factory.mktemp(kind) / "store"
        create_store(folder, StoreSpec(net, base, gamma=0.3)).close()
        started[kind] = Served.start(folder)
    try:
        yield {kind: served.wait() for kind, served in started.items()}
    finally:
        for served in started.values():
            served.stop()


def png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(file, "PNG")
    return file.getvalue()


def test_many_clients_at_once_lose_nothing(servers: dict[str, Served]) -> None:
    served = servers["photos"]
    with Store(served.folder) as store:
        before = set(store.snapshot().names)

    def teach(number: int) -> int:
        photos = [("photos", ("x.png", png(image))) for image in drawings(f"load {number}", 3, 3)]
        sent = httpx.post(
            f"{served.url}/api/teach", data={"name": f"load {number}"}, files=photos, timeout=60
        )
        return sent.status_code

    def predict(number: int) -> int:
        image = png(drawings(f"load {number % 8}", 5, 3)[4])
        sent = httpx.post(f"{served.url}/api/predict", files={"images": ("x.png", image)}, timeout=60)
        return sent.status_code

    with ThreadPoolExecutor(12) as clients:
        lessons = [clients.submit(teach, number) for number in range(16)]
        questions = [clients.submit(predict, number) for number in range(64)]
        statuses = [each.result() for each in (*lessons, *questions)]
    assert statuses == [200] * 80
    with Store(served.folder) as store:
        assert set(store.snapshot().names) - before == {f"load {number}" for number in range(16)}
        assert {info.photos for info in store.classes() if info.name.startswith("load")} == {3}
    metrics = httpx.get(f"{served.url}/api/metrics").text
    batches, images = (float(_metric(metrics, f"fairshot_batch_images_{part}")) for part in ("count", "sum"))
    assert images >= 64
    assert batches < images  # some were answered together


def _metric(text: str, name: str) -> str:
    return next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} "))


def test_slow_and_silent_clients_block_nobody(servers: dict[str, Served]) -> None:
    served = servers["photos"]
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
            answer = httpx.post(f"{served.url}/api/predict", files={"images": ("x.png", image)}, timeout=20)
            assert answer.status_code == 200
    finally:
        for each in sockets:
            each.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [(b"Host: [\r\n", 421), (b"Host: [::1\r\n", 421), (b"Host: localhost\r\nOrigin: http://[\r\n", 403)],
)
def test_headers_that_are_no_addresses_are_refused(
    servers: dict[str, Served], headers: bytes, status: int
) -> None:
    with servers["photos"].connect() as client:
        client.sendall(b"POST /api/undo HTTP/1.1\r\nContent-Length: 0\r\n" + headers + b"\r\n")
        assert client.recv(100).split()[1] == str(status).encode()


def test_a_killed_server_loses_no_lesson(tmp_path: Path, servers: dict[str, Served]) -> None:
    del servers  # only so that they start first
    folder = tmp_path / "store"
    net = network(channels=3, drawings=False)
    create_store(folder, StoreSpec(net, base_classes(["ant"], net))).close()
    served = Served.start(folder).wait()
    for number in range(3):
        photos = [("photos", ("x.png", png(image))) for image in drawings(f"class {number}", 2, 3)]
        httpx.post(
            f"{served.url}/api/teach", data={"name": f"class {number}"}, files=photos, timeout=60
        ).raise_for_status()
    served.process.send_signal(signal.SIGKILL)
    served.process.wait(20)
    with Store(folder) as store:
        assert store.snapshot().names == ["ant", "class 0", "class 1", "class 2"]


# People at the page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start a real Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        yield opened
        opened.close()


@dataclass
class Visit:
    """A person at the page, and what their browser asked for and complained of."""

    page: Any
    requests: list[str]
    complaints: list[str]

    @classmethod
    def begin(cls, browser: Any, url: str) -> Visit:
        page = browser.new_page(viewport={"width": 1180, "height": 1000})
        page.set_default_timeout(30_000)
        visit = cls(page, [], [])
        page.on("request", lambda request: visit.requests.append(request.url))
        page.on(
            "console", lambda entry: visit.complaints.append(entry.text) if entry.type == "error" else None
        )
        page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        page.goto(url)
        page.get_by_role("tab", name="Teach").wait_for()
        return visit

    def open(self, tab: str) -> None:
        self.page.get_by_role("tab", name=tab).click()

    def shows(self, place: str, text: str) -> None:
        """Wait until a part of the page shows some text."""
        self.page.locator(place).filter(has_text=text).wait_for()

    def end(self, url: str) -> None:
        """Nothing was loaded from elsewhere, and nothing went wrong."""
        foreign = [each for each in self.requests if not each.startswith((url, "data:", "blob:"))]
        self.page.close()
        assert foreign == []
        assert self.complaints == []


def draw_ring(page: Any, place: str, radius: float) -> None:
    """Draw a circle with the mouse."""
    box = page.locator(f"{place} canvas").bounding_box()
    points = [
        (
            box["x"] + box["width"] * (0.5 + radius * math.cos(step * math.pi / 10)),
            box["y"] + box["height"] * (0.5 + radius * math.sin(step * math.pi / 10)),
        )
        for step in range(21)
    ]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point)
    page.mouse.up()


def test_a_person_draws_teaches_asks_and_undoes(servers: dict[str, Served], browser: Any) -> None:
    served = servers["drawings"]
    visit = Visit.begin(browser, served.url)
    page = visit.page
    visit.open("Teach")
    page.locator("#name textarea, #name input").first.fill("ring")
    page.locator("#add").click()
    page.get_by_text("Draw something first").wait_for()
    for number in range(5):
        draw_ring(page, "#example", 0.25 + 0.03 * number)
        page.locator("#add").click()
        page.locator("#drawings button.thumbnail-item, #drawings .thumbnail-item").nth(number).wait_for()
    page.locator("#dry-run").click()
    visit.shows("#lesson", "What it would do")
    with Store(served.folder) as store:
        assert "ring" not in store.snapshot().names
    page.locator("#teach").click()
    visit.shows("#lesson", "ring: 5 photos, closest to")
    visit.open("Ask")
    draw_ring(page, "#ask", 0.3)
    visit.shows("#answer .fs-verdict", "ring")
    assert page.locator("#answer .fs-bar").count() == 4
    visit.open("Classes")
    card = page.locator(".fs-class").filter(has_text="ring")
    card.filter(has_text="taught, 5 photos").wait_for()
    assert card.locator("img").count() == 5
    visit.shows("#balance", "taught classes")
    visit.open("History")
    visit.shows("#history", "teach ring, 5 photos")
    page.locator("#undo-history").click()
    visit.shows("#history", "undo of 2: teach ring, 5 photos")
    visit.open("Classes")
    page.locator(".fs-class").filter(has_text="ring").wait_for(state="detached")
    visit.end(served.url)
    with Store(served.folder) as store:
        assert store.snapshot().names == ["ant", "bee", "cow"]


def test_a_person_uploads_photos_and_names_are_only_text(
    servers: dict[str, Served], browser: Any, tmp_path: Path
) -> None:
    served = servers["photos"]
    name = "<img src=x onerror=alert(1)> & Söhne"
    paths = []
    for number, image in enumerate(drawings("uploaded", 6, 3)):
        paths.append(tmp_path / f"{number}.png")
        paths[-1].write_bytes(png(image.repeat(12, 0).repeat(12, 1)))
    visit = Visit.begin(browser, served.url)
    page = visit.page
    visit.open("Teach")
    page.locator("#name textarea, #name input").first.fill(name)
    page.locator("#photos input[type=file]").first.set_input_files(paths[:5])
    page.locator("#photos .thumbnail-item").nth(4).wait_for()
    page.locator("#teach").click()
    visit.shows("#lesson", f"{name}: 5 photos")
    visit.open("Ask")
    page.locator("#ask input[type=file]").first.set_input_files(paths[5])
    visit.shows("#answer .fs-verdict", name)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    page.reload()
    page.locator("#ask input[type=file]").first.set_input_files(tmp_path / "broken.png")
    visit.shows("#answer .fs-warning", "broken.png: this file cannot be read as an image")
    visit.open("Teach")
    page.locator("#undo").click()
    visit.shows("#lesson", "Undone: teach")
    page.locator("#name textarea, #name input").first.fill("../../etc")
    page.locator("#photos input[type=file]").first.set_input_files(paths[:2])
    page.locator("#photos .thumbnail-item").nth(1).wait_for()
    page.locator("#teach").click()
    visit.shows("#lesson", "looks like the path of a file")
    visit.end(served.url)


PLACES = """places => places.flatMap(place => [...document.querySelectorAll(place)]
  .filter(each => each.offsetParent).map(each => each.getBoundingClientRect().toJSON()))"""


@pytest.mark.parametrize("width", [1180, 390])
def test_nothing_covers_or_crushes_a_picture_or_leaves_its_frame(
    servers: dict[str, Served], browser: Any, tmp_path: Path, width: int
) -> None:
    paths = []
    for number, image in enumerate(drawings("tall", 7, 3)):
        paths.append(tmp_path / f"{number}.png")
        paths[-1].write_bytes(png(image.repeat(20, 0).repeat(12, 1)))
    visit = Visit.begin(browser, servers["photos"].url)
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("#ask input[type=file]").first.set_input_files(paths[0])
    page.locator("#answer .fs-bar").first.wait_for()
    (label,) = page.evaluate(PLACES, ["#ask [data-testid=block-label]"])
    (photo,) = page.evaluate(PLACES, ["#ask .image-frame img"])
    assert photo["top"] + 0.5 >= label["bottom"]
    assert all(bar["width"] > 20 for bar in page.evaluate(PLACES, ["#answer .fs-track"]))
    visit.open("Teach")
    page.locator("#name textarea, #name input").first.fill("a rather long name for a class of photos")
    page.locator("#photos input[type=file]").first.set_input_files(paths)
    page.locator("#photos .thumbnail-item").nth(6).wait_for()
    page.locator("#dry-run").click()
    visit.shows("#lesson", "Closest classes")
    (frame,) = page.evaluate(PLACES, ["#photos"])
    over = page.evaluate(PLACES, ["#photos [data-testid=block-label]", "#photos .icon-button-wrapper"])
    for thumbnail in page.evaluate(PLACES, ["#photos .thumbnail-item"]):
        assert frame["left"] <= thumbnail["left"] < thumbnail["right"] <= frame["right"]
        assert thumbnail["width"] == pytest.approx(thumbnail["height"], abs=1)
        assert all(thumbnail["top"] + 0.5 >= each["bottom"] for each in over)
    (card,) = page.evaluate(PLACES, ["#lesson .fs-card"])
    pictures = page.evaluate(PLACES, ["#lesson .fs-pictures img"])
    assert pictures
    assert all((each["width"], each["height"]) == (40, 40) for each in pictures)
    assert all(each["right"] <= card["right"] for each in page.evaluate(PLACES, ["#lesson .fs-row *"]))
    visit.open("Classes")
    (card,) = page.evaluate(PLACES, ["#balance .fs-card"])
    assert all(each["right"] <= card["right"] for each in page.evaluate(PLACES, ["#balance .fs-row *"]))
    visit.end(servers["photos"].url)


def test_a_person_holds_something_before_the_camera(servers: dict[str, Served], browser: Any) -> None:
    served = servers["photos"]
    visit = Visit.begin(browser, served.url)
    page = visit.page
    page.locator("#ask").get_by_label("Capture from camera").click()
    page.get_by_text("Click to Access Webcam").click()
    page.wait_for_function("document.querySelector('#ask video')?.currentTime > 0.2")  # they see themselves
    page.locator("#ask").get_by_label("capture photo").click()
    page.locator("#answer .fs-bar").first.wait_for()
    visit.end(served.url)


def test_the_description_page_works_without_a_network(servers: dict[str, Served], browser: Any) -> None:
    served = servers["photos"]
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{served.url}/docs")
    page.get_by_text("/api/predict").first.wait_for()
    page.close()
    assert [url for url in requests if not url.startswith((served.url, "data:"))] == []
