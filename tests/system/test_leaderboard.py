"""A leaderboard in a real browser that can reach no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.report.exchange.excerpt import excerpt_of
from armload.report.exchange.leaderboard import write_leaderboard
from armload.report.pages import Report
from tests.system.browser import PROGRAM, Tab
from tests.system.test_report_multi_run import button, column, sorted_by, wider_than_the_window
from tests.unit.runs import failed_run, storage_run
from tests.unit.sweeps import Q4, Q8, made_run

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Report:
    runs = [
        *(made_run(model, threads) for model in (Q4, Q8) for threads in (2, 4, 8)),
        made_run(Q4, 1, throttled=True),
        storage_run(),
        failed_run(),
    ]
    documents = {f"result-{number}": (excerpt_of(run),) for number, run in enumerate(runs)}
    return write_leaderboard(documents, tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("width", [1200, 380])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_without_a_network_or_a_complaint(
    width: int, scheme: str, site: Report, tab: Tab
) -> None:
    tab.open(site.page, width=width, scheme="dark" if scheme == "dark" else "light")
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert wider_than_the_window(tab) == []
    assert tab.complaints == []
    assert set(tab.asked) == {site.page.as_uri()}


def test_it_is_sorted_by_keys_alone_and_equal_rows_keep_their_order(site: Report, tab: Tab) -> None:
    tab.open(site.page, width=1200)
    ranked = column(tab, "p50 per token")
    assert ranked[-1] == "-"
    tab.evaluate(f"{button('p50 per token')}.focus()")
    tab.press("Enter")
    assert sorted_by(tab) == [["p50 per token", "ascending"]]
    by_median = column(tab, "p50 per token")
    assert sorted(by_median) == sorted(ranked)
    assert by_median[-1] == "-"
    tab.evaluate(f"{button('threads')}.focus()")
    tab.press("Enter")
    pairs = list(zip(column(tab, "threads"), column(tab, "p50 per token"), strict=True))
    assert pairs[-1] == ("-", "-")
    assert [each for each, _ in pairs[:-1]] == sorted(each for each, _ in pairs[:-1])
    for threads in ("2", "4", "8"):
        times = [time for each, time in pairs if each == threads]
        assert [time for time in by_median if time in times] == times


def test_each_document_is_linked_and_lies_beside_the_page(site: Report, tab: Tab) -> None:
    tab.open(site.page, width=1200)
    links = tab.evaluate("[...document.querySelectorAll('.files a')].map((each) => each.href)")
    assert len(links) == 9
    folder = site.page.parent.as_uri()
    assert all(Path(link.removeprefix("file://")).is_file() for link in links)
    assert all(link.startswith(f"{folder}/results/") for link in links)
