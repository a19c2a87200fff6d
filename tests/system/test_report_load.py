"""The page of a load in a real browser that can reach no network."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from armload.report.load.loaded import LoadView
from armload.report.load.page import load_page
from armload.report.pages import write_page
from tests.system.browser import PROGRAM, Tab, assert_drawn
from tests.unit.served_loads import keep, points
from tests.unit.simulated_server import Asked, Simulated
from tests.unit.test_analysis_load_energy import metered

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed")

FIGURES = ("latency", "goodput", "timeline", "parts", "distribution")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loads") / "20261123T070822Z-load-kitchen-2303"
    loaded = LoadView.of(keep(points(Simulated()), folder))
    return write_page(load_page(loaded), folder)


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(1200, "light", marks=pytest.mark.exhaustive(covers=["armload/report"])),
        (380, "dark"),
    ],
)
def test_every_figure_is_drawn_and_fits_without_a_network_or_a_complaint(
    width: int, scheme: Literal["light", "dark"], page: Path, tab: Tab
) -> None:
    tab.open(page, width=width, scheme=scheme)
    assert_drawn(tab, page, figures=len(FIGURES), width=width)


def test_a_metered_load_of_few_requests_is_drawn_without_a_complaint(
    tmp_path: Path, tab: Tab
) -> None:
    few = Simulated().serve([Asked(at_s=2.0 * n) for n in range(8)], rate=0.5)
    loaded = LoadView.of(keep([metered(few)], tmp_path / "20261123T070822Z-load-kitchen-2304"))
    assert loaded.points[0].assessed.energy is not None
    latencies = loaded.points[0].assessed.metrics.from_scheduled.e2e
    assert latencies is not None
    assert latencies.percentiles["p50"].low_s is None, "too few for an interval"
    page = write_page(load_page(loaded), tmp_path)
    tab.open(page, width=1200)
    assert tab.complaints == []
    assert "J per request, " in tab.evaluate("document.body.innerText")


def test_the_tracks_of_the_timeline_share_one_time_axis(page: Path, tab: Tab) -> None:
    tab.open(page, width=1200)
    widths = tab.evaluate(
        """[...document.querySelectorAll("#chart-timeline .concat_0_group, \
        #chart-timeline .concat_1_group, #chart-timeline .concat_2_group")]
        .map((each) => each.querySelector(".background").getBoundingClientRect())
        .map((box) => Math.round(box.width))"""
    )
    assert isinstance(widths, list)
    assert len(widths) == 3
    assert len(set(widths)) == 1


def test_slow_requests_are_chosen_by_their_cause(page: Path, tab: Tab) -> None:
    tab.open(page, width=1200)
    shown = """(() => {
      document.querySelector("[data-filters='slow'] [data-outcome='queued']").click();
      return [...document.querySelectorAll("#slow tbody tr")].filter((row) => !row.hidden)
        .map((row) => row.dataset.outcome);
    })()"""
    causes = tab.evaluate(shown)
    assert isinstance(causes, list)
    assert set(causes) == {"queued"}
