"""Real frequencies, computed from cycles and the time that they took."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.clocks import MeasuredClock, read_clocks
from armload.analysis.conditions_log import RunConditions
from armload.analysis.throttling import SlowerThanShown
from tests.unit.samples import steps_with_prompt
from tests.unit.test_analysis_verdict_board import reasons

CHAIN = 256 * 8192


def line(core: int, ns: int, shown_khz: int, cycles: int = CHAIN, by: str = "loop") -> str:
    return f'{{"core":{core},"cycles":{cycles},"ns":{ns},"by":"{by}","shown_khz":{shown_khz}}}\n'


@pytest.mark.parametrize(
    ("cycles", "ns", "khz"),
    [
        (CHAIN, 2_097_152, 1_000_000),
        (CHAIN, 3_495_253, 600_000),
        (CHAIN, 873_813, 2_400_001),
        (3_600_000, 1_500_000, 2_400_000),
        (1, 1_000_000, 1),
    ],
)
def test_a_frequency_is_cycles_over_time(cycles: int, ns: int, khz: int) -> None:
    found = MeasuredClock(moment="before", core=0, cycles=cycles, ns=ns, by="loop", shown_khz=0)
    assert found.khz == khz
    assert not found.is_slower_than_shown


def test_what_was_measured_before_and_after_is_read_and_nonsense_left_out(tmp_path: Path) -> None:
    assert read_clocks(tmp_path) == ()
    (tmp_path / "clock").write_text(
        line(0, 1_000_000, 2_400_000)
        + line(4, 1, 2_400_000)
        + line(5, 0, 2_400_000)
        + "#after\n"
        + line(0, 3_000_000, 2_400_000, by="counter")
        + line(4, 873_813, 2_400_000)[:20]
    )
    first, last = read_clocks(tmp_path)
    assert (first.moment, first.khz, first.by) == ("before", 2_097_152, "loop")
    assert (last.moment, last.khz, last.by) == ("after", 699_051, "counter")


def test_the_core_that_is_furthest_below_what_is_shown_is_the_finding(tmp_path: Path) -> None:
    steps = steps_with_prompt([0.1] * 8)
    (tmp_path / "clock").write_text(line(0, 900_000, 2_400_000) + line(4, 2_300_000, 1_000_000))
    assert reasons(steps, RunConditions(clocks=read_clocks(tmp_path))) == []
    (tmp_path / "clock").write_text(
        line(0, 1_100_000, 2_400_000) + line(4, 4_000_000, 1_400_000) + "#after\n"
    )
    slow, slowest = read_clocks(tmp_path)
    assert slow.is_slower_than_shown
    found = reasons(steps, RunConditions(clocks=(slow, slowest)))
    assert found == [SlowerThanShown(clock=slowest)]
