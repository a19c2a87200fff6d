"""Loads whose rate varies: requests come as the stages say, and each stage has its own figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from rich.console import Console

from armload.analysis.load.comparison import compare_loads
from armload.analysis.load.records import Objectives
from armload.core.errors import RunError, UsageError
from armload.core.progress import Progress, ProgressStep, Silent
from armload.report.load.loaded import LoadView
from armload.report.load.page import load_page
from armload.report.load.table import load_view
from armload.report.pages import render
from armload.serving.arrivals import Arrivals, read_arrivals, read_stages
from armload.serving.load_runner import LoadRunner
from armload.serving.loads import LoadFolder, observed_points
from armload.serving.target import LoadTarget, StopCondition
from armload.serving.workload import Listed
from tests.stub_service import ASK, stub_service, target
from tests.unit.pages import Page
from tests.unit.test_serving_load import Board


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def drawn(kind: str, *stages: str, seed: int = 1) -> tuple[float, ...]:
    return read_arrivals(kind).staged(read_stages(stages), seed=seed)


def between(times: tuple[float, ...], from_s: float, to_s: float) -> int:
    return sum(from_s <= time_s < to_s for time_s in times)


@pytest.mark.parametrize("kind", ["poisson", "constant", "gamma:4"])
def test_each_step_has_its_rate(kind: str) -> None:
    times = drawn(kind, "10:100", "40:100", "5:200")
    assert list(times) == sorted(times)
    assert between(times, 0, 100) == pytest.approx(1000, rel=0.1)
    assert between(times, 100, 200) == pytest.approx(4000, rel=0.1)
    assert between(times, 200, 400) == pytest.approx(1000, rel=0.1)
    assert times[-1] < 400


def test_a_ramp_grows_evenly_and_keeps_the_bursts_of_its_kind() -> None:
    times = drawn("poisson", "0.000001-100:100")
    thirds = [between(times, *span) for span in ((0, 25), (25, 50), (50, 75), (75, 100))]
    assert thirds == pytest.approx([312, 938, 1562, 2188], rel=0.12)
    # Time that is stretched back by the rate has exponential gaps.
    stretched = [time_s**2 / 2 for time_s in times]
    gaps = [after - before for before, after in pairwise(stretched)]
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(1.0, abs=0.1)
    falling = drawn("constant", "100-0.000001:100")
    assert between(falling, 0, 50) == pytest.approx(3 * between(falling, 50, 100), rel=0.01)


def test_a_constant_rate_in_stages_is_what_it_is_without_them() -> None:
    whole = Arrivals(kind="constant").schedule(4.0, duration_s=20.0, requests=None, seed=1)
    assert drawn("constant", "4:5", "4:15") == pytest.approx(whole)
    assert drawn("poisson", "4:20", seed=2) != drawn("poisson", "4:20")


@pytest.mark.parametrize(
    "text", ["", "1", "1:", "1:0", ":5", "-1:5", "1-:5", "0:5", "1:5:5", "nan:5", "1..2:5", "2e9:1"]
)
def test_a_stage_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="must be RATE:SECONDS") as error:
        read_stages([text])
    assert "0.5:60" in error.value.remedy


def test_stages_without_requests_or_with_too_many_are_refused() -> None:
    with pytest.raises(UsageError, match="would send no request"):
        drawn("poisson", "0.001:1")
    with pytest.raises(UsageError, match="too large"):
        drawn("poisson", "1000:100000")
    with pytest.raises(UsageError, match="seed"):
        drawn("seed", "1:10")


class Shown(Silent):
    """Keeps the rows of steps."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        del label, total, unit
        yield self

    def update(
        self,
        completed: float,
        *,
        total: float | None = None,
        note: str = "",
        rows: Sequence[tuple[str, str]] = (),
    ) -> None:
        del completed, total, note
        if rows:
            self.rows.append(dict(rows))


def staged(
    aim: LoadTarget,
    *stages: str,
    objectives: Objectives | None = None,
    warmup: int = 0,
    most: int | None = None,
    progress: Progress | None = None,
) -> LoadFolder:
    read = read_stages(stages)
    arrivals = Arrivals(kind="constant")
    shown = progress or Silent()
    loading = LoadRunner(aim, Listed([ASK], "a file"), arrivals, 1, shown, objectives)
    times = arrivals.staged(read, seed=1)
    return loading.staged(read, times, StopCondition(warmup=warmup), most)


def test_each_stage_has_its_own_requests_and_figures_in_order_of_time() -> None:
    with stub_service() as service:
        kept = staged(
            target(service.url),
            *("40:0.5", "10:0.5", "40:0.5"),
            objectives=Objectives(ttft_s=60.0),
            warmup=3,
        )
    kept = LoadFolder.read(kept.folder)
    points = kept.load.points
    assert [point.requests for point in points] == [20, 5, 20]
    assert [len(kept.requests(number)) for number in range(3)] == [20, 5, 20]
    assert not any(point.is_under_way for point in points)
    assert len({point.began_client_s for point in points}) == 1
    assert kept.requests(1)[0].scheduled_s == pytest.approx(0.5)
    loaded = LoadView.of(kept)
    assert [point.assessed.metrics.ok for point in loaded.points] == [17, 5, 20]
    assert [point.label for point in loaded.points] == [
        "40 requests/s (0 to 0.5 s)",
        "10 requests/s (0.5 to 1 s)",
        "40 requests/s (1 to 1.5 s)",
    ]
    # What comes after another stage shows nothing of a steady state.
    assert loaded.capacity is None
    for point in loaded.points:
        goodput = point.assessed.metrics.goodput
        assert goodput is not None
        assert (goodput.share, goodput.verdict, goodput.interval) == (1.0, "undecided", None)
        assert point.assessed.metrics.steady is None
        ttft = point.assessed.metrics.from_scheduled.ttft
        assert ttft is not None
        assert ttft.median.low_s is None


