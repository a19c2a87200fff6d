"""The report of a sweep in a real browser that can reach no network."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from armload.analysis.run import Run
from armload.report.multi_run import runs_page
from armload.report.pages import Report, write_report
from tests.system.browser import PROGRAM, Tab
from tests.unit.runs import failed_run, quick_run, storage_run
from tests.unit.sweeps import Q4, Q8, made_run, sweep

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed")

DESKTOP, PHONE = 1200, 380

similar = pytest.mark.exhaustive(covers=["armload/report"])

VIEWS = [
    pytest.param(DESKTOP, "light", marks=similar),
    pytest.param(DESKTOP, "dark", marks=similar),
    pytest.param(PHONE, "light", marks=similar),
    (PHONE, "dark"),
]

MARKS = {
    "threads-decode": 8 + 1 + 2,
    "threads-prefill": 8 + 1 + 2,
    "models": 8,
    "time-per-token": 8 * 32,
    "distribution": 2,
    "memory": 2,
}
"""Points, crosses, rings and bars that the sweep's figures hold."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return write_report(runs_page(sweep()), tmp_path_factory.mktemp("report"))


def marks(tab: Tab, figure: str) -> int:
    count = tab.evaluate(
        f"document.querySelectorAll('#chart-{figure}.vega-embed .role-mark.mark-symbol path, "
        f"#chart-{figure}.vega-embed .role-mark.mark-rect path').length"
    )
    assert isinstance(count, int)
    return count


def wider_than_the_window(tab: Tab) -> object:
    """Return what reaches over the window's edge outside of a box that scrolls."""
    return tab.evaluate(
        """[...document.querySelectorAll("body *")]
        .filter((each) => !each.closest(".scroll table, .vega-embed details, defs"))
        .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
        .map((each) => `${each.tagName} ${each.className.baseVal ?? each.className}`)"""
    )


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_every_figure_is_drawn_and_fits_without_a_network_or_a_complaint(
    width: int, scheme: Literal["light", "dark"], report: Report, tab: Tab
) -> None:
    tab.open(report.page, width=width, scheme=scheme)
    assert {figure: marks(tab, figure) for figure in MARKS} == MARKS
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert wider_than_the_window(tab) == []
    assert tab.complaints == []
    assert set(tab.asked) == {report.page.as_uri()}


def test_all_sections_start_at_one_left_edge_and_no_table_is_cut_on_a_desktop(
    report: Report, tab: Tab
) -> None:
    tab.open(report.page, width=DESKTOP, scheme="light")
    edges = tab.evaluate(
        """[...new Set([...document.querySelectorAll("h1, h2, .sortable")]
        .map((each) => each.getBoundingClientRect().left))].length"""
    )
    assert edges == 1
    cut = """[...document.querySelectorAll(".scroll")]
        .filter((each) => each.scrollWidth > each.clientWidth).length"""
    assert tab.evaluate(cut) == 0


def test_text_of_the_charts_is_as_dark_or_light_as_the_page_s(report: Report, tab: Tab) -> None:
    colour = "getComputedStyle(document.querySelector('%s')).%s"
    for scheme in ("light", "dark"):
        tab.open(report.page, width=DESKTOP, scheme="light")
        tab.prefer("dark" if scheme == "dark" else "light")  # after the charts were drawn
        text = tab.evaluate(colour % ("#chart-models svg text", "fill"))
        assert text == tab.evaluate(colour % ("body", "color"))
        assert text != tab.evaluate(colour % ("body", "backgroundColor"))


def column(tab: Tab, heading: str) -> list[str]:
    """Return a column of the table from top to bottom, without the intervals."""
    values = tab.evaluate(
        f"""(() => {{
          const table = document.querySelector("table.sortable");
          const heads = [...table.tHead.rows[0].cells];
          const place = heads.findIndex(
            (each) => each.querySelector("span").textContent === "{heading}");
          return [...table.tBodies[0].rows].map((row) => row.cells[place].firstChild.data);
        }})()"""
    )
    assert isinstance(values, list)
    return values


def button(heading: str) -> str:
    return (
        f'[...document.querySelectorAll("table.sortable button")]'
        f'.find((each) => each.querySelector("span").textContent === "{heading}")'
    )


def sorted_by(tab: Tab) -> list[list[str]]:
    found = tab.evaluate(
        """[...document.querySelectorAll("table.sortable th")]
        .filter((each) => each.getAttribute("aria-sort") !== "none")
        .map((each) => [each.querySelector("span").textContent, each.getAttribute("aria-sort")])"""
    )
    assert isinstance(found, list)
    return found


