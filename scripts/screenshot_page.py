"""Take pictures of the page of a doodle store for the documentation: screenshot_page.py STORE FOLDER.

Somebody draws five umbrellas, teaches them, draws a sixth and asks; then it is undone.
"""

import math
import shutil
import sys
import threading
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from fairshot.server.serving import build_server, listen
from fairshot.teaching import Store

NAME = "umbrella"
EXAMPLES = [(0.36, 0.0), (0.4, 0.03), (0.33, -0.03), (0.38, 0.05), (0.42, -0.02)]  # size and lean


def strokes(size: float, lean: float) -> list[list[tuple[float, float]]]:
    """Draw an umbrella: a dome with scallops, a stick with a hook."""
    dome = [(0.5 - size * math.cos(a), 0.5 - 0.9 * size * math.sin(a)) for a in _steps(0, math.pi, 24)]
    width = 2 * size / 3
    scallops = [
        (0.5 + size - width * (arc + (1 - math.cos(a)) / 2), 0.5 - 0.12 * math.sin(a))
        for arc in range(3)
        for a in _steps(0, math.pi, 8)
    ]
    bottom = 0.5 + 0.9 * size
    stick = [(0.5, 0.42), (0.5 + lean, bottom)]
    hook = [
        (0.5 + lean + 0.07 * (1 - math.cos(a)), bottom + 0.07 * math.sin(a)) for a in _steps(0, math.pi, 8)
    ]
    return [dome + scallops, stick + hook]


def _steps(start: float, end: float, count: int) -> list[float]:
    return [start + (end - start) * step / count for step in range(count + 1)]


def draw(page: Page, selector: str, size: float, lean: float) -> None:
    box = page.locator(f"{selector} canvas").bounding_box()
    assert box is not None
    for stroke in strokes(size, lean):
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point)
        page.mouse.up()


def visit(page: Page, folder: Path) -> None:
    page.get_by_role("tab", name="Teach").click()
    page.locator("#name").fill(NAME)
    for number, (size, lean) in enumerate(EXAMPLES):
        draw(page, "#examples", size, lean)
        page.locator("#examples .add").click()
        page.locator("#examples .thumbnail").nth(number).wait_for()
    page.locator("#dry-run").click()
    page.locator("#report").filter(has_text="What it would do").wait_for()
    page.screenshot(path=folder / "teach.png")
    page.locator("#teach-class").click()
    page.locator("#report").filter(has_text="Taught").wait_for()
    page.get_by_role("tab", name="Ask").click()
    draw(page, "#question", 0.37, 0.02)
    page.locator("#answer .bar").first.wait_for()
    page.set_viewport_size({"width": 1080, "height": 700})
    page.screenshot(path=folder / "ask.png")
    page.set_viewport_size({"width": 1080, "height": 900})
    page.get_by_role("tab", name="Classes").click()
    page.locator(".class").filter(has_text=NAME).locator("img").first.wait_for()
    page.wait_for_timeout(1000)  # until the other thumbnails are there
    page.screenshot(path=folder / "classes.png")
    page.get_by_role("tab", name="History").click()
    page.locator("#history .undo").click()
    page.locator("#events").filter(has_text="undo of").wait_for()


def main(store: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    listener, server = listen("127.0.0.1", 0), build_server(Store(store))
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    while not server.started:
        time.sleep(0.1)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1080, "height": 900})
        page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}")
        page.locator("#balance .card").wait_for(state="attached")
        visit(page, folder)
        browser.close()
    server.should_exit = True


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
