"""People at the page: what they do in a browser, and what their browser says of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.servers import png
from support.stores import drawings

BASE = ["ant", "bee", "cow"]


@dataclass(frozen=True)
class PageServer:
    """A running server and the folder of its store."""

    folder: Path
    url: str


@dataclass
class Visit:
    """A person at the page, and what their browser asked for and complained of."""

    page: Any
    requests: list[str]
    complaints: list[str]

    @classmethod
    def begin(cls, browser: Any, url: str, script: str = "", **options: Any) -> Visit:
        page = browser.new_page(viewport={"width": 1180, "height": 1000}, **options)
        page.set_default_timeout(120_000)  # a busy machine is slow
        visit = cls(page, [], [])
        page.on("request", lambda request: visit.requests.append(request.url))
        page.on(
            "console", lambda entry: visit.complaints.append(entry.text) if entry.type == "error" else None
        )
        page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        page.add_init_script(script)
        page.goto(url)
        page.locator("#balance .card").wait_for(state="attached")
        return visit

    def open(self, tab: str) -> None:
        self.page.get_by_role("tab", name=tab).click()

    def shows(self, selector: str, text: str) -> None:
        """Wait until a part of the page shows some text."""
        self.page.locator(selector).filter(has_text=text).first.wait_for()

    def ask(self, path: Path) -> str:
        """Ask an image file, and return the answer when it is shown."""
        with self.new_answer():
            self.page.locator("#question input[type=file]").set_input_files(path)
        return self.page.locator("#answer .verdict").inner_text()

    @contextmanager
    def new_answer(self) -> Iterator[None]:
        """Wait for another answer than the one that is shown."""
        self.page.evaluate("document.querySelector('#answer').firstElementChild.dataset.old = 'yes'")
        yield
        self.page.locator("#answer .card:not([data-old]) .verdict").wait_for()

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
