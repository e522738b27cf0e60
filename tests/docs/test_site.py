"""The documentation site: built strictly, complete, and loading nothing from elsewhere."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import CliRunner
from mkdocs.__main__ import cli

from fairshot.cli import app
from fairshot.methods import methods
from support.pages import ROOT

LOW_CONTRAST = (ROOT / "tests" / "support" / "low_contrast.js").read_text()
LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "link": "href",
    "source": "src",
    "audio": "src",
    "video": "src",
}


def build(checkout: Path, site: Path) -> Any:
    """Build as `make docs` does, in this process, which has imported torch already."""
    arguments = ["build", "--strict", "--config-file", str(checkout / "mkdocs.yml"), "--site-dir", str(site)]
    return CliRunner().invoke(cli, arguments, env={"NO_MKDOCS_2_WARNING": "1"})


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.exit_code == 0, built.output
    return folder


class Loads(HTMLParser):
    """What a page loads by itself: not its links, which are followed only when they are clicked."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") in ("prev", "next", "canonical"):
            return
        if address := given.get(LOADING.get(tag, "")):
            self.found.append(address)


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text())
        assert loads.found
        assert not [address for address in loads.found if re.match(r"(\w+:)?//", address)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text()), style


def test_the_references_are_those_of_the_code(site):
    commands, recipes = (
        (site / "reference" / f"{name}.html").read_text() for name in ("commands", "recipes")
    )
    for name, command in typer.main.get_command(app).commands.items():
        assert f"fairshot {name}</code>" in commands
        for parameter in command.params:
            assert all(option in commands for option in parameter.opts if option.startswith("--"))
    for name, method in methods().items():
        assert f"method: {name}<" in recipes
        assert all(f"<code>method.{key}</code>" in recipes for key in method.Settings.model_fields)
    assert "&lt;class&gt;" in commands  # PHOTOS/<class>/*.jpg is text, not a tag


def test_the_python_reference_has_every_public_name_and_room(site):
    import fairshot

    page = (site / "reference" / "api" / "index.html").read_text()
    assert all(f'id="fairshot.{name}"' in page for name in fairshot.__all__)
    rooms = {path.parent.name for path in Path(fairshot.__file__).parent.glob("*/__init__.py")} - {"cli"}
    assert rooms <= {page.stem for page in (site / "reference" / "api").iterdir()}
    assert (
        'id="fairshot.classifiers.resistance.resist"' in (site / "reference/api/classifiers.html").read_text()
    )


def test_formulas_are_mathml(site):
    page = (site / "paper.html").read_text()
    assert page.count("<math") >= 20
    assert "arithmatex" not in page


def test_a_browser_shows_and_searches_it_from_a_file_without_a_request(site, browser):
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").click()
    page.keyboard.type("resistance")
    page.locator(".md-search-result__item").first.wait_for(timeout=120_000)
    page.close()
    assert requests
    assert not [address for address in requests if address.startswith(("http", "ws"))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_can_be_read(site, browser, scheme):
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    for name in ("index", "paper", "results/index", "reference/recipes", "reference/api/index"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 390, name
        faint = [text for text, _ in page.evaluate(LOW_CONTRAST, "article") if text != "¶"]
        assert not faint, name
    page.close()


def test_a_broken_link_is_an_error(tmp_path):
    """In a small site with the same settings, for the whole one takes long to build."""
    for name in ("scripts", "mkdocs.yml", "src/fairshot/server/static/icon.svg"):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    settings = (tmp_path / "mkdocs.yml").read_text()
    kept = settings[: settings.index("nav:\n  -")].replace("not_in_nav: |", "not_in_nav: |\n  reference/**")
    (tmp_path / "mkdocs.yml").write_text(kept + "nav: [{Start: index.md}, {Metrics: metrics.md}]\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "unlisted.md").write_text("# In no list\n")
    broken = ["page.md", "../outside.md", "metrics.md#anchor", "picture.png"]
    links = "".join(f"[{number}]({target})\n" for number, target in enumerate(broken))
    (tmp_path / "docs" / "metrics.md").write_text(f"# Metrics\n\n{links}")
    (tmp_path / "README.md").write_text("# Start\n\n[Metrics](docs/metrics.md)\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.exit_code != 0
    warnings = [line for line in built.output.splitlines() if "WARNING" in line or "  - " in line]
    for named in ("'page.md'", "outside.md'", "'metrics.md#anchor'", "'picture.png'", "unlisted.md"):
        assert [line for line in warnings if named in line], (named, built.output)
