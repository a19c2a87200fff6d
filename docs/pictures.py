"""Draws the tutorials' pictures: ``python -m docs.pictures WORKSPACE``.

WORKSPACE is a folder in which the tutorials' commands were given. Pages are shown by Chromium.
"""

from __future__ import annotations

import argparse
import base64
import tempfile
from pathlib import Path

from tests.system.browser import Tab, opened_browser

FOLDER = Path(__file__).resolve().parent / "tutorials"

PICTURES = {
    "run.png": ("runs/*-kitchen-SmolLM2*/report.html", "body", 1040),
    "load.png": ("loads/*-kitchen-*/report.html", "section:has(#chart-timeline)", 680),
    "tradeoff.png": ("reports/tradeoff-*.html", "body", 760),
}
"""The newest page of which kind, the part of it at the picture's top, and the picture's height."""

WIDTH = 1000


def draw(tab: Tab, page: Path, part: str, height: int, picture: Path) -> None:
    """Take a picture of a page from the top of one of its parts."""
    tab.open(page, width=WIDTH)
    top = tab.evaluate(f"document.querySelector({part!r}).getBoundingClientRect().top")
    clip = {"x": 0, "y": top, "width": WIDTH, "height": height, "scale": 1}
    shot = tab.call("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    picture.write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workspace", type=Path)
    workspace = parser.parse_args().workspace.resolve()
    with tempfile.TemporaryDirectory() as profile, opened_browser(Path(profile)) as browser:
        for name, (pattern, part, height) in PICTURES.items():
            with browser.tab() as tab:
                draw(tab, max(workspace.glob(pattern)), part, height, FOLDER / name)


if __name__ == "__main__":
    main()
