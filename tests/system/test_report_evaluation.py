"""The pages of an evaluation and a trade-off in a real browser that can reach no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from armload.evaluation.results import points_of
from armload.evaluation.sides import find_sides
from armload.evaluation.tradeoff import trade
from armload.report.evaluation.page import evaluation_page
from armload.report.evaluation.series import EvaluationView
from armload.report.evaluation.tradeoff import TradeoffResult
from armload.report.pages import write_page
from tests.system.browser import PROGRAM, Tab, assert_drawn
from tests.unit.evaluations import evaluated

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    with pytest.MonkeyPatch.context() as context:
        context.chdir(tmp_path_factory.mktemp("evaluations"))
        made = evaluated(fails=False)
        sides = find_sides(made.evaluation.id, "")
        found = trade(*sides, deadlines_s=[0.7])
        yield {
            "evaluation": write_page(
                evaluation_page(made, EvaluationView.of(points_of(made)), "boxed"), made.folder
            ).absolute(),
            "tradeoff": TradeoffResult(sides=sides, found=tuple(found)).files["page"].absolute(),
        }


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(1200, "light", marks=pytest.mark.exhaustive(covers=["armload/report"])),
        (380, "dark"),
    ],
)
@pytest.mark.parametrize("name", ["evaluation", "tradeoff"])
def test_every_figure_is_drawn_and_fits_without_a_network_or_a_complaint(
    name: str, width: int, scheme: Literal["light", "dark"], pages: dict[str, Path], tab: Tab
) -> None:
    page = pages[name]
    tab.open(page, width=width, scheme=scheme)
    assert_drawn(tab, page, figures={"evaluation": 2, "tradeoff": 1}[name], width=width)


def test_questions_are_sorted_filtered_and_opened(pages: dict[str, Path], tab: Tab) -> None:
    tab.open(pages["evaluation"], width=1200)
    shown = """[...document.querySelectorAll("#answers tbody tr")].filter((row) => !row.hidden)
        .map((row) => row.querySelector("summary").textContent)"""
    assert tab.evaluate(shown) == ["1", "2", "3", "4"]
    for _ in "12":
        tab.evaluate("document.querySelector('#answers thead button').click()")
    assert tab.evaluate(shown) == ["4", "3", "2", "1"]
    tab.evaluate("document.querySelector(`[data-filters='answers'] [data-outcome='rw']`).click()")
    assert tab.evaluate(shown) == ["3", "2"]
    answer = "document.querySelector('#answers tbody tr:not([hidden]) td:last-child details')"
    full = f"{answer}.querySelector('.text')"
    assert tab.evaluate(f"{full}.checkVisibility()") is False
    tab.evaluate(f"{answer}.querySelector('summary').click()")
    assert tab.evaluate(f"{full}.checkVisibility()") is True
    assert tab.evaluate(f"{full}.textContent") == "I do not know"