def test_the_table_sorts_both_ways_by_number_and_what_failed_stays_last(
    report: Report, tab: Tab
) -> None:
    tab.open(report.page, width=DESKTOP)
    assert sorted_by(tab) == []
    tab.evaluate(f"{button('decode')}.click()")
    rising = ["1.41", "2.37", "2.70", "3.26", "4.15", "4.51", "5.45", "6.98"]
    assert column(tab, "decode") == [*rising, "-"]
    assert sorted_by(tab) == [["decode", "ascending"]]
    tab.evaluate(f"{button('decode')}.click()")
    assert column(tab, "decode") == [*reversed(rising), "-"]
    assert sorted_by(tab) == [["decode", "descending"]]
    tab.evaluate(f"{button('max per token')}.click()")
    assert column(tab, "max per token")[-3:] == ["629 ms", "1.07 s", "-"]
    assert sorted_by(tab) == [["max per token", "ascending"]]


def test_the_table_sorts_by_words_and_from_the_keyboard(report: Report, tab: Tab) -> None:
    tab.open(report.page, width=DESKTOP)
    tab.evaluate(f"{button('quantisation')}.focus()")
    tab.press("Enter")
    assert column(tab, "quantisation") == ["F16", *["Q4_0"] * 4, *["Q8_0"] * 4]
    tab.press(" ")
    assert sorted_by(tab) == [["quantisation", "descending"]]
    tab.press("Tab")
    tab.press("Enter")
    assert sorted_by(tab) == [["threads", "ascending"]]
    assert column(tab, "threads") == ["1", "1", "2", "2", "4", "4", "4", "8", "8"]
    assert tab.complaints == []


@similar
def test_a_window_that_is_pulled_narrow_keeps_everything_inside(report: Report, tab: Tab) -> None:
    tab.open(report.page, width=DESKTOP)
    for width in (700, PHONE, DESKTOP):
        tab.resize(width)
        assert wider_than_the_window(tab) == []
        assert marks(tab, "time-per-token") == MARKS["time-per-token"]


def test_without_its_script_the_page_still_shows_pictures_and_the_table(
    report: Report, tmp_path: Path, tab: Tab
) -> None:
    page = tmp_path / "still.html"
    text = report.page.read_text(encoding="utf-8")
    page.write_text(text[: text.index("<script")] + "</body></html>", encoding="utf-8")
    tab.open(page, width=PHONE)
    assert tab.evaluate('document.querySelectorAll("figure.chart > svg").length') == len(MARKS)
    assert tab.evaluate('document.querySelectorAll("table.sortable tbody tr").length') == 9
    assert tab.evaluate('getComputedStyle(document.querySelector(".hint")).display') == "none"
    assert wider_than_the_window(tab) == []


def test_it_prints_on_white_paper_from_a_dark_screen(
    report: Report, tmp_path: Path, tab: Tab
) -> None:
    tab.open(report.page, width=DESKTOP, scheme="dark")
    printed = tmp_path / "report.pdf"
    tab.print(printed)
    content = printed.read_bytes()
    assert content.startswith(b"%PDF")
    assert 3 <= content.count(b"/Type /Page\n") <= 12
    tab.prefer_print()
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(28, 31, 36)"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate('getComputedStyle(document.querySelector(".downloads")).display') == "none"


@pytest.mark.parametrize(
    "runs",
    [
        [failed_run()],
        pytest.param([quick_run(tokens=1)], marks=similar),
        pytest.param([quick_run(tokens=2)], marks=similar),
        pytest.param([storage_run(), quick_run()], marks=similar),
        pytest.param([made_run(Q8, each, throttled=True) for each in (4, 8)], marks=similar),
        pytest.param(
            [
                made_run(model, each, board=board)
                for model in (Q4, Q8)
                for each in (1, 2)
                for board in ("kitchen", "a-board-with-a-name-that-takes-more-room-than-others-do")
            ],
            marks=similar,
        ),
    ],
    ids=["failed", "prompt only", "one step", "far apart", "none valid", "long names"],
)
def test_odd_reports_open_without_a_complaint_and_fit_a_phone(
    runs: list[Run], tmp_path: Path, tab: Tab
) -> None:
    page = write_report(runs_page(runs), tmp_path / "report").page
    for width in (DESKTOP, PHONE):
        tab.open(page, width=width)
        assert wider_than_the_window(tab) == []
    assert tab.complaints == []
