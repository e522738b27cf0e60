"""The loop at the page: a wrong answer is corrected, asked again, and right; on a desk and on a phone."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from fairshot.teaching import Store
from support.browsing import BASE, PageServer, Visit, draw_ring, photo_files
from support.servers import png, serving
from support.stores import network, store_spec

LOW_CONTRAST = (Path(__file__).parents[1] / "support" / "low_contrast.js").read_text()
COUNT_REQUESTS = """
window.flights = { now: 0, most: 0, done: 0 };
const real = window.fetch;
window.fetch = async (...given) => {
  if (!String(given[0]).includes("predict")) return real(...given);
  flights.now += 1;
  flights.most = Math.max(flights.most, flights.now);
  await new Promise((done) => setTimeout(done, 900));  // longer than the time between two frames
  try { return await real(...given); } finally { flights.now -= 1; flights.done += 1; }
};
"""


def check_look(page: Any, root: str = "body") -> None:
    """All visible text is readable, and nothing is wider than the window."""
    page.wait_for_function("() => !document.querySelector('[aria-busy=true]')")
    assert page.evaluate(LOW_CONTRAST, root) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def start_again(url: str) -> None:
    """Undo all that was done to a store, and have its server forget what it was asked."""
    while httpx.post(f"{url}/api/undo", timeout=60).status_code == 200:
        pass
    if ids := [each["id"] for each in httpx.get(f"{url}/api/recent?limit=200", timeout=60).json()]:
        httpx.post(f"{url}/api/recent/dismiss", json={"ids": ids}, timeout=60).raise_for_status()


def test_after_undo_an_answer_is_asked_again_and_its_picture_is_unsure_again(
    servers: dict[str, PageServer], browser: Any, tmp_path: Path
) -> None:
    served = servers["photos"]
    (photo,) = photo_files(tmp_path, "quokka", 1)
    visit = Visit.begin(browser, served.url)
    page = visit.page
    before = visit.ask(photo)
    page.locator("#answer .correct").click()
    page.locator("#answer .chooser input").fill("quokka")
    with visit.new_answer():
        page.keyboard.press("Enter")
    assert page.locator("#answer .verdict").inner_text() == "quokka"
    with visit.new_answer():
        page.locator("#toast button", has_text="Undo").click()
    visit.shows("#toast", "Undone")
    assert page.locator("#answer .verdict").inner_text() == before
    visit.open("Unsure")
    page.locator("#unsure-list .tile").wait_for()

    # the same for one that is labelled among the unsure ones
    page.locator("#unsure-list input").check()
    page.locator("#unsure-correct").click()
    page.locator("#unsure-chooser input").fill("quokka")
    page.keyboard.press("Enter")
    page.locator("#unsure-none").wait_for()
    page.locator("#toast button", has_text="Undo").click()
    visit.shows("#unsure-list .tile", before)
    visit.end(served.url)
    start_again(served.url)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1180), ("dark", 390)])
def test_a_wrong_answer_is_corrected_and_right_when_asked_again(
    servers: dict[str, PageServer], browser: Any, tmp_path: Path, scheme: str, width: int
) -> None:
    served = servers["photos"]
    okapi = photo_files(tmp_path, f"okapi {scheme}", 3)
    (tmp_path / "emu").mkdir()
    emu = photo_files(tmp_path / "emu", f"emu {scheme}", 3)
    visit = Visit.begin(browser, served.url, color_scheme=scheme)
    page = visit.page
    page.set_viewport_size({"width": width, "height": 844})

    # wrong, corrected, asked again by itself, right
    assert visit.ask(okapi[0]) in BASE
    page.locator("#answer .correct").click()
    page.locator("#answer .option").nth(1).wait_for()
    check_look(page)
    page.locator("#answer .chooser input").fill("okapi")
    visit.shows("#answer .option", "New class: okapi")
    with visit.new_answer():
        page.keyboard.press("Enter")
    visit.shows("#toast", "okapi: 1 photo")
    assert page.locator("#answer .verdict").inner_text() == "okapi"
    check_look(page)

    # another one: right, and taught; what was said of the first one, with its Undo, is gone
    assert visit.ask(okapi[1]) == "okapi"
    assert page.locator("#toast").is_hidden()
    page.locator("#answer .correct").click()
    page.locator("#answer .chooser input").fill("okapi")  # a class it knows, if also its answer
    assert page.locator("#answer .option").all_inner_texts() == ["okapi"]
    page.locator("#answer .right").click()
    visit.shows("#answer .said", "Good.")
    with visit.new_answer():
        page.locator("#answer .teach-this").click()
    with Store(served.folder) as store:
        assert {info.name: info.photos for info in store.classes()}["okapi"] == 2

    # unsure ones, labelled many at once
    for path in emu:
        visit.ask(path)
    visit.open("Unsure")
    page.locator("#unsure-list .tile").nth(2).wait_for()
    assert page.locator("#unsure-list .tile").count() == 3  # what was judged or taught is not among them
    remarks = page.locator(".tile .note:nth-child(4)").all_inner_texts()
    listed = httpx.get(f"{served.url}/api/recent", timeout=60).json()
    assert remarks == [each["prediction"]["remark"] for each in listed]  # in the words of Ask
    shares = [int(re.findall(r"(\d+)%", text)[0]) for text in remarks]
    assert shares == sorted(shares)
    assert page.locator("#unsure-correct").is_disabled()
    page.locator("#select-all").click()
    visit.shows("#unsure-count", "3 pictures chosen")
    page.locator("#unsure-correct").click()
    check_look(page)
    page.locator("#unsure-chooser input").fill("emu")
    page.locator("#unsure-chooser .option.new").click()
    visit.shows("#toast", "emu: 3 photos")
    page.locator("#unsure-none").wait_for()
    assert httpx.get(f"{served.url}/api/recent", timeout=60).json() == []

    # which class needs more, and the cards
    visit.open("Classes")
    visit.shows("#enough", "Next, give photos of:")
    visit.shows("#enough .curve-row", "okapi")
    check_look(page)
    page.locator(".class").filter(has_text="emu").click()
    page.locator("#class-photos input").nth(2).wait_for()
    page.locator("#class-photos input").nth(0).check()
    check_look(page, "#class-dialog")
    page.keyboard.press("Escape")
    for tab in ("Teach", "History"):
        visit.open(tab)
        check_look(page)
    assert re.fullmatch(r"today \d\d:\d\d", page.locator("#events time").first.inner_text())
    height = page.locator("#events time").first.bounding_box()["height"]
    assert height < 30  # a date is one line, also on a phone
    visit.end(served.url)
    start_again(served.url)


def test_live_answers_wait_for_each_other_and_photos_are_recorded(
    servers: dict[str, PageServer], browser: Any
) -> None:
    served = servers["photos"]
    visit = Visit.begin(browser, served.url, COUNT_REQUESTS)
    page = visit.page
    page.locator("#question .camera").click()
    page.wait_for_function("() => flights.done >= 3")
    page.locator("#answer .verdict").wait_for()
    assert page.evaluate("flights.most") == 1
    assert httpx.get(f"{served.url}/api/recent", timeout=60).json() == []  # frames are not kept
    page.locator("#answer .correct").click()
    page.locator("#question .preview img").wait_for()  # the frame that is spoken of
    assert page.evaluate("document.querySelector('#question video').srcObject") is None
    page.locator("#answer .chooser input").fill("ball")
    with visit.new_answer():
        page.keyboard.press("Enter")
    assert page.locator("#answer .verdict").inner_text() == "ball"

    visit.open("Teach")
    page.locator("#examples .camera").click()
    page.locator("#examples .record").wait_for()
    thumbnails = page.locator("#examples .thumbnail")
    page.locator("#examples .record").hover()
    page.mouse.down()
    thumbnails.nth(2).wait_for()
    page.mouse.up()
    visit.shows("#examples .record", "Hold to record")  # it has stopped
    held = thumbnails.count()
    page.locator("#examples .record").focus()
    page.keyboard.down("Space")
    thumbnails.nth(held).wait_for()
    page.keyboard.up("Space")
    visit.shows("#examples .record", "Hold to record")
    held = thumbnails.count()
    page.wait_for_timeout(700)
    assert thumbnails.count() == held
    visit.end(served.url)
    start_again(served.url)


def brightness_of_corner(locator: Any) -> float:
    """Look at the picture as it is shown."""
    locator.scroll_into_view_if_needed()
    locator.evaluate("shown => shown.decode?.()")  # until it is loaded, an image is its dark background
    shown = Image.open(io.BytesIO(locator.screenshot())).convert("L")
    return float(np.asarray(shown)[4:8, 4:8].mean())


def test_an_empty_store_opens_on_teach_and_drawings_are_dark_on_light(browser: Any, tmp_path: Path) -> None:
    light_on_dark = np.zeros((40, 40, 1), np.uint8)
    light_on_dark[5:35, 17:23] = light_on_dark[17:23, 5:35] = 255  # a cross, whose corners stay empty
    (tmp_path / "drawing.png").write_bytes(png(light_on_dark))
    net = network(sr_width=None, drawings=True)
    with Store.create(tmp_path / "store", store_spec(net)) as store, serving(store) as port:
        url = f"http://127.0.0.1:{port}"
        visit = Visit.begin(browser, url, color_scheme="dark")
        page = visit.page
        assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Teach"
        welcome = page.locator("#welcome").inner_text()
        assert len(re.findall(r"[.:](?:\s|$)", welcome)) == 4  # three sentences, one of them with a colon
        check_look(page)
        draw_ring(page, "#examples", 0.3)
        page.locator("#examples .add").click()
        page.locator("#examples input[type=file]").set_input_files(tmp_path / "drawing.png")
        page.locator("#examples .thumbnail").nth(1).wait_for()
        page.locator("#examples .thumbnail img.stored").wait_for()
        shown = [page.locator("#examples canvas"), *page.locator("#examples .thumbnail img").all()]
        page.locator("#name").fill("ring")
        assert [brightness_of_corner(each) > 200 for each in shown] == [True] * 3
        page.locator("#teach-class").click()
        visit.shows("#report", "ring: 2 photos")
        page.locator("#welcome").wait_for(state="hidden")
        visit.open("Classes")
        page.locator(".class:has(.chip) img").nth(1).wait_for()  # nothing is read for the cards any more
        assert all(brightness_of_corner(each) > 200 for each in page.locator(".class img").all())
        visit.open("Ask")
        draw_ring(page, "#question", 0.2)  # another one: what was taught is not unsure
        visit.shows("#answer .verdict", "ring")
        assert brightness_of_corner(page.locator("#answer .pictures img").first) > 200
        visit.open("Unsure")
        page.locator(".tile img").wait_for()
        page.locator(".tile input").evaluate("box => box.remove()")  # it lies over the corner
        assert brightness_of_corner(page.locator(".tile img")) > 200
        visit.end(url)
