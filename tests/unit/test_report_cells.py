"""Runs as cells: what is a repeat, what counts, and what tells cells apart."""

from __future__ import annotations

import json
from statistics import median

import pytest

from armload.analysis.run import Run
from armload.engines.job import SweepPoint
from armload.report.cell_table import cell_table
from armload.report.cells import Cell, as_fast_as, cells_of, estimate, fastest, fastest_of_each
from tests.unit.runs import failed_run, quick_run, storage_run
from tests.unit.runs import planned as with_plan
from tests.unit.sweeps import Q4, Q8, failed_run_of, made_run, sweep


def planned(run: Run, name: str = "", **changes: object) -> Run:
    return with_plan(run, **changes).model_copy(update={"id": f"{run.id}{name}"})


def labels(*runs: Run) -> list[str]:
    return [cell.label for cell in cells_of(runs)]


def test_repeats_are_one_cell_and_a_run_that_is_named_twice_is_one_run() -> None:
    runs = [made_run(repeat=0), made_run(repeat=1), made_run(repeat=0)]
    (cell,) = cells_of(runs)
    assert [run.id for run in cell.runs] == sorted({run.id for run in runs})


@pytest.mark.parametrize(
    "other",
    [
        made_run(Q8),
        made_run(threads=2),
        made_run(board="cellar"),
        planned(made_run(), "x", n_predict=64),
        planned(made_run(), "x", kv_type="q8_0"),
    ],
    ids=["model", "threads", "board", "tokens", "cache"],
)
def test_what_was_not_asked_alike_is_another_cell(other: Run) -> None:
    assert len(cells_of([made_run(), other])) == 2


def test_another_build_is_another_cell_and_a_longer_time_limit_is_not() -> None:
    run = made_run()
    binary = run.binary.model_copy(update={"sha256": "6" * 64, "build_id": "aaaaaaaaaaaa"})
    rebuilt = run.model_copy(update={"binary": binary, "id": f"{run.id}x"})
    assert labels(run, rebuilt) == ["build 3f2a9c81d07e", "build aaaaaaaaaaaa"]
    assert len(cells_of([run, planned(run, "x", time_limit_s=9.0)])) == 1


def test_runs_whose_weights_were_not_repacked_are_another_cell() -> None:
    run = quick_run()
    short = run.model_copy(update={"id": "short", "command": (*run.command, "--no-repack")})
    cells = cells_of([run, short])
    assert sorted(cell.label for cell in cells) == ["weights repacked no", "weights repacked yes"]


def test_a_label_holds_what_differs_and_no_more() -> None:
    assert labels(made_run()) == ["Llama-3.2-1B-Instruct-Q4_0"]
    assert labels(made_run(Q4, 1), made_run(Q8, 1)) == ["Q4_0", "Q8_0"]
    assert labels(made_run(Q4, 1), made_run(Q4, 2)) == ["1 thread", "2 threads"]
    assert labels(made_run(Q4, 1), made_run(Q8, 2)) == ["Q4_0, 1 thread", "Q8_0, 2 threads"]
    assert labels(made_run(), made_run(board="cellar")) == ["cellar", "kitchen"]
    assert labels(made_run(), planned(made_run(), "x", context_tokens=512)) == [
        "context default",
        "context 512",
    ]


def test_models_are_named_by_the_words_that_they_do_not_share() -> None:
    larger = Q8.model_copy(
        update={"name": "Llama-3.2-3B-Instruct-Q8_0.gguf", "sha256": "3" * 64, "parameters": 3}
    )
    assert labels(made_run(Q4), made_run(larger)) == ["1B-Q4_0", "3B-Q8_0"]
    same_name = Q4.model_copy(update={"sha256": "9" * 64, "parameters": 5})
    assert labels(made_run(Q4), made_run(same_name)) == [
        "Llama-3.2-1B-Instruct-Q4_0 44444444",
        "Llama-3.2-1B-Instruct-Q4_0 99999999",
    ]


def test_threads_that_the_engine_chose_are_said_so() -> None:
    chosen = planned(made_run(threads=4), "x", threads=None)
    assert labels(chosen, made_run(threads=2)) == ["2 threads", "auto: 4 threads"]
    assert len(cells_of([chosen, made_run(threads=4)])) == 1


def test_only_valid_runs_make_a_cell_s_figures() -> None:
    good = [made_run(threads=8, repeat=repeat) for repeat in range(4)]
    slow = made_run(threads=8, repeat=4, throttled=True)
    (cell,) = cells_of([*good, slow])
    assert (cell.state, len(cell.valid), len(cell.runs)) == ("partly valid", 4, 5)
    rates = [run.summary.decode_tps for run in good if run.summary.decode_tps]
    assert cell.decode_tps is not None
    assert cell.decode_tps.value == pytest.approx(median(rates))
    assert slow not in cell.counted


def test_a_cell_without_a_valid_run_shows_its_figures_and_is_never_the_best() -> None:
    doubtful, slower = cells_of([made_run(threads=4, throttled=True), made_run(threads=8)])
    assert doubtful.state == "not valid"
    assert doubtful.decode_tps is not None
    assert doubtful.doubted_label == "4 threads (not valid)"
    only_doubtful = cells_of([made_run(threads=4, throttled=True)])
    assert fastest(only_doubtful) is None
    assert fastest([doubtful, slower]) is slower


