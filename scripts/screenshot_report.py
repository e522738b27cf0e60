"""Take a picture of a report for the README: screenshot_report.py PAGE PICTURE [light|dark]."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main(page: Path, picture: Path, scheme: str = "light") -> None:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1240, "height": 1330}, color_scheme=scheme)
        tab.goto(page.absolute().as_uri())
        tab.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
