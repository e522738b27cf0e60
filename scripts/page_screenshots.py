"""Take the screenshots of the docs: `python scripts/page_screenshots.py RUN`, a run of SSS on doodles.

Needs playwright and Chromium. A store is made from the run, taught some drawings that come with fairshot, and
walked through in a browser, on a desk and on a phone, light and dark.
"""

from __future__ import annotations

import io
import math
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops
from playwright.sync_api import sync_playwright

from fairshot.server.serving import build_server, listen
from fairshot.teaching import Store, from_run
from fairshot.teaching.doodle_files import write_doodles

TARGET = Path(__file__).parents[1] / "docs" / "screenshots"
TAUGHT = {"umbrella": 5, "shoe": 5, "cloud": 5, "cat": 3, "airplane": 5}
MARGIN = 48  # pixels below the last thing on a picture
DESK, PHONE = {"width": 1100, "height": 820}, {"width": 390, "height": 844}


@contextmanager
def serving(store: Store) -> Iterator[str]:
    """Serve a store in a thread."""
    server, listener = build_server(store), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


class Camera:
    """A browser window whose picture is taken."""

    def __init__(self, browser: Any, url: str, size: dict[str, int], scheme: str) -> None:
        self.page = browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=2)
        self.page.set_default_timeout(20_000)
        self.page.goto(url)
        self.page.locator("#balance .card").wait_for(state="attached")

    def open(self, tab: str) -> None:
        """Open a tab."""
        self.page.get_by_role("tab", name=tab).click()

    def ask(self, path: Path) -> str:
        """Ask a drawing; return its id."""
        with self.page.expect_response(lambda response: "/api/predict" in response.url) as caught:
            self.page.locator("#question input[type=file]").set_input_files(path)
        self.page.locator("#answer .feedback").wait_for()
        self.page.wait_for_load_state("networkidle")
        return str(caught.value.json()[0]["id"])

    def draw_umbrella(self) -> None:
        """Draw with the mouse."""
        canvas = self.page.locator("#question canvas")
        box = canvas.bounding_box()
        top = [(0.5 + 0.38 * math.cos(a), 0.5 - 0.34 * math.sin(a)) for a in np.linspace(math.pi, 0, 24)]
        hem = [(0.88 - 0.76 * t, 0.5 - 0.07 * abs(math.sin(4 * math.pi * t))) for t in np.linspace(0, 1, 41)]
        stick = [(0.5, 0.45 + 0.4 * t) for t in np.linspace(0, 1, 12)]
        hook = [(0.42 + 0.08 * math.cos(a), 0.85 + 0.08 * math.sin(a)) for a in np.linspace(0, 2.6, 12)]
        for stroke in (top + hem, stick + hook):
            points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
            self.page.mouse.move(*points[0])
            self.page.mouse.down()
            for point in points[1:]:
                self.page.mouse.move(*point)
            with self.page.expect_response(lambda response: "/api/predict" in response.url):
                self.page.mouse.up()
        self.page.locator("#answer .feedback").wait_for()

    def picture(self) -> Image.Image:
        """Return the picture of the window, when all is shown."""
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(300)
        return Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")

    def take(self, name: str) -> None:
        """Take the picture and keep it, without what is empty at its end."""
        taken = self.picture()
        ground = Image.new("RGB", taken.size, taken.getpixel((0, taken.height - 1)))
        end = (ImageChops.difference(taken, ground).getbbox() or taken.getbbox())[3]
        kept = taken.crop((0, 0, taken.width, min(taken.height, end + MARGIN)))
        kept.quantize(128).save(TARGET / f"{name}.png", optimize=True)


def teach_and_ask(camera: Camera, photos: Path) -> None:
    """Teach a class, ask, correct, and look at what is unsure and at the classes."""
    page = camera.page
    camera.open("Teach")
    page.locator("#name").fill("bear")
    page.locator("#examples input[type=file]").set_input_files(
        sorted((photos / "teach" / "bear").iterdir())[:5]
    )
    page.locator("#examples .thumbnail").nth(4).wait_for()
    page.locator("#dry-run").click()
    page.locator("#report h2").wait_for()
    camera.take("teach")
    camera.open("Ask")
    camera.draw_umbrella()
    camera.take("ask")
    for path in sorted((photos / "test" / "cat").iterdir()):
        camera.ask(path)
        if page.locator("#answer .verdict").inner_text() != "cat":
            break
    page.locator("#answer .correct").click()
    page.locator("#answer .chooser input").type("ca")
    camera.take("correct")


def look_around(camera: Camera, photos: Path) -> None:
    """Ask more drawings, then look at those that are unsure and at the classes."""
    page = camera.page
    chosen = []
    for name in ("shoe", "basket", "cat", "bear", "cloud", "mushroom"):
        for path in sorted((photos / "test" / name).iterdir())[2:5]:
            asked = camera.ask(path)
            chosen += [asked] if name == "basket" else []
    camera.open("Unsure")
    page.locator(".tile").nth(8).wait_for()
    for each in chosen:
        page.locator(f".tile input[value='{each}']").check()
    camera.take("unsure")
    camera.open("Classes")
    page.locator("#enough .curve-row").first.wait_for()
    camera.take("classes")
    page.locator(".class").filter(has_text="umbrella").click()
    page.locator("#class-photos input").nth(2).check()
    camera.take("class-card")


def phone(camera: Camera, photos: Path) -> None:
    """Ask and look at the classes on a phone, dark; both pictures side by side."""
    camera.ask(sorted((photos / "test" / "cat").iterdir())[0])
    camera.page.evaluate("scrollTo(0, 0)")
    camera.page.locator("#answer .verdict").evaluate("each => each.scrollIntoView()")
    asked = camera.picture()
    camera.open("Classes")
    camera.page.locator("#enough .curve-row").first.wait_for()
    camera.page.evaluate("scrollTo(0, 0)")
    both = Image.new("RGB", (2 * asked.width + 40, asked.height), "white")
    both.paste(asked, (0, 0))
    both.paste(camera.picture(), (asked.width + 40, 0))
    both.quantize(128).save(TARGET / "phone.png", optimize=True)


def main(run: str) -> None:
    """Make a store from a run, and take all pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        photos = Path(folder) / "drawings"
        write_doodles(photos)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with Store.create(Path(folder) / "my-store", from_run(run)) as store:
            for name, count in TAUGHT.items():
                store.teach(name, sorted((photos / "teach" / name).iterdir())[:count])
            with serving(store) as url:
                camera = Camera(browser, url, DESK, "light")
                teach_and_ask(camera, photos)
                look_around(camera, photos)
                phone(Camera(browser, url, PHONE, "dark"), photos)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
