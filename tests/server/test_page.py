"""People at the page: a real browser and real servers."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairshot.teaching import Store
from support.servers import png, serving
from support.stores import drawings, make_store, network, store_spec

BASE = ["ant", "bee", "cow"]
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


@dataclass(frozen=True)
class PageServer:
    """A running server and the folder of its store."""

    folder: Path
    url: str


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, PageServer]]:
    """Serve a store of drawings and one of photos."""
    with ExitStack() as stack:
        started = {}
        for kind, channels in (("drawings", 1), ("photos", 3)):
            net = network(channels=channels, drawings=kind == "drawings")
            folder = tmp_path_factory.mktemp(kind) / "store"
            store = stack.enter_context(Store.create(folder, store_spec(net, BASE)))
            port = stack.enter_context(serving(store))
            started[kind] = PageServer(folder, f"http://127.0.0.1:{port}")
        yield started


@dataclass
class Visit:
    """A person at the page, and what their browser asked for and complained of."""

    page: Any
    requests: list[str]
    complaints: list[str]

    @classmethod
    def begin(cls, browser: Any, url: str, **options: Any) -> Visit:
        page = browser.new_page(viewport={"width": 1180, "height": 1000}, **options)
        page.set_default_timeout(30_000)
        visit = cls(page, [], [])
        page.on("request", lambda request: visit.requests.append(request.url))
        page.on(
            "console", lambda entry: visit.complaints.append(entry.text) if entry.type == "error" else None
        )
        page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        page.goto(url)
        page.locator("#balance .card").wait_for(state="attached")
        return visit

    def open(self, tab: str) -> None:
        self.page.get_by_role("tab", name=tab).click()

    def shows(self, selector: str, text: str) -> None:
        """Wait until a part of the page shows some text."""
        self.page.locator(selector).filter(has_text=text).first.wait_for()

    def end(self, url: str, refused: int = 0) -> None:
        """Nothing was loaded from elsewhere, and nothing went wrong but requests that had to be refused."""
        foreign = [each for each in self.requests if not each.startswith((url, "data:", "blob:"))]
        self.page.close()
        assert foreign == []
        assert sum("status of 422" in each for each in self.complaints) == refused
        assert len(self.complaints) == refused


def ring(box: dict[str, float], radius: float) -> list[tuple[float, float]]:
    """Return points of a circle in the middle of a box."""
    return [
        (
            box["x"] + box["width"] * (0.5 + radius * math.cos(step * math.pi / 10)),
            box["y"] + box["height"] * (0.5 + radius * math.sin(step * math.pi / 10)),
        )
        for step in range(21)
    ]


def draw_ring(page: Any, selector: str, radius: float) -> None:
    """Draw a circle with the mouse."""
    canvas = page.locator(f"{selector} canvas")
    canvas.scroll_into_view_if_needed()
    points = ring(canvas.bounding_box(), radius)
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point)
    page.mouse.up()


def photo_files(folder: Path, word: str, count: int, height: int = 12) -> list[Path]:
    """Write photos that resemble each other."""
    paths = []
    for number, image in enumerate(drawings(word, count, 3)):
        paths.append(folder / f"{number}.png")
        paths[-1].write_bytes(png(image.repeat(height, 0).repeat(12, 1)))
    return paths


def test_a_person_draws_teaches_asks_and_undoes(servers: dict[str, PageServer], browser: Any) -> None:
    served = servers["drawings"]
    visit = Visit.begin(browser, served.url)
    page = visit.page
    visit.open("Teach")
    page.locator("#name").fill("ring")
    page.locator("#examples .add").click()
    visit.shows("#report", "Draw something first")
    for number in range(5):
        draw_ring(page, "#examples", 0.25 + 0.03 * number)
        page.locator("#examples .add").click()
        page.locator("#examples .thumbnail").nth(number).wait_for()
    page.locator("#dry-run").click()
    visit.shows("#report", "What it would do")
    with Store(served.folder) as store:
        assert "ring" not in store.snapshot().names
    page.locator("#teach-class").click()
    visit.shows("#report", "ring: 5 photos, closest to")
    page.locator("#examples .thumbnail").first.wait_for(state="detached")
    visit.open("Ask")
    draw_ring(page, "#question", 0.3)
    visit.shows("#answer .verdict", "ring")
    assert page.locator("#answer .bar").count() == 4
    visit.open("Classes")
    card = page.locator(".class").filter(has_text="ring")
    card.filter(has_text="taught, 5 photos").wait_for()
    card.locator("img").nth(4).wait_for()
    assert card.locator("img").count() == 5
    visit.shows("#balance", "taught classes")
    visit.open("History")
    visit.shows("#events", "teach ring, 5 photos")
    page.locator("#history .undo").click()
    visit.shows("#events", "undo of 2: teach ring, 5 photos")
    visit.open("Classes")
    page.locator(".class").filter(has_text="ring").wait_for(state="detached")
    visit.end(served.url)
    with Store(served.folder) as store:
        assert store.snapshot().names == BASE


def test_a_person_uploads_photos_and_names_are_only_text(
    servers: dict[str, PageServer], browser: Any, tmp_path: Path
) -> None:
    served = servers["photos"]
    name = "<img src=x onerror=alert(1)> & Söhne"
    paths = photo_files(tmp_path, "uploaded", 6)
    visit = Visit.begin(browser, served.url)
    page = visit.page
    visit.open("Teach")
    page.locator("#name").fill(name)
    page.locator("#examples input[type=file]").set_input_files(paths)
    page.locator("#examples .thumbnail").nth(5).click()  # takes it out
    page.locator("#examples .thumbnail").nth(5).wait_for(state="detached")
    page.locator("#teach-class").click()
    visit.shows("#report", f"{name}: 5 photos")
    visit.open("Ask")
    page.locator("#question input[type=file]").set_input_files(paths[5])
    visit.shows("#answer .verdict", name)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    page.locator("#question input[type=file]").set_input_files(tmp_path / "broken.png")
    visit.shows("#answer .warning", "broken.png: this file cannot be read as an image")
    visit.open("Teach")
    page.locator("#teach .undo").click()
    visit.shows("#report", "Undone: teach")
    page.locator("#name").fill("../../etc")
    page.locator("#examples input[type=file]").set_input_files(paths[:2])
    page.locator("#examples .thumbnail").nth(1).wait_for()
    page.locator("#teach-class").click()
    visit.shows("#report .warning", "looks like the path of a file")
    assert page.locator("#examples .thumbnail").count() == 2  # what was given stays, to be changed
    visit.end(served.url, refused=2)


def test_a_person_changes_classes(servers: dict[str, PageServer], browser: Any, tmp_path: Path) -> None:
    served = servers["photos"]
    visit = Visit.begin(browser, served.url)
    page = visit.page
    visit.open("Teach")
    page.locator("#name").fill("gnu")
    page.locator("#examples input[type=file]").set_input_files(photo_files(tmp_path, "gnu", 2))
    page.locator("#teach-class").click()
    visit.shows("#report", "gnu: 2 photos")
    visit.open("Classes")
    page.get_by_text("Change a class").click()
    page.locator("#changed").fill("gnu")
    page.locator("#new-name").fill("yak")
    page.locator("#rename").click()
    visit.shows("#change", "gnu is yak now.")
    page.locator("#search").fill(" YA")
    visit.shows(".class .name", "yak")
    assert page.locator(".class .name").all_inner_texts() == ["yak"]
    page.locator("#changed").fill("yak")
    page.locator("#into").fill("bee")
    page.locator("#merge").click()
    visit.shows("#change", "yak is part of bee now.")
    visit.shows("#more", "No such class.")
    page.locator("#search").fill("")
    visit.shows(".class", "2 photos taught")
    page.locator("#changed").fill("cow")
    page.locator("#forget").click()
    visit.shows("#change", "cow is forgotten.")
    page.locator("#forget").click()
    visit.shows("#change .warning", "cow")
    visit.open("History")
    for undone in ("forget cow", "merge yak into bee", "rename gnu to yak", "teach gnu, 2 photos"):
        page.locator("#history .undo").click()
        visit.shows("#undone", f"Undone: {undone}")
    visit.end(served.url, refused=1)


def test_the_page_can_be_used_by_keyboard(
    servers: dict[str, PageServer], browser: Any, tmp_path: Path
) -> None:
    served = servers["photos"]
    visit = Visit.begin(browser, served.url)
    page = visit.page
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Teach"
    page.keyboard.press("Tab")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "file"
    page.locator("#examples input:focus").set_input_files(photo_files(tmp_path, "keyboard", 2))
    page.locator("#examples .thumbnail").nth(1).wait_for()
    page.locator("#examples .remove").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # What would it do?
    visit.shows("#report", "by keyboard: 2 photos")
    page.locator("[role=tab][aria-selected=true]").focus()
    for tab in ("Ask", "History", "Classes"):
        page.keyboard.press("ArrowLeft")
        assert page.locator("[role=tab][aria-selected=true]").inner_text() == tab
    visit.end(served.url)


@pytest.mark.parametrize(
    "event",
    ["new ClipboardEvent('paste', {clipboardData: data})", "new DragEvent('drop', {dataTransfer: data})"],
)
def test_a_pasted_or_dropped_image_is_answered(
    servers: dict[str, PageServer], browser: Any, event: str
) -> None:
    visit = Visit.begin(browser, servers["photos"].url)
    visit.page.evaluate(
        f"""async () => {{
          const canvas = Object.assign(document.createElement("canvas"), {{ width: 40, height: 40 }});
          canvas.getContext("2d").fillRect(5, 5, 9, 9);
          const blob = await new Promise((done) => canvas.toBlob(done));
          const data = new DataTransfer();
          data.items.add(new File([blob], "given.png", {{ type: "image/png" }}));
          document.dispatchEvent({event});
        }}"""
    )
    visit.page.locator("#answer .bar").first.wait_for()
    visit.end(servers["photos"].url)


def test_a_finger_draws_on_a_phone(servers: dict[str, PageServer], browser: Any) -> None:
    served = servers["drawings"]
    visit = Visit.begin(browser, served.url, has_touch=True, is_mobile=True)
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 844})
    touch = page.context.new_cdp_session(page)
    points = ring(page.locator("#question canvas").bounding_box(), 0.3)
    for number, (x, y) in enumerate(points):
        kind = "touchMove" if number else "touchStart"
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.locator("#answer .bar").first.wait_for()
    assert page.evaluate("scrollY") == 0  # the finger drew, and did not scroll
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    visit.end(served.url)


BOXES = """selectors => selectors.flatMap(selector => [...document.querySelectorAll(selector)]
  .filter(each => each.offsetParent).map(each => each.getBoundingClientRect().toJSON()))"""


@pytest.mark.parametrize("width", [1180, 390])
def test_nothing_covers_or_crushes_a_picture_or_leaves_its_frame(
    servers: dict[str, PageServer], browser: Any, tmp_path: Path, width: int
) -> None:
    paths = photo_files(tmp_path, "tall", 7, height=20)
    visit = Visit.begin(browser, servers["photos"].url)
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("#question input[type=file]").set_input_files(paths[0])
    page.locator("#answer .bar").first.wait_for()
    (drop, photo) = page.evaluate(BOXES, ["#question .drop", "#question .preview img"])
    assert photo["top"] + 0.5 >= drop["bottom"]
    assert photo["width"] / photo["height"] == pytest.approx(12 / 20, abs=0.02)
    assert all(bar["width"] > 20 for bar in page.evaluate(BOXES, ["#answer .track"]))
    visit.open("Teach")
    page.locator("#name").fill("a rather long name for a class of photos")
    page.locator("#examples input[type=file]").set_input_files(paths)
    page.locator("#examples .thumbnail").nth(6).wait_for()
    page.locator("#dry-run").click()
    visit.shows("#report", "Closest classes")
    (frame,) = page.evaluate(BOXES, ["#examples"])
    (drop,) = page.evaluate(BOXES, ["#examples .drop"])
    for thumbnail in page.evaluate(BOXES, ["#examples .thumbnail"]):
        assert frame["left"] <= thumbnail["left"] < thumbnail["right"] <= frame["right"]
        assert thumbnail["width"] == pytest.approx(thumbnail["height"], abs=1)
        assert thumbnail["top"] + 0.5 >= drop["bottom"]
    (card,) = page.evaluate(BOXES, ["#report .card"])
    pictures = page.evaluate(BOXES, ["#report .pictures img"])
    assert pictures
    assert all((each["width"], each["height"]) == (40, 40) for each in pictures)
    assert all(each["right"] <= card["right"] for each in page.evaluate(BOXES, ["#report .row *"]))
    visit.open("Classes")
    (card,) = page.evaluate(BOXES, ["#balance .card"])
    assert all(each["right"] <= card["right"] for each in page.evaluate(BOXES, ["#balance .row *"]))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    visit.end(servers["photos"].url)


def test_a_person_holds_something_before_the_camera(servers: dict[str, PageServer], browser: Any) -> None:
    served = servers["photos"]
    visit = Visit.begin(browser, served.url)
    page = visit.page
    page.locator("#question .camera").click()
    page.locator("#question video").wait_for()
    while page.evaluate("document.querySelector('#question video').currentTime") <= 0.2:
        page.wait_for_timeout(50)  # they see themselves
    page.locator("#question .capture").click()
    page.locator("#answer .bar").first.wait_for()
    assert page.evaluate("document.querySelector('#question video').srcObject") is None  # it is off again
    visit.end(served.url)


def test_a_person_logs_in_with_the_token(browser: Any, tmp_path: Path) -> None:
    token = "a1b2c3d4e5f6a7b8"
    with make_store(tmp_path / "store") as store, serving(store, token) as port, browser.new_page() as page:
        page.goto(f"http://127.0.0.1:{port}")
        page.locator("#token").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("This is not the token.").wait_for()
        page.locator("#token").fill(token)
        page.keyboard.press("Enter")
        page.locator("#balance .card").wait_for(state="attached")
        page.locator("#question input[type=file]").set_input_files(photo_files(tmp_path, "photo", 1))
        page.locator("#answer .bar").first.wait_for()


def test_the_description_page_works_without_a_network(servers: dict[str, PageServer], browser: Any) -> None:
    served = servers["photos"]
    page = browser.new_page()
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda entry: errors.append(entry.text) if entry.type == "error" else None)
    page.goto(f"{served.url}/docs")
    page.get_by_text("/api/predict").first.wait_for()
    page.close()
    assert [url for url in requests if not url.startswith((served.url, "data:"))] == []
    assert errors == []
