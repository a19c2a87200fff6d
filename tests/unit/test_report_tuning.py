"""The page of a search for settings: what stands on it, and what its figures say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armload.analysis.statistics import Interval
from armload.core.errors import UsageError
from armload.core.workspace import reports_folder
from armload.report.pages import Report, write_report
from armload.report.tuning.figures import effects_of, front_of
from armload.report.tuning.page import tuning_page
from armload.report.tuning.table import settings_table
from armload.report.tuning.view import TuningView
from armload.tuning.record import SearchResult, TuningFolder, Violation
from tests import command_line
from tests.unit.kept_tunings import SPACE, entry, kept, setting
from tests.unit.pages import HOSTILE, Page

RUN = "20261123T120001Z-kitchen-m-0001"

ENTRIES = (
    entry(0, SPACE.defaults, 0.40, run=RUN),
    entry(1, setting(4), 0.20, run="20261123T120002Z-kitchen-m-gone"),
    entry(2, setting(4), 0.21, rung=1),
    entry(3, setting(4, "q8_0"), 0.25, rss=80_000_000, same=False),
    entry(4, setting(1, "q8_0"), 1.0, rss=80_000_000, same=False),
    entry(5, setting(1), 0.8),
    entry(6, setting(4, "q4_0"), 0.05, status="violates", reason="not text", same=False),
    entry(7, setting(2, "q4_0"), None, status="failed", reason="exit 1", rss=None, same=None),
)
RESULT = SearchResult(
    winner=setting(4),
    cost=0.205,
    interval=Interval(low=0.19, high=0.22),
    ended="No other configuration can be more than 2% faster.",
    trials=len(ENTRIES),
    took_s=80.0,
    violation=Violation(setting=setting(4, "q4_0"), cost=0.05, reason="not text"),
    sentence="1.95 times as fast as the defaults (95%: 1.90 to 2.01), 4 threads.",
    plan="tuned-kitchen-m.yaml",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("person")
    (folder / "boards").mkdir()
    (folder / "runs" / RUN).mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def tuned(folder: Path) -> TuningFolder:
    tuned = kept(folder, ENTRIES)
    tuned.end(RESULT)
    return tuned


@pytest.fixture(scope="module")
def view(tuned: TuningFolder) -> TuningView:
    return TuningView.of(tuned)


@pytest.fixture
def report(view: TuningView, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(folder)
    place = reports_folder() / view.tuning.id
    return write_report(tuning_page(view, place), place)


def test_every_setting_is_a_row_with_what_became_of_it(view: TuningView, report: Report) -> None:
    assert Page(report.page.read_text()).rows == 7
    table = settings_table(view)
    headings = [column.heading for column in table.columns]
    assert len(set(headings)) == len(headings), "they are the keys of the JSON document"
    verdicts = [row["verdict"] for row in report.table]
    assert verdicts[0] == "winner, Pareto front"
    assert verdicts[-2:] == ["violates: not text", "failed: exit 1"]
    assert [row.is_best for row in table.rows] == [True] + 6 * [False]


def test_trials_link_to_their_runs_as_far_as_those_are_there(report: Report) -> None:
    page = Page(report.page.read_text())
    links = [link for link in page.links if "kitchen-m" in link]
    assert [(report.page.parent / link).resolve().name for link in links] == [RUN]
    assert "20261123T120002Z-kitchen-m-gone" in page.shown


def test_the_leader_is_who_led_after_each_trial(view: TuningView) -> None:
    leaders = [step.leader.setting if step.leader else None for step in view.steps]
    assert leaders[:3] == [SPACE.defaults, setting(4), setting(4)]
    assert leaders[-1] == setting(4), "a setting that violates never leads"


def test_an_effect_is_that_of_the_choice_alone(view: TuningView) -> None:
    effects = {(each.parameter, each.choice): each.slower for each in effects_of(view)}
    # One thread costs 0.8 and 1.0 where four cost 0.205 and 0.25: some four times as much.
    assert effects["threads", "4"] == 1.0
    assert effects["threads", "1"] == pytest.approx(4.0, rel=0.15)
    assert ("threads", "2") not in effects, "nothing was measured with it"


def test_the_front_holds_what_nothing_beats_in_speed_memory_and_quality(view: TuningView) -> None:
    assert [each.setting for each in front_of(view)] == [setting(4), setting(4, "q8_0")]


def test_an_objective_without_memory_has_no_such_figure(tmp_path: Path) -> None:
    entries = tuple(each.model_copy(update={"max_rss_bytes": None}) for each in ENTRIES)
    view = TuningView.of(kept(tmp_path, entries, objective="total-time"))
    report = write_report(tuning_page(view, tmp_path / "out"), tmp_path / "out")
    assert [picture.name for picture in report.figures] == ["best-so-far", "effects"]
    text = Page(report.page.read_text()).shown
    assert "The search is incomplete. Best so far: 0.205 s with 4 threads." in text


def test_a_search_in_which_nothing_worked_has_a_page(tmp_path: Path) -> None:
    failed = (entry(0, SPACE.defaults, None, status="failed", reason="exit 1", rss=None),)
    page = tuning_page(TuningView.of(kept(tmp_path, failed)), tmp_path / "out")
    report = write_report(page, tmp_path / "out")
    assert report.figures == ()
    text = Page(report.page.read_text()).shown
    assert "Every configuration has failed so far." in text
    assert "failed: exit 1" in text


def test_a_search_without_trials_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trials yet"):
        tuning_page(TuningView.of(kept(tmp_path, ())), tmp_path)


def test_nothing_that_a_board_says_becomes_part_of_the_page(tmp_path: Path) -> None:
    hostile = entry(1, setting(1, HOSTILE), 0.3, status="violates", reason=HOSTILE, run=HOSTILE)
    view = TuningView.of(kept(tmp_path, (ENTRIES[0], hostile)))
    report = write_report(tuning_page(view, tmp_path / "out"), tmp_path / "out")
    page = Page(report.page.read_text())
    assert "img" not in page.tags
    assert HOSTILE in "".join(page.words)


def test_show_and_report_take_a_tuning_by_its_id(folder: Path, tuned: TuningFolder) -> None:
    cache = folder / "cache"
    shown = command_line.typed(folder, "show", tuned.tuning.id, cache=cache)
    assert shown.returncode == 0
    assert RESULT.sentence in shown.stdout
    as_json = command_line.typed(folder, "show", "latest-tune", "--json", cache=cache)
    assert json.loads(as_json.stdout)["tuning"]["id"] == tuned.tuning.id
    _, ending = tuned.tuning.id.split("-", 1)
    written = command_line.typed(folder, "report", ending, "--json", cache=cache)
    assert written.returncode == 0
    assert Path(json.loads(written.stdout)["page"]).is_file()
