"""The page of a load: what stands on it, and where its figures are from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import altair
import pytest

from armload.core.errors import DataError, UsageError
from armload.report.load.loaded import LoadView
from armload.report.load.page import load_page
from armload.report.load.point_table import point_table
from armload.report.load.requests import means
from armload.report.pages import Report, render, write_report
from armload.serving.loads import LoadFolder
from tests.unit.pages import HOSTILE, Page
from tests.unit.served_loads import keep, points
from tests.unit.simulated_server import HIGHEST_KHZ, Asked, Simulated, records_of

SERVER = Simulated(slots=4, khz=lambda at_s: HIGHEST_KHZ if at_s < 90 else HIGHEST_KHZ * 2 // 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loads") / "20261123T070822Z-load-kitchen-2303"
    keep(points(SERVER), folder)
    return folder


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadView:
    return LoadView.of(keep(points(SERVER), folder))


@pytest.fixture(scope="module")
def report(loaded: LoadView, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return write_report(load_page(loaded), tmp_path_factory.mktemp("report"))


def test_what_was_kept_is_what_was_recorded(loaded: LoadView, folder: Path) -> None:
    kept = LoadFolder.read(folder)
    for number, (read, made) in enumerate(zip(loaded.points, points(SERVER), strict=True)):
        assert kept.requests(number) == records_of(made)
        numbers = [record.number for record in read.observed.records]
        assert numbers == [record.number for record in made.records]
        assert read.observed.steps == made.steps
        assert read.observed.samples == made.samples
        assert read.observed.slots == made.slots


def test_every_point_is_a_row_of_the_table(loaded: LoadView, report: Report) -> None:
    assert Page(report.page.read_text()).rows == 3
    titles = [column.title for column in point_table(loaded).columns]
    assert len(set(titles)) == len(titles), "they are the keys of the JSON document"
    shares = [float(row["within SLO"]) for row in report.table]
    assert shares == sorted(shares, reverse=True)


def test_every_chart_follows_the_schema_of_vega_lite(loaded: LoadView) -> None:
    for figure in load_page(loaded).figures:
        altair.Chart.from_json(json.dumps(figure.specification))  # which checks it


def test_the_timeline_is_of_the_first_point_that_is_not_sustained(loaded: LoadView) -> None:
    assert loaded.telling.label == "1 request/s"
    (timeline,) = [each for each in load_page(loaded).figures if each.name == "timeline"]
    rows = timeline.specification["datasets"]["requests"]
    assert len({row["number"] for row in rows}) <= 120
    by_number: dict[int, list[dict[str, float]]] = {}
    for row in rows:
        by_number.setdefault(row["number"], []).append(row)
    records = {record.number: record for record in loaded.telling.observed.records}
    for number, bars in by_number.items():
        assert bars[0]["at"] == records[number].scheduled_s
        assert bars[-1]["until"] == records[number].end_s


def test_the_timeline_shows_no_queue_that_is_not_known(tmp_path: Path) -> None:
    (observed,) = points(SERVER, rates=(0.2,))
    records = [
        record.model_copy(
            update={
                "timings": None,
                "begun_s": record.scheduled_s + 0.1,
                "held_s": 0.07,
                "sent_s": sent_s,
            }
        )
        for record in records_of(observed)
        if (sent_s := record.scheduled_s + 0.3)
    ]
    loaded = LoadView.of(keep([replace(observed, records=tuple(records))], tmp_path / "a"))
    (timeline,) = [each for each in load_page(loaded).figures if each.name == "timeline"]
    rows = timeline.specification["datasets"]["requests"]
    lasts = {
        phase: [row["seconds"] for row in rows if row["phase"] == phase]
        for phase in {row["phase"] for row in rows}
    }
    assert lasts.keys() == {"client late", "held back", "connecting", "prompt", "generating"}
    for phase, seconds in (("client late", 0.03), ("held back", 0.07), ("connecting", 0.2)):
        assert lasts[phase] == pytest.approx([seconds] * len(records))


def test_the_parts_of_the_time_add_up_to_the_mean_latency(loaded: LoadView) -> None:
    for point in loaded.points:
        found, e2e = means(point), point.assessed.metrics.from_scheduled.e2e
        assert found is not None
        assert e2e is not None
        assert found.total_s == pytest.approx(e2e.mean_s)


def test_without_objectives_the_page_says_what_made_requests_slow(tmp_path: Path) -> None:
    loaded = LoadView.of(keep(points(SERVER), tmp_path / "a", objectives=None))
    page = Page(render(load_page(loaded))).shown
    assert "answered at most" in page
    assert "Those that took more than twice the time" in page
    assert "Requests queue: all four slots were busy" in page


def test_a_service_that_is_known_by_its_address_alone_has_a_page(tmp_path: Path) -> None:
    kept = keep(points(SERVER), tmp_path / "a")
    for path in kept.folder.iterdir():
        if path.name.startswith(("trace", "board", "service")):
            path.unlink()
    loaded = LoadView.of(kept)
    page = Page(render(load_page(loaded))).shown
    assert "requests queue" in page
    assert "decode step" not in page


def test_one_request_at_one_rate_has_a_page(tmp_path: Path) -> None:
    loaded = LoadView.of(keep([Simulated().serve([Asked(at_s=0.0)], rate=0.1)], tmp_path / "a"))
    assert "may or may not sustain 0.1 requests/s" in Page(render(load_page(loaded))).shown


def test_a_load_of_which_every_request_failed_has_a_page(tmp_path: Path) -> None:
    observed = Simulated().serve([Asked(at_s=float(at_s)) for at_s in range(10)], rate=1)
    failed = tuple(
        record.model_copy(update={"outcome": "dropped", "chunks": (), "error": "it ended"})
        for record in records_of(observed)
    )
    kept = keep([type(observed)(**{**vars(observed), "records": failed})], tmp_path / "a")
    loaded = LoadView.of(kept)
    page = Page(render(load_page(loaded))).shown
    assert "10 requests failed (10 dropped)" in page
    assert "does not sustain 1 request/s" in page


def test_a_load_that_was_stopped_before_its_first_request_has_no_report(tmp_path: Path) -> None:
    kept = keep([Simulated().serve([Asked(at_s=0.0)], rate=1)], tmp_path / "a")
    kept.entries_file(0).write_bytes(b"")
    with pytest.raises(UsageError, match="has no requests"):
        load_page(LoadView.of(kept))


def test_what_was_modified_is_refused_with_its_place(tmp_path: Path) -> None:
    kept = keep([Simulated().serve([Asked(at_s=0.0)], rate=1)], tmp_path / "a")
    kept.board_file(0).write_text('{"at_s": "late"}\n')
    with pytest.raises(DataError, match=r"board-0\.jsonl.*at_s"):
        LoadView.of(kept)
    kept.board_file(0).unlink()
    (kept.folder / "service.json").write_text("{}")
    with pytest.raises(DataError, match=r"service\.json"):
        LoadView.of(kept)


def test_text_from_a_service_stays_text(tmp_path: Path) -> None:
    kept = keep(points(SERVER, (0.5,)), tmp_path / "a", board=HOSTILE, model=HOSTILE)
    loaded = LoadView.of(kept)
    parsed = Page(render(load_page(loaded)))
    assert parsed.tags.count("script") == 2
    assert "img" not in parsed.tags
    assert HOSTILE in "".join(parsed.words)