def test_a_page_and_a_table_of_stages_say_why_there_are_no_intervals() -> None:
    with stub_service() as service:
        kept = staged(target(service.url), "40:0.5", "10-40:0.5")
    loaded = LoadView.of(kept)
    console = Console(width=200, file=StringIO())
    console.print(load_view(loaded))
    assert isinstance(console.file, StringIO)
    shown = " ".join(console.file.getvalue().split())
    for text in (Page(render(load_page(loaded))).shown, shown):
        assert "No confidence intervals: the rate varies" in text
        assert "10 to 40" in text


def test_stages_are_compared_with_the_same_stage_alone() -> None:
    with stub_service() as service:
        one = staged(target(service.url), "40:0.5", "20:0.5", "40:0.5")
        other = staged(target(service.url), "40:0.5", "20:0.5", "40:0.5")
    found = compare_loads(*LoadView.of(one).compared, *LoadView.of(other).compared)
    levels = [each.level for each in found if each.level]
    assert [each.stage.start_s for each in levels if each.stage] == [0.0, 0.5, 1.0]
    assert {each.repeats for each in levels} == {1}
    assert {each.finding for each in found} == {"inconclusive"}


def test_samples_and_trace_of_a_board_belong_to_the_stage_of_their_time() -> None:
    with stub_service() as service:
        board = Board(service)
        kept = staged(target(service.url, service=board, board="kitchen"), "10:1.2", "10:1.2")
    began_s = kept.load.points[0].began_client_s + 1000.0
    for number, (from_s, to_s) in enumerate(((-9, 1.2), (1.2, 99))):
        times = [sample.at_s - began_s for sample in kept.board_samples(number)]
        assert times
        assert all(from_s <= time_s < to_s for time_s in times)
    (first_s, _), (second_s, _) = board.asked
    assert second_s - first_s == pytest.approx(1.2)
    assert kept.trace_file(1).read_text() == "header\nstep\n"
    first, last = observed_points(kept, None)
    assert first.power == last.power
    assert [line.is_idle for line in last.power] == [True, False]
    assert (first.next_stage_s, last.next_stage_s) == (1.2, None)


def test_what_a_server_says_of_itself_belongs_to_the_stage_of_its_time() -> None:
    with stub_service() as service:
        kept = staged(target(service.url), "10:1.2", "10:2.2")
    began_s = kept.load.points[0].began_client_s
    for number, (from_s, to_s) in enumerate(((-9, 1.2), (1.2, 99))):
        times = [sample.at_client_s - began_s for sample in kept.server_samples(number)]
        assert times
        assert all(from_s <= time_s < to_s for time_s in times)
    (_, second) = LoadView.of(kept).points
    names = [each.name for each in second.assessed.server]
    assert "llamacpp:requests_processing" in names


def test_a_cap_holds_back_the_requests_of_stages_too() -> None:
    with stub_service(header_s=0.1) as service:
        kept = staged(target(service.url), "40:0.25", "20:0.5", most=1)
    records = kept.requests(0) + kept.requests(1)
    assert len(records) == 20
    by_begin = sorted(records, key=lambda record: record.begun_s or 0.0)
    assert all(b.begun_s is not None and b.begun_s >= a.end_s for a, b in pairwise(by_begin))
    assert {point.max_concurrency for point in kept.load.points} == {1}
    assert kept.requests(1)[0].held_s > 0.3


def test_the_rate_of_the_stage_that_runs_is_shown() -> None:
    shown = Shown()
    with stub_service() as service:
        staged(target(service.url), "20:0.7", "10-30:0.7", progress=shown)
    asked = [rows["rate"].partition(",")[0] for rows in shown.rows]
    assert list(dict.fromkeys(asked)) == ["20 requests/s asked", "10 to 30 requests/s asked"]


def test_a_server_that_ends_leaves_the_stages_before_it_valid() -> None:
    with stub_service() as service:
        board = Board(service, ends_after=11)
        aim = target(service.url, service=board, board="kitchen")
        arrivals = Arrivals(kind="constant")
        loading = LoadRunner(aim, Listed([ASK], "a file"), arrivals, 1, Silent())
        stages = read_stages(["20:0.5", "0.1:600"])
        with pytest.raises(RunError, match="was killed"):
            loading.staged(stages, arrivals.staged(stages, seed=1), StopCondition())
    assert loading.kept is not None
    first, second = loading.kept.load.points
    assert (first.service_ended, second.service_ended) == ("", "kitchen: llama-server was killed.")
    assert {each.outcome for each in loading.kept.requests(0)} == {"ok"}
    assert json.loads(loading.kept.board_file(0).read_text().splitlines()[0])["at_s"] > 0
