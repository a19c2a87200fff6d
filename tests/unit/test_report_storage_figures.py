"""The figures of runs that read their weights from storage."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.columns import compute_s
from armload.analysis.run import Run
from armload.engines.trace import Weights
from armload.report.cells import cells_of
from armload.report.figures.figure import Figure
from armload.report.figures.free_memory import MAPPED, STREAMED, free_memory
from armload.report.figures.memory import (
    KV,
    LOCKED,
    OTHER,
    UNLOCKED,
    memory_parts,
)
from armload.report.figures.memory import STREAMED as STREAMED_PART
from armload.report.figures.storage_wait import COMPUTING, MOST_BARS, WAITING, storage_wait
from armload.report.multi_run import figures_of
from armload.report.run_facts import weights_line
from armload.report.table import NewRun
from tests.unit.pages import Page
from tests.unit.runs import BOARD, quick_run, storage_run
from tests.unit.streamed import (
    COMPUTE_S,
    FREE_BYTES,
    HELD,
    RELEASED,
    STORAGE_BYTES_PER_S,
    mapped_run,
    streamed_run,
)
from tests.unit.sweeps import made_run

STREAMED_S = HELD.streamed_bytes / STORAGE_BYTES_PER_S


def rows(figure: Figure | None, name: str) -> list[dict[str, Any]]:
    assert figure is not None
    found = figure.specification["datasets"][name]
    assert isinstance(found, list)
    return found


def said(figure: Figure | None) -> str:
    assert figure is not None
    return figure.sentence


def requested(resident_bytes: int) -> Weights:
    return HELD.model_copy(
        update={
            "requested_bytes": resident_bytes,
            "resident_bytes": resident_bytes,
            "locked_bytes": resident_bytes,
        }
    )


def names(*runs: Run) -> set[str]:
    return {figure.name for figure in figures_of(cells_of(runs))}


def test_the_figures_of_storage_are_drawn_only_where_tokens_read_it() -> None:
    assert {"storage-wait", "free-memory", "memory"} < names(streamed_run())
    assert {"storage-wait", "free-memory", "memory"} < names(storage_run())
    assert not {"storage-wait", "free-memory"} & names(quick_run(), made_run())


def test_each_token_s_time_is_what_computing_and_waiting_make_together() -> None:
    figure = storage_wait(cells_of([streamed_run()]))
    tokens = rows(figure, "tokens")
    assert {row["part"] for row in tokens} == {COMPUTING, WAITING}
    for _, parts in groupby(tokens, key=lambda row: row["first"]):
        computing, waiting = parts
        assert (computing["low"], computing["high"]) == (0.0, pytest.approx(COMPUTE_S))
        assert waiting["low"] == computing["high"]
        assert waiting["high"] == pytest.approx(STREAMED_S)
    assert tokens[0]["tokens"] == "2"


def test_an_estimate_leaves_the_threads_the_time_that_they_ran() -> None:
    step = mapped_run().steps[1]
    reading_only = compute_s(step, step.read_bytes / step.duration_s if step.read_bytes else 0, 2)
    assert reading_only == pytest.approx(step.cpu_ns / 1e9 / 2)
    timed = step.model_copy(update={"storage_wait_ns": 0})
    assert compute_s(timed, 1.0, 2) == step.duration_s


def test_many_tokens_share_bars_that_leave_none_out() -> None:
    run = streamed_run(tokens=3 * MOST_BARS)
    tokens = rows(storage_wait(cells_of([run])), "tokens")
    assert len(tokens) == 2 * MOST_BARS
    assert tokens[0]["tokens"] == "2 to 4"
    assert tokens[-1]["end"] == 3 * MOST_BARS + 0.5


def memory_at_the_end(run: Run) -> dict[str, float]:
    steps = rows(memory_parts(cells_of([run])), "steps")
    return {row["part"]: row["mb"] for row in steps if row["seconds"] == steps[-1]["seconds"]}


def test_resident_memory_is_split_into_parts_that_sum_up_to_it() -> None:
    run = streamed_run()
    parts = memory_at_the_end(run)
    assert sum(parts.values()) == pytest.approx(run.steps[-1].rss_bytes / 1e6)
    assert parts[LOCKED] == pytest.approx((run.steps[-1].locked_bytes or 0) / 1e6)
    assert parts[STREAMED_PART] == pytest.approx(HELD.window_bytes / 1e6)
    assert parts[KV] == pytest.approx(256 * 32_768 / 1e6)
    assert UNLOCKED not in parts
    assert parts[OTHER] > 0


def test_weights_that_may_not_be_locked_are_a_part_of_their_own() -> None:
    copied = HELD.model_copy(
        update={"locked_bytes": 1_000_000, "anonymous_bytes": 500_248_000, "lock_refused": True}
    )
    parts = memory_at_the_end(streamed_run(copied))
    assert parts[UNLOCKED] == pytest.approx(500.248)
    assert parts[LOCKED] < 1


@pytest.mark.parametrize(("kind", "part"), [("locked", LOCKED), ("anonymous", UNLOCKED)])
def test_what_is_released_leaves_its_part(kind: str, part: str) -> None:
    def held(weights: Weights) -> Weights:
        size = weights.locked_bytes
        return weights.model_copy(update={"locked_bytes": 200_000, f"{kind}_bytes": size})

    steps = rows(memory_parts(cells_of([streamed_run(held(HELD), held(RELEASED))])), "steps")
    sizes = [row["mb"] for row in steps if row["part"] == part]
    assert sizes[3] - sizes[4] == pytest.approx(RELEASED.released_bytes / 1e6)


def test_a_cache_of_fewer_bits_is_smaller_and_an_unknown_one_is_said_to_be() -> None:
    run = streamed_run()
    assert run.plan is not None
    plan = run.plan.model_copy(update={"kv_type": "q8_0"})
    halved = memory_at_the_end(run.model_copy(update={"plan": plan}))
    assert halved[KV] == pytest.approx(256 * 32_768 * 8.5 / 16 / 1e6)
    unknown = run.model_copy(update={"command": ("llama-completion",)})
    assert KV not in memory_at_the_end(unknown)
    assert "The KV cache, of unknown size, is part of other" in said(
        memory_parts(cells_of([unknown]))
    )


def test_several_cells_and_mapped_weights_keep_their_lines() -> None:
    assert memory_parts(cells_of([streamed_run(), mapped_run()])) is None
    assert memory_parts(cells_of([mapped_run()])) is None


def line(figure: Figure | None, mode: str) -> list[tuple[float, float]]:
    return [(row["mb"], row["time"]) for row in rows(figure, "curves") if row["mode"] == mode]


def test_streaming_gets_faster_with_memory_and_mapping_only_once_all_fits() -> None:
    figure = free_memory(cells_of([streamed_run(), mapped_run()]))
    streamed, mapped = line(figure, STREAMED), line(figure, MAPPED)
    times = [time for _, time in streamed]
    assert times == sorted(times, reverse=True)
    assert len({round(time, 6) for _, time in mapped}) == 2
    assert times[-1] == mapped[-1][1] < min(times[0], mapped[0][1])
    (rule,) = rows(figure, "boards")
    assert (rule["mb"], rule["text"]) == (FREE_BYTES / 1e6, "this board: 730.0 MB free")


def test_a_measured_run_lies_on_the_curve_that_its_own_memory_gives() -> None:
    figure = free_memory(cells_of([streamed_run()]))
    (point,) = rows(figure, "points")
    assert point["mb"] == FREE_BYTES / 1e6
    beside = min(line(figure, STREAMED), key=lambda each: abs(each[0] - point["mb"]))
    assert point["time"] == pytest.approx(beside[1], rel=0.06)


def test_a_requested_size_stands_where_as_much_would_stay_by_itself() -> None:
    asked = [100_000_000, 300_000_000, HELD.resident_bytes]
    figure = free_memory(cells_of([streamed_run(), *map(streamed_run, map(requested, asked))]))
    points = [row["mb"] for row in rows(figure, "points")]
    assert len(set(points)) == 4
    assert points[2] - points[1] > 200
    assert min(abs(mb - FREE_BYTES / 1e6) for mb in points[:3]) < 10
    assert "Runs with --resident are drawn at" in said(figure)


def test_far_more_memory_is_marked_at_the_edge_and_stretches_nothing() -> None:
    run = streamed_run(requested(200_000_000), free_bytes=23_000_000_000)
    figure = free_memory(cells_of([run]))
    (rule,) = rows(figure, "boards")
    assert (rule["is_beyond"], rule["text"]) == (True, "this board: 23.0 GB free →")
    assert rule["mb"] == max(row["mb"] for row in rows(figure, "curves")) < 2000


def test_no_streaming_is_predicted_where_none_was_seen() -> None:
    figure = free_memory(cells_of([storage_run()]))
    assert line(figure, STREAMED) == []
    assert line(figure, MAPPED)


def test_one_model_is_drawn_and_each_board_has_a_rule() -> None:
    assert free_memory(cells_of([streamed_run(), storage_run()])) is None
    other = streamed_run(free_bytes=900_000_000)
    other = other.model_copy(update={"board": BOARD.model_copy(update={"name": "cellar"})})
    figure = free_memory(cells_of([streamed_run(), other]))
    assert [row["text"] for row in rows(figure, "boards")] == [
        "virtual-dayu200: 730.0 MB free",
        "cellar: 900.0 MB free",
    ]
    assert {row["line"] for row in rows(figure, "curves")} == {
        f"{board}: {mode}" for board in ("virtual-dayu200", "cellar") for mode in (STREAMED, MAPPED)
    }


def test_what_was_requested_locked_and_read_is_one_line() -> None:
    assert weights_line(streamed_run()) == (
        "streamed: 501.2 MB locked (VmLck 501.1 MB), 599.0 MB streamed per token (measured "
        "599.0 MB), direct and buffered reads, window 42.8 MB, 2.0 major faults per token; "
        "requested: what fits"
    )
    assert "177.5 MB released" in weights_line(streamed_run(HELD, RELEASED))
    assert weights_line(streamed_run(requested(200_000_000))).endswith(
        "requested: 200.0 MB resident"
    )
    assert weights_line(mapped_run()) == "mapped, as requested"
    assert weights_line(quick_run()) == ""


def test_weights_that_cannot_be_streamed_are_mapped_for_a_reason() -> None:
    run = streamed_run()
    reason = Weights(weights="mapped", before_step=0, reason="no thread could be started")
    assert run.trace is not None
    trace = run.trace.model_copy(update={"weights": (reason,)})
    assert weights_line(run.model_copy(update={"trace": trace})) == (
        "mapped: no thread could be started"
    )


def test_the_page_of_a_run_shows_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    page = NewRun(run=streamed_run(), folder=tmp_path).files["page"].read_text(encoding="utf-8")
    shown = Page(page).shown
    assert weights_line(streamed_run()) in shown
    for name in ("storage-wait", "memory", "free-memory"):
        assert f'id="chart-{name}"' in page
    assert (
        "chart-storage-wait"
        not in NewRun(run=quick_run(), folder=tmp_path).files["page"].read_text()
    )