def test_a_failed_cell_has_a_state_and_no_figures() -> None:
    (cell,) = cells_of([failed_run_of(Q8, 4), failed_run_of(Q8, 4, repeat=1)])
    assert (cell.state, cell.decode_tps, cell.median_s, cell.typical) == (
        "failed",
        None,
        None,
        None,
    )
    assert cell.threads == 4


def test_warm_ups_of_a_sweep_make_no_figure() -> None:
    cold = made_run(repeat=9)
    place = SweepPoint(sweep="s", cell=0, round=0, warm_up=True)
    (cell,) = cells_of([cold.model_copy(update={"place": place}), made_run()])
    assert cold.id not in [run.id for run in cell.runs]
    (alone,) = cells_of([cold.model_copy(update={"place": place})])
    assert [run.id for run in alone.runs] == [cold.id]


def test_the_typical_run_is_the_one_in_the_middle() -> None:
    runs = [made_run(repeat=repeat) for repeat in range(5)]
    (cell,) = cells_of(runs)
    times = {run.summary.token_s.p50: run.id for run in runs if run.summary.token_s}
    assert cell.typical is not None
    assert cell.typical.id == times[median(times)]
    assert cell.median_s == median(times)


def test_an_interval_needs_four_runs_to_say_more_than_the_usual_difference() -> None:
    few = estimate([10.0, 10.0])
    assert few is not None
    assert few.low == pytest.approx(10 / 1.05)
    assert few.high == pytest.approx(10.5)
    many = estimate([9.98, 10.0, 10.02, 10.01, 9.99])
    assert many is not None
    assert 9.9 < many.low < many.value < many.high < 10.1
    assert estimate([None, 0.0, float("nan"), float("inf")]) is None


def test_a_run_s_own_tokens_may_leave_its_rate_in_more_doubt_than_that() -> None:
    (few,) = cells_of([quick_run(tokens=6)])
    times = few.rows_s[0]
    doubt = max(max(times) / median(times), median(times) / min(times))
    rate = few.decode_tps
    assert rate is not None
    assert rate.high / rate.value == pytest.approx(1.05 * doubt)
    assert rate.value / rate.low == pytest.approx(1.05 * doubt)


def test_what_may_be_as_fast_is_as_fast_as_the_best() -> None:
    best, alike, slower = cells_of(
        [
            *(made_run(threads=4, repeat=repeat) for repeat in range(5)),
            *(planned(made_run(threads=4, repeat=each), "x", seed=2) for each in range(5)),
            *(made_run(threads=8, repeat=repeat) for repeat in range(5)),
        ]
    )
    assert as_fast_as(best, [best, alike, slower]) == [alike]


def test_of_too_many_cells_the_fastest_of_each_series_stay() -> None:
    cells = [cell for cell in cells_of(sweep()) if cell.decode_tps]
    assert fastest_of_each(cells, 8) == cells
    assert [cell.label for cell in fastest_of_each(cells, 7)] == [
        "Q4_0, 4 threads",
        "Q8_0, 4 threads",
    ]
    assert [cell.label for cell in fastest_of_each(cells, 1)] == ["Q4_0, 4 threads"]


def entries(cells: list[Cell]) -> list[dict[str, str]]:
    table = cell_table(cells)
    headings = [column.key or column.heading for column in table.columns]
    return [
        dict(zip(headings, [str(entry.text) for entry in row.entries], strict=True))
        for row in table.rows
    ]


def test_every_cell_is_a_row_of_the_table_the_failed_and_the_doubtful_too() -> None:
    rows = entries(cells_of(sweep()))
    assert len(rows) == 9
    assert [row["verdict"] for row in rows] == [
        *["valid", "valid", "valid, fastest", "valid"],
        *["valid", "valid", "valid", "partly valid"],
        "failed",
    ]
    assert [row["valid_runs"] for row in rows][-2:] == ["4/5", "0/2"]
    assert rows[-1]["decode_tps"] == "-"
    assert rows[2]["decode_tps"] == "6.98"
    assert list(rows[0])[:4] == ["model", "quantisation", "threads", "board"]


def test_a_setting_is_a_column_only_where_it_differs() -> None:
    run = made_run()
    assert "context" not in entries(cells_of([run]))[0]
    rows = entries(cells_of([run, planned(run, "x", context_tokens=4096)]))
    assert [row["context"] for row in rows] == ["default", "4096"]


def test_numbers_sort_as_numbers_and_a_missing_one_has_none() -> None:
    table = cell_table(cells_of(sweep()))
    decode = [column.key for column in table.columns].index("decode_tps")
    numbers = [row.entries[decode].number for row in table.rows]
    assert numbers[-1] is None
    assert all(isinstance(number, float) for number in numbers[:-1])
    assert table.rows[0].entries[decode].range == "2.36–2.39"


def test_a_storage_run_and_a_failed_one_stand_beside_each_other() -> None:
    rows = entries(cells_of([storage_run(), failed_run(), quick_run()]))
    assert [row["verdict"] for row in rows] == ["failed", "valid, fastest", "valid"]
    assert [row["limited by"] for row in rows] == ["-", "compute", "storage"]


def test_a_record_that_was_changed_by_hand_breaks_nothing() -> None:
    content = json.loads(made_run().model_dump_json())
    content["summary"]["decode_tps"] = 0
    content["steps"][3]["end_ns"] = content["steps"][3]["start_ns"]
    (cell,) = cells_of([Run.model_validate(content)])
    assert cell.decode_tps is None
