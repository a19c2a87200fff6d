"""The documentation's site: built strictly, complete, and read in a browser without a network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.documentation import ROOT, TUTORIALS
from tests.system.browser import PROGRAM, Tab

PAGES = {
    path.relative_to(ROOT / "docs").with_suffix(".html").as_posix(): path
    for path in (ROOT / "docs").rglob("*.md")
} | {"index.html": ROOT / "README.md"}

COUNTED = {"h1", "h2", "h3", "table", "tr", "td", "ol", "ul", "li", "pre", "code", "p", "img"}


def mkdocs(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = mkdocs(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


class Elements(HTMLParser):
    """Counts a page's elements, and collects what it links to and what it loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.counts[tag] += tag in COUNTED
        if tag == "a":
            self.links.add((named.get("href") or "").partition("#")[0])
        else:
            self.loads |= {named.get("src") or "", named.get("href") or ""}


def text_of(site: Path, name: str) -> str:
    return (site / name).read_text(encoding="utf-8")


def test_every_page_is_reached_from_the_first_one_and_found_by_the_search(site: Path) -> None:
    assert PAGES.keys() <= Elements(text_of(site, "index.html")).links | {"index.html"}
    index = json.loads(text_of(site, "search/search_index.json"))
    assert {each["location"].partition("#")[0] for each in index["docs"]} == PAGES.keys()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_has_the_headings_lists_tables_and_code_that_code_hosts_show(
    name: str, site: Path
) -> None:
    hosted = MarkdownIt("commonmark").enable("table").render(PAGES[name].read_text())
    (article,) = re.findall(r"<article.*?</article>", text_of(site, name), re.DOTALL)
    assert Elements(article).counts == Elements(hosted).counts


def test_pages_and_styles_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert [each for each in Elements(page.read_text()).loads if "//" in each] == []
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()\W*(?:https?:)?//[^)]*", style.read_text()) == []


def test_the_tutorials_pictures_are_few_and_small() -> None:
    sizes = [path.stat().st_size for path in TUTORIALS.glob("*.png")]
    assert 0 < len(sizes) <= 5
    assert max(sizes) < 150_000


@pytest.mark.parametrize(
    ("page", "added", "said"),
    [
        ("docs/boards.md", "\n[gone](nowhere.md)\n", "link 'nowhere.md'"),
        ("docs/boards.md", "\n[gone](#nowhere)\n", "link '#nowhere'"),
        ("docs/boards.md", "\n[gone](../armload/nowhere.py)\n", "links to armload/nowhere.py"),
        ("docs/more.md", "# More\n", 'not included in the "nav"'),
    ],
)
def test_a_dead_link_or_a_page_outside_the_navigation_fails_the_build(
    page: str, added: str, said: str, tmp_path: Path
) -> None:
    """On a site of two pages, which takes a second."""
    project = tmp_path / "project"
    (project / "docs").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "hooks.py", project / "docs")
    config = text_of(ROOT, "mkdocs.yml").partition("nav:\n")[0]
    (project / "mkdocs.yml").write_text(f"{config}nav: [index.md, boards.md]\n")
    (project / "README.md").write_text("# Home\n\n[boards](docs/boards.md)\n")
    (project / "docs" / "boards.md").write_text("# Boards\n\n[home](../README.md#home)\n")
    with (project / page).open("a") as file:
        file.write(added)
    done = mkdocs(project, tmp_path / "site")
    assert done.returncode != 0
    assert said in done.stderr
    assert "Aborted with 1 warnings" in done.stdout


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed")
def test_the_search_works_without_a_network_or_a_complaint(address: str, tab: Tab) -> None:
    tab.visit(f"{address}/index.html", width=1200)
    found = tab.evaluate("""
        new Promise((done) => {
          const field = document.querySelector(".md-search__input");
          field.focus();
          field.value = "preempted lease";
          const look = () => {
            field.dispatchEvent(new Event("keyup"));
            const link = document.querySelector(".md-search-result__link");
            if (link) done(link.href); else setTimeout(look, 50);
          };
          look();
        })""")
    assert found.startswith(f"{address}/")
    assert found.partition("?")[0].removeprefix(f"{address}/") in PAGES
    assert tab.complaints == []
    assert all(each.startswith((f"{address}/", "data:", "blob:")) for each in tab.asked)
