"""A run's page in a real browser that can reach no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.run import Run
from armload.report.table import NewRun
from tests.system.browser import PROGRAM, Tab
from tests.unit.runs import failed_run, quick_run, storage_run
from tests.unit.streamed import streamed_run

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed")


@pytest.mark.parametrize(
    "run",
    [quick_run(tokens=128), storage_run(), streamed_run()],
    ids=["in memory", "from storage", "streamed"],
)
def test_the_chart_is_drawn_without_a_network_or_a_complaint(
    run: Run, tmp_path: Path, tab: Tab
) -> None:
    page = NewRun(run=run, folder=tmp_path).files["page"]
    for width in (1200, 380):
        tab.open(page, width=width)
        points = 'document.querySelectorAll("#chart-tokens [aria-roledescription=point]").length'
        assert tab.evaluate(points) == len(run.steps)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints == []
    assert set(tab.asked) == {page.as_uri()}


GOES_ON = (
    "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)"
)
SHADED = "box => getComputedStyle(box).backgroundImage.split('linear-gradient').length === 5"


@pytest.mark.exhaustive(covers=["armload/report"])
def test_a_table_that_goes_on_beyond_a_phone_s_edge_shows_it_and_scrolls_by_keys(
    tmp_path: Path, tab: Tab
) -> None:
    page = NewRun(run=storage_run(), folder=tmp_path).files["page"]
    tab.open(page, width=380)
    labels = tab.evaluate(f"{GOES_ON}.map(box => box.getAttribute('aria-label'))")
    assert labels == ["Slowest tokens"], "the conditions have lines enough instead"
    assert tab.evaluate(f"{GOES_ON}.every({SHADED})")
    assert tab.evaluate(f"{GOES_ON}.every(box => box.tabIndex === 0)")
    tab.open(page, width=1200)
    assert tab.evaluate(f"{GOES_ON}.length") == 0


def test_a_page_of_a_failed_run_opens_without_a_complaint(tmp_path: Path, tab: Tab) -> None:
    page = NewRun(run=failed_run(), folder=tmp_path).files["page"]
    tab.open(page, width=1200)
    assert tab.complaints == []
    assert "SIGILL" in tab.evaluate("document.body.innerText")


def test_the_policy_stops_what_got_into_the_page_all_the_same(tmp_path: Path, tab: Tab) -> None:
    page = NewRun(run=quick_run(), folder=tmp_path).files["page"]
    intruder = '<script>document.title = "taken over"</script><img src="http://example.org/x.png">'
    page.write_text(page.read_text(encoding="utf-8").replace("</h1>", f"</h1>{intruder}"))
    tab.open(page, width=1200)
    assert tab.evaluate("document.title") != "taken over"
    assert len([line for line in tab.complaints if "Content Security Policy" in line]) == 2
