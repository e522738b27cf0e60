"""People at the page: a real browser and real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairshot.teaching import Store
from support.browsing import BASE, PageServer, Visit, draw_ring, photo_files, ring
from support.servers import png, serving
from support.stores import drawings, make_store


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
    assert page.locator("#teach .undo").is_hidden()  # nothing was done that it could take back
    with Store(served.folder) as store:
        assert "ring" not in store.snapshot().names
    page.locator("#teach-class").click()
    visit.shows("#report", "ring: 5 photos, closest to")
    visit.shows("#teach .undo", "Undo: teach ring, 5 photos")
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
    page.locator("#answer .teach-this").click()
    visit.shows("#toast", f"{name}: 1 photo")
    page.locator("#answer .correct").click()
    page.locator("#answer .chooser input").fill("<img src=y>")
    visit.shows("#answer .option.new", "New class: <img src=y>")
    page.locator("#toast").get_by_role("button", name="Undo").click()
    visit.shows("#toast", "Undone: teach")
    visit.open("Classes")
    page.locator(".class").filter(has_text=name).click()
    visit.shows("#class-title", name)
    page.keyboard.press("Escape")
    assert page.locator("#toast").is_hidden()  # it was said in another tab
    visit.open("Ask")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    page.locator("#question input[type=file]").set_input_files(tmp_path / "broken.png")
    visit.shows("#answer .warning", "broken.png: this file cannot be read as an image")
    visit.open("Teach")
    page.locator("#teach .undo").get_by_text(f"Undo: teach {name}, 5 photos").click()
    visit.shows("#toast", f"Undone: teach {name}, 5 photos")
    visit.shows("#report", "appears here")
    page.locator("#name").fill("../../etc")
    page.locator("#examples input[type=file]").set_input_files(paths[:2])
    page.locator("#examples .thumbnail").nth(1).wait_for()
    page.locator("#teach-class").click()
    visit.shows("#report .warning", "looks like the path of a file")
    assert page.locator("#examples .thumbnail").count() == 2  # what was given stays, to be changed
    visit.end(served.url, refused=2)


def test_a_person_changes_classes_on_their_cards(
    servers: dict[str, PageServer], browser: Any, tmp_path: Path
) -> None:
    served = servers["photos"]
    visit = Visit.begin(browser, served.url)
    page = visit.page
    visit.open("Teach")
    page.locator("#name").fill("gnu")
    page.locator("#examples input[type=file]").set_input_files(photo_files(tmp_path, "gnu", 4))
    page.locator("#teach-class").click()
    visit.shows("#report", "gnu: 4 photos")
    visit.open("Classes")
    visit.shows("#enough", "gnu")  # whether its photos are enough
    page.locator(".class").filter(has_text="gnu").click()
    page.locator("#new-name").fill("yak")
    page.locator("#rename").click()
    visit.shows("#toast", "gnu is yak now.")
    visit.shows("#class-title", "yak")
    page.locator("#class-photos input").nth(3).wait_for()
    page.locator("#class-photos input").nth(0).check()
    visit.shows("#photo-count", "1 photo chosen")
    page.locator("#drop-photos").click()
    visit.shows("#toast", "1 photo of yak dropped.")
    page.locator("#class-photos input").nth(3).wait_for(state="detached")
    visit.shows("#class-kind", "taught, 3 photos")
    page.locator("#class-photos input").nth(1).check()
    page.locator("#move-photos").click()
    page.locator("#class-chooser input").fill("be")
    page.keyboard.press("Enter")  # bee, the first that is found
    visit.shows("#toast", "1 photo of yak moved to bee.")
    visit.shows("#class-kind", "taught, 2 photos")
    page.locator("#toast").get_by_role("button", name="Undo").click()
    visit.shows("#toast", "Undone: move 1 photo of yak to bee")
    page.locator("#close-class").click()
    page.locator("#search").fill(" YA")
    visit.shows(".class .name", "yak")
    assert page.locator(".class .name").all_inner_texts() == ["yak"]
    visit.shows(".class", "taught, 3 photos")
    page.locator(".class").click()
    page.locator("#merge").click()
    page.locator("#class-chooser input").fill("bee")
    page.locator("#class-chooser .option").get_by_text("bee").click()
    visit.shows("#toast", "yak is part of bee now.")
    visit.shows("#more", "No such class.")
    page.locator("#search").fill("")
    visit.shows(".class", "3 photos taught")
    page.locator(".class").filter(has_text="cow").click()
    page.locator("#class-photos span.photo").first.wait_for()  # training images, which cannot be chosen
    assert not page.locator("#photo-tools").is_visible()
    page.locator("#forget").click()
    visit.shows("#toast", "cow is forgotten.")
    visit.open("History")
    undone = ("forget cow", "merge yak into bee", "drop 1 photo of yak", "rename gnu to yak", "teach gnu, 4")
    for each in undone:
        page.locator("#history .undo").get_by_text(f"Undo: {each}").click()
        visit.shows("#toast", f"Undone: {each}")
    visit.end(served.url)


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
    for key, tab in (
        *(("ArrowLeft", "Ask"), ("ArrowLeft", "History"), ("ArrowRight", "Ask"), ("End", "History")),
        *(("Home", "Ask"), ("ArrowRight", "Teach"), ("ArrowRight", "Unsure"), ("ArrowRight", "Classes")),
    ):
        page.keyboard.press(key)
        selected = page.locator("[role=tab][aria-selected=true]")
        assert selected.inner_text() == tab
        assert page.locator("[role=tab]:focus").inner_text() == tab
        assert page.locator("[role=tab][tabindex='0']").count() == 1
        panel = page.locator("[role=tabpanel]:visible")
        assert panel.get_attribute("aria-labelledby") == selected.get_attribute("id")
        assert selected.get_attribute("aria-controls") == panel.get_attribute("id")
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


def test_on_a_phone_a_tiny_picture_is_enlarged_and_answers_and_choices_are_in_view(
    servers: dict[str, PageServer], browser: Any, tmp_path: Path
) -> None:
    (tmp_path / "tiny.png").write_bytes(png(drawings("tiny", 1, 3)[0]))
    visit = Visit.begin(browser, servers["photos"].url)
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 500})
    page.locator("#question input[type=file]").set_input_files(tmp_path / "tiny.png")
    page.locator("#answer .bar").first.wait_for()
    (photo,) = page.evaluate(BOXES, ["#question .preview img"])
    assert photo["width"] == photo["height"] > 200
    page.wait_for_function(
        "() => document.querySelector('#answer .feedback').getBoundingClientRect().bottom <= innerHeight + 1"
    )
    page.set_viewport_size({"width": 390, "height": 1600})
    visit.open("Classes")
    page.locator(".class").first.click()
    page.locator("#class-photos img").first.wait_for()
    page.locator("#merge").click()
    dialog, field = (page.locator(each).bounding_box() for each in ("#class-dialog", "#class-chooser input"))
    height = int(field["y"] - dialog["y"]) + 52  # a window in which the field is the last of the card
    page.set_viewport_size({"width": 390, "height": height})
    page.locator("#merge").click()
    page.locator("#class-chooser .option").first.wait_for()
    dialog, options = page.locator("#class-dialog").bounding_box(), page.evaluate(BOXES, [".option"])
    assert len(options) == 2
    assert all(each["bottom"] <= dialog["y"] + dialog["height"] <= height for each in options)
    (name, rename) = page.evaluate(BOXES, ["#new-name", "#rename"])
    assert name["top"] == rename["top"]  # both in one line
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
    page.locator("#question .preview img").wait_for()
    assert page.evaluate("document.querySelector('#question video').srcObject") is None  # it is off again
    page.locator("#answer .bar").first.wait_for()
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
