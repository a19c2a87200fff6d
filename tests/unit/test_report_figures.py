"""The figures of a report: what they say, and the data and colours that they are drawn from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import altair
import pytest

from armload.analysis.run import Run
from armload.report.cells import Cell, cells_of
from armload.report.drawing import COLOURS, MOST_LINES, SHAPES, wrapped
from armload.report.figures.distribution import distribution
from armload.report.figures.figure import Figure, thinned
from armload.report.figures.memory import memory
from armload.report.figures.models import models
from armload.report.figures.over_time import PROMPT, over_time
from armload.report.figures.threads import NOT_VALID, threads
from armload.report.multi_run import figures_of
from tests.unit.runs import failed_run, planned, quick_run, storage_run, weights_bytes
from tests.unit.sweeps import Q4, Q8, failed_run_of, made_run, sweep


@cache
def swept() -> tuple[Cell, ...]:
    return tuple(cells_of(sweep()))


def rows(figure: Figure | None, name: str) -> list[dict[str, Any]]:
    assert figure is not None
    found = figure.specification["datasets"][name]
    assert isinstance(found, list)
    return found


def said(figure: Figure | None) -> str:
    assert figure is not None
    return figure.sentence


def from_storage(*, size_ratio: float, time_ratio: float) -> Sequence[Run]:
    small = storage_run()
    model = small.model.model_copy(
        update={
            "name": "Llama-3.1-8B-Instruct-Q8_0.gguf",
            "sha256": "c" * 64,
            "quantisation": "Q8_0",
            "bytes_per_token": round(weights_bytes(small.model) * size_ratio),
        }
    )
    steps = tuple(
        step.model_copy(
            update={"end_ns": step.start_ns + round((step.end_ns - step.start_ns) * time_ratio)}
        )
        for step in small.steps
    )
    return [small, small.model_copy(update={"id": "large", "model": model, "steps": steps})]


def titles(*runs: Run) -> list[str]:
    return [figure.name for figure in figures_of(cells_of(runs))]


def test_a_figure_is_there_only_where_the_runs_give_it() -> None:
    assert titles(quick_run()) == ["time-per-token", "distribution", "memory"]
    assert titles(failed_run()) == []
    assert "models" in titles(made_run(Q4), made_run(Q8))
    assert "models" not in titles(made_run(Q4, 1), made_run(Q8, 2))
    assert "threads-decode" in titles(made_run(Q4, 1), made_run(Q4, 2))
    assert "threads-decode" not in titles(made_run(Q4, 1), made_run(Q8, 2))


def axes(part: Any) -> list[str]:
    if isinstance(part, list):
        return [title for each in part for title in axes(each)]
    if not isinstance(part, dict):
        return []
    encoding = part.get("encoding", {})
    own = [encoding[axis].get("title") for axis in ("x", "y") if axis in encoding]
    inner = [part.get(key) for key in ("layer", "spec")]
    return [title for title in own if title] + axes([each for each in inner if each])


def test_every_chart_follows_the_schema_of_vega_lite() -> None:
    for figure in figures_of(swept()):
        altair.Chart.from_json(json.dumps(figure.specification))  # which checks it


def test_colours_and_shapes_are_one_each_for_every_line() -> None:
    assert len(set(COLOURS)) == len(set(SHAPES)) == len(COLOURS) == len(SHAPES) == MOST_LINES


def test_the_best_number_of_threads_is_said_and_marked() -> None:
    figure = threads(swept(), "decode")
    best = [
        (row["kind"], row["threads"], row["text"]) for row in rows(figure, "rates") if row["best"]
    ]
    assert best == [("Q4_0", 4, "6.98"), ("Q8_0", 4, "4.15")]
    assert len(rows(figure, "rates")) == 8


def test_a_throttled_run_is_drawn_beside_its_cell_and_not_counted_in_it() -> None:
    (doubtful,) = rows(threads(swept(), "decode"), "doubtful")
    assert (doubtful["kind"], doubtful["threads"]) == (NOT_VALID, 8)
    (cell,) = (row for row in rows(threads(swept(), "decode"), "rates") if row["runs"][0] == "4")
    assert cell["low"] <= cell["tps"] <= cell["high"]
    assert doubtful["tps"] < 0.8 * cell["low"]


def test_a_doubtful_cell_is_never_the_best_number_of_threads() -> None:
    cells = cells_of(
        [made_run(threads=4, throttled=True), made_run(threads=1), made_run(threads=2)]
    )
    assert "Fastest with 2 threads" in said(threads(cells, "decode"))
    assert {row["threads"] for row in rows(threads(cells, "decode"), "rates")} == {1, 2}
    only = cells_of([made_run(threads=each, throttled=True) for each in (2, 4)])
    assert said(threads(only, "decode")).startswith("No decode rate is valid")
    assert rows(threads(only, "decode"), "rates") == []


def test_thread_counts_that_cannot_be_told_from_the_best_are_named() -> None:
    runs = [made_run(threads=each, repeat=repeat) for each in (1, 4, 8) for repeat in range(5)]
    assert "significantly" not in said(threads(cells_of(runs), "decode"))
    close = made_run(threads=4)
    plan = planned(close, threads=3).plan
    trace = close.trace.model_copy(update={"threads": 3}) if close.trace else None
    three = close.model_copy(update={"id": "three", "plan": plan, "trace": trace})
    assert "not significantly faster than with 3" in said(
        threads(cells_of([*runs, three]), "decode")
    )


def test_the_best_is_said_to_be_the_last_tried_where_the_board_has_more_cores() -> None:
    cells = cells_of([made_run(threads=each) for each in (1, 2, 4)])
    assert "with 4 threads, the most that were tried:" in said(threads(cells, "decode"))
    assert "most that were tried" not in said(threads(swept(), "decode"))


def test_rates_that_are_far_apart_have_a_scale_for_both() -> None:
    def kind(figure: Figure | None) -> str:
        assert figure is not None
        return str(figure.specification["layer"][0]["encoding"]["y"]["scale"].get("type"))

    assert kind(threads(swept(), "decode")) == "None"
    slow = [made_run(Q8, each) for each in (1, 2)]
    slowed = [
        run.model_copy(update={"summary": run.summary.model_copy(update={"decode_tps": 0.05})})
        for run in slow
    ]
    assert kind(threads(cells_of([*slowed, *map(made_run, [Q4] * 2, (1, 2))]), "decode")) == "log"


def test_what_is_not_counted_is_a_filled_mark_larger_than_what_is() -> None:
    figure = threads(cells_of(sweep()), "decode")
    assert figure is not None
    marks = {
        layer["data"]["name"]: layer["mark"]
        for layer in figure.specification["layer"]
        if layer["mark"]["type"] == "point" and layer["mark"].get("filled")
    }
    assert marks["doubtful"]["size"] > marks["rates"]["size"]


def test_crosses_alone_are_explained_by_a_legend() -> None:
    figure = threads(
        cells_of([made_run(threads=each, throttled=True) for each in (2, 4)]), "decode"
    )
    assert figure is not None
    (layer,) = figure.specification["layer"]
    assert layer["encoding"]["color"]["legend"] is not None


def test_figures_at_one_place_are_not_written_over_one_another() -> None:
    boards = ("kitchen", "cellar")
    cells = cells_of([made_run(threads=each, board=board) for each in (1, 4) for board in boards])
    marked = [row for row in rows(threads(cells, "decode"), "rates") if row["best"]]
    assert len(marked) == 2
    assert len([row for row in marked if row["text"]]) == 1


def test_time_beside_size_says_that_reading_decides() -> None:
    cells = cells_of(from_storage(size_ratio=2.67, time_ratio=2.73))
    assert said(models(cells)) == (
        "Q8_0 takes 2.73 times as long per token as Q2_K, and reads 2.67 times as many bytes: "
        "reading from storage is the limit."
    )
    time, size = rows(models(cells), "ratios")
    assert (time["text"], size["text"]) == ("2.73", "2.67")
    assert time["low"] < 2.73 < time["high"]


@pytest.mark.parametrize(
    ("time_ratio", "conclusion"),
    [
        (1.2, "the larger one takes less time per byte, so not all time is spent reading"),
        (4.0, "the larger one takes longer per byte, so compute takes time in addition to reading"),
    ],
)
def test_time_and_size_apart_say_so(time_ratio: float, conclusion: str) -> None:
    cells = cells_of(from_storage(size_ratio=2.67, time_ratio=time_ratio))
    assert said(models(cells)).endswith(f": {conclusion}.")


def test_a_larger_model_that_alone_reads_storage_is_said_to() -> None:
    small, large = made_run(Q4), made_run(Q8)
    stored = large.model_copy(update={"limit": storage_run().limit})
    assert said(models(cells_of([small, stored]))).endswith(
        "only the larger one waits for storage."
    )


def test_models_are_held_to_the_smallest_only_where_all_else_is_alike() -> None:
    pairs = [row["pair"] for row in rows(models(swept()), "pairs")]
    assert pairs == [
        f"Q8_0 against Q4_0, {count}"
        for count in ("1 thread", "2 threads", "4 threads", "8 threads")
    ]


def test_slow_tokens_are_counted_by_their_cause() -> None:
    figure = over_time(swept())
    kinds = {row["kind"] for row in rows(figure, "steps")}
    assert {"slow: contention", PROMPT} < kinds
    assert {row["cell"] for row in rows(figure, "steps")} == {
        cell.label for cell in swept() if cell.typical
    }


def test_a_run_with_many_slow_tokens_says_so() -> None:
    figure = over_time(cells_of([made_run(throttled=True), made_run(threads=2)]))
    assert said(figure).startswith("16 of 62 tokens of the 2 runs shown stand out as slow: ")
    assert "15 by throttling" in said(figure)
    assert said(figure).endswith("; 15 of them with 4 threads (not valid).")
    assert "slow: throttling" in {row["kind"] for row in rows(figure, "steps")}


def test_panels_that_differ_much_have_scales_of_their_own() -> None:
    apart = over_time(cells_of([storage_run(), quick_run()]))
    assert apart is not None
    assert apart.specification["resolve"]["scale"] == {"y": "independent"}
    alike = over_time(swept())
    assert alike is not None
    assert "scale" not in alike.specification["resolve"]


def test_a_distribution_runs_from_none_to_all_and_marks_the_median() -> None:
    run = quick_run(tokens=64)
    figure = distribution(cells_of([run]))
    line = rows(figure, "tokens")
    assert [line[0]["share"], line[-1]["share"]] == [0.0, 1.0]
    assert [row["time"] for row in line] == sorted(row["time"] for row in line)
    (mark,) = rows(figure, "medians")
    times = run.summary.token_s
    assert times is not None
    assert mark["time"] == pytest.approx(times.p50 * 1000)


def test_long_times_are_in_seconds() -> None:
    figure = distribution(cells_of([storage_run()]))
    assert figure is not None
    assert "time per token (s)" in axes(figure.specification)


def test_the_quickest_and_the_steadiest_are_named_and_never_a_doubtful_one() -> None:
    assert said(distribution(swept())).startswith("Fastest is Q4_0, 4 threads: half")
    cells = cells_of([made_run(threads=4, throttled=True), made_run(threads=1)])
    assert said(distribution(cells)).startswith("Fastest is 1 thread: half")
    assert "4 threads (not valid): median" in str(rows(distribution(cells), "medians"))


def test_memory_is_drawn_over_time_beside_what_was_free() -> None:
    figure = memory(cells_of([made_run()]))
    steps = rows(figure, "steps")
    assert steps[0]["mb"] == pytest.approx(((Q4.size_bytes or 0) + 60_000_000) / 1e6)
    assert steps[0]["seconds"] == pytest.approx(0.7, abs=0.1)
    assert [row["last"] for row in steps].count(True) == 1
    assert rows(figure, "boards") == [{"mb": 1870.0, "text": "free: 1.9 GB"}]


def test_much_more_free_memory_than_was_taken_presses_no_line_to_the_ground() -> None:
    figure = memory(cells_of([quick_run()]))
    assert rows(figure, "boards") == []
    assert said(figure).endswith("131.0 MB, 7% of the 1.9 GB that were free before.")


def test_more_memory_than_was_free_is_said() -> None:
    run = made_run()
    before = run.before.model_copy(update={"memory_available_bytes": 500_000_000})
    figure = memory(cells_of([run.model_copy(update={"before": before})]))
    assert said(figure).endswith("837.1 MB, more than the 500.0 MB that were free before.")


def test_boards_with_other_memory_have_rules_of_their_own() -> None:
    run = made_run(board="cellar")
    before = run.before.model_copy(update={"memory_available_bytes": 900_000_000})
    small = run.model_copy(update={"before": before})
    figure = memory(cells_of([made_run(), small]))
    assert [row["text"] for row in rows(figure, "boards")] == [
        "free, kitchen: 1.9 GB",
        "free, cellar: 900.0 MB",
    ]
    same = memory(cells_of([made_run(), made_run(board="cellar")]))
    assert [row["text"] for row in rows(same, "boards")] == ["free: 1.9 GB"]


def test_failed_cells_take_no_figure_away() -> None:
    with_failed = figures_of(cells_of([made_run(), failed_run_of(Q8, 4)]))
    assert [figure.name for figure in with_failed] == ["time-per-token", "distribution", "memory"]


def test_long_lines_are_thinned_without_losing_what_stands_out() -> None:
    lines = [{"number": number} for number in range(1000)]
    kept = thinned(lines, 100, always=[number == 777 for number in range(1000)])
    assert len(kept) == 102
    assert {"number": 777} in kept
    assert kept[-1] == {"number": 999}
    assert thinned(lines[:50], 100, always=[False] * 50) == lines[:50]


def test_labels_break_between_their_parts() -> None:
    assert wrapped("kitchen, 1B-Q8_0, 4 threads: median 141 ms", 30) == (
        "kitchen, 1B-Q8_0, 4 threads:\nmedian 141 ms"
    )
    assert wrapped("short", 30) == "short"
