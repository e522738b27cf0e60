"""What a store confuses is told in the terminal, as JSON and as a page with the wrong photos."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from fairshot.cli import app
from fairshot.teaching import (
    Store,
    evaluate,
    evaluation_page,
    find_mistakes,
    read_folder,
    write_evaluation_page,
)
from fairshot.teaching.confidence import Confidence
from fairshot.teaching.mistakes import Confusion
from support.stores import drawings, make_store

SHOWN = {"yak": ("yak", 4), "emu": ("yak", 6), "<b>gnu": ("emu", 3)}  # folder: what its photos show


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = make_store(tmp_path_factory.mktemp("mistakes") / "shop")
    for word in ("yak", "emu"):
        store.teach(word, drawings(word, 3))
    return store


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos") / "test"
    for name, (word, count) in SHOWN.items():
        (folder / name).mkdir(parents=True)
        for index, drawing in enumerate(drawings(word, 3 + count)[3:]):
            Image.fromarray(drawing[..., 0]).save(folder / name / f"{name[:1] * 30}{index}.png")
    return folder


def test_confusions_are_counted_and_wrong_photos_named(shop: Store, photos: Path) -> None:
    labelled = read_folder(shop, photos)
    found = find_mistakes(shop, labelled)
    assert found.images == 13
    assert found.confusions == (
        Confusion("emu", True, "yak", 6, 6),
        Confusion("<b>gnu", False, "emu", 3, 3),
    )
    assert [Path(each.file).parent.name for each in found.wrong] == ["emu"] * 6 + ["<b>gnu"] * 3
    sure = [each.confidence for each in found.wrong[:6]]
    assert sure == sorted(sure, reverse=True)
    half = find_mistakes(shop, labelled.halves()[1])
    assert {each.file for each in half.wrong} < {each.file for each in found.wrong}


def test_unknown_is_an_answer_that_may_be_wrong_or_right(tmp_path: Path, photos: Path) -> None:
    with make_store(tmp_path / "shop") as store:
        store.teach("yak", drawings("yak", 3))
        store.set_confidence(Confidence(threshold=2, automatic=False))
        found = find_mistakes(store, read_folder(store, photos))
    assert found.confusions == (Confusion("yak", True, None, 4, 4),)
    assert found.confusions[0].sentence() == "yak answered unknown: 4 of 4"


def test_terminal_and_json_tell_the_same(shop: Store, photos: Path) -> None:
    told = CliRunner().invoke(app, ["evaluate", str(shop.folder), str(photos)]).stdout
    assert "  emu answered yak: 6 of 6\n  <b>gnu (not known) answered emu: 3 of 3\n" in told
    assert told.count(".png  ") == 9
    listed = json.loads(CliRunner().invoke(app, ["evaluate", str(shop.folder), str(photos), "--json"]).stdout)
    assert [each["count"] for each in listed["confusions"]] == [6, 3]
    assert len(listed["wrong"]) == 9
    assert listed["images"] == 13


@pytest.fixture
def page(shop: Store, photos: Path, tmp_path: Path) -> Path:
    command = ["evaluate", str(shop.folder), str(photos), "--page", str(tmp_path / "page.html")]
    outcome = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "page.html: all of this with the wrong photos" in outcome.stdout
    return tmp_path / "page.html"


def test_the_page_stands_alone_and_is_bounded(
    page: Path, shop: Store, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text()
    assert (
        text.count('<img src="data:image/png;base64,') == 9 + 2 * 2
    )  # and two examples of each class answered
    assert "&lt;b&gt;gnu" in text
    assert "<b>gnu" not in text
    assert not re.findall(r"(?:src|href)=\"(?!data:)", text)
    monkeypatch.setattr(evaluation_page, "MOST_PHOTOS", 7)
    monkeypatch.setattr(evaluation_page, "MOST_PER_CONFUSION", 5)
    labelled = read_folder(shop, photos)
    found = find_mistakes(shop, labelled)
    write_evaluation_page(page, shop, evaluate(shop, labelled), found, "few")
    few = page.read_text()
    assert few.count("<figure>") == 7
    assert "2 of the wrong images are not shown here" in few


def test_the_page_is_readable_on_a_phone(page: Path, browser: Any) -> None:
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.goto(page.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    longest = "document.querySelector('tbody th.name').textContent = 'W'.repeat(100)"
    tab.evaluate(longest)  # as long as the name of a class can be
    fits = "[...document.querySelectorAll('th.name')].every(e => e.scrollWidth <= e.offsetWidth)"
    assert tab.evaluate(fits)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    images = tab.locator(".photos img")
    images.last.scroll_into_view_if_needed()
    tab.wait_for_function("[...document.images].every(image => image.complete && image.naturalWidth)")
    assert min(image.bounding_box()["width"] for image in images.all()) > 100
    assert complaints == []
