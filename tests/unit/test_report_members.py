"""What is shown of the members of a group."""

from __future__ import annotations

import pytest

from armload.analysis.members import MemberSample
from armload.analysis.run import Member, Run
from armload.deploy.exit_reason import Exit
from armload.engines.spread import ChosenSplit, LinkRates, Share, Spread
from armload.report.figures.board_activity import members_over_time
from armload.report.run_words import member_lines
from tests.unit.runs import quick_run


@pytest.fixture
def run() -> Run:
    run = quick_run()
    begin_s = run.steps[0].start_ns / 1e9
    member = Member(
        board=run.board.model_copy(update={"name": "cellar"}),
        before=run.before,
        after=None,
        memory=None,
        exit=Exit(kind="done", status=0, meaning="done"),
        threads=2,
        clock_error_s=0.004,
        samples=tuple(
            MemberSample(at_s=begin_s + second, cpu_s=1.5 * second, celsius=40.0 + second)
            for second in range(4)
        ),
    )
    spread = Spread(
        split="layer",
        shares=tuple(
            Share(board=name, layers=4, weights_bytes=1_000_000, memory_bytes=2_000_000)
            for name in ("kitchen", "cellar")
        ),
        links=(
            LinkRates(
                board="cellar", round_trip_s=0.0012, to_bytes_per_s=9e6, from_bytes_per_s=8e6
            ),
        ),
        chosen=ChosenSplit(layer_s=0.1, tensor_s=None, reason="--split auto takes layer."),
    )
    return run.model_copy(update={"members": (member,), "spread": spread})


def test_a_member_s_line_has_its_cpu_time_temperature_and_connection(run: Run) -> None:
    kitchen, cellar, chosen = member_lines(run)
    assert "connection" not in kitchen
    assert "4.50 s of CPU time, up to 43 °C, connection: round trip 1.2" in cellar
    assert "9.0 MB/s to it and 8.0 MB/s from it" in cellar
    assert chosen == "--split auto takes layer."


def test_busy_cores_of_all_members_are_drawn_on_one_clock(run: Run) -> None:
    figure = members_over_time(run)
    assert figure is not None
    assert "within 4 ms" in figure.sentence
    rows = figure.specification["datasets"]["samples"]
    theirs = [row for row in rows if row["member"] == "cellar (server)"]
    assert [row["time"] for row in theirs] == [1.0, 2.0, 3.0]
    assert [row["cores"] for row in theirs] == pytest.approx([1.5] * 3)
    assert next(row["time"] for row in rows if row["member"] == "kitchen (program)") == 0.0
    without = run.model_copy(update={"members": ()})
    assert members_over_time(without) is None
