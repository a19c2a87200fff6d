"""What requests took from the supply: over a point, without its warm-up, and as it is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from armload.analysis.energy import PowerLine
from armload.analysis.load.assessed import PointEnergy, assess
from armload.analysis.load.telemetry import ObservedPoint
from armload.boards.power import PowerReading
from armload.cli import terminal
from armload.report.formatting import joules as joules_words
from armload.report.load.loaded import LoadView
from armload.report.load.page import load_page
from armload.report.load.table import load_view, remarks
from armload.report.pages import render
from tests.unit.pages import Page
from tests.unit.served_loads import keep
from tests.unit.simulated_server import BEGAN_CLIENT_S, Asked, Simulated, records_of

REQUESTS = 40
OBSERVED = Simulated().serve([Asked(at_s=2.0 * n) for n in range(REQUESTS)], rate=0.5)


def watts(time_s: float) -> float:
    return 4.0 + 0.02 * time_s


def metered(
    observed: ObservedPoint,
    shown: Callable[[float], float] = watts,
    *,
    until_s: int = 200,
    subtracts_idle: bool = False,
) -> ObservedPoint:
    def line(time_s: float, value: float, *, is_idle: bool = False) -> PowerLine:
        reading = PowerReading(watts=value, source="shelly at http://plug", sees="wall")
        return PowerLine(here_s=BEGAN_CLIENT_S + time_s, reading=reading, is_idle=is_idle)

    idle = [line(second - 20.0, 1.5, is_idle=True) for second in range(7)]
    samples = [line(second - 3.3, shown(second - 3.3)) for second in range(until_s)]
    return replace(observed, power=(*idle, *samples), subtracts_idle=subtracts_idle)


def energy_at(observed: ObservedPoint) -> PointEnergy:
    found = assess(observed, {}, None).energy
    assert found is not None
    return found


def joules(begin_s: float, end_s: float) -> float:
    return 4.0 * (end_s - begin_s) + 0.01 * (end_s**2 - begin_s**2)


def test_the_energy_of_a_point_is_divided_by_its_requests_and_their_tokens() -> None:
    found = energy_at(metered(OBSERVED))
    whole_j = joules(0.0, max(record.end_s for record in OBSERVED.records))
    assert found.problem == ""
    assert found.joules == pytest.approx(whole_j, rel=0.01)
    assert found.joules_per_request == pytest.approx(whole_j / REQUESTS, rel=0.01)
    assert found.joules_per_token == pytest.approx(whole_j / REQUESTS / 20, rel=0.01)
    assert found.idle_w == 1.5


def test_the_idle_board_is_subtracted_on_request() -> None:
    end_s = max(record.end_s for record in OBSERVED.records)
    found = energy_at(metered(OBSERVED, subtracts_idle=True))
    assert found.joules == pytest.approx(joules(0.0, end_s) - 1.5 * end_s, rel=0.01)
    assert found.average_w == pytest.approx(joules(0.0, end_s) / end_s, rel=0.01)


def test_failed_requests_take_energy_and_are_no_requests_and_warm_up_is_left_out() -> None:
    records = [
        record.model_copy(
            update={"is_warmup": number < 10, "outcome": "dropped" if number % 2 else "ok"}
        )
        for number, record in enumerate(records_of(OBSERVED))
    ]
    found = energy_at(metered(replace(OBSERVED, records=tuple(records))))
    whole_j = joules(20.0, max(record.end_s for record in records))
    assert found.joules == pytest.approx(whole_j, rel=0.01)
    assert found.joules_per_request == pytest.approx(whole_j / 15, rel=0.01)


def test_the_energy_of_stages_adds_up_to_that_of_the_load() -> None:
    whole = metered(OBSERVED)
    records = records_of(OBSERVED)
    first = replace(whole, records=tuple(records[:10]), next_stage_s=records[10].scheduled_s)
    last = replace(whole, records=tuple(records[10:]))
    energies = [energy_at(each) for each in (first, last)]
    assert energies[0].joules == pytest.approx(joules(0.0, 20.0), rel=0.01)
    assert energies[0].joules_per_request == pytest.approx(joules(0.0, 20.0) / 10, rel=0.01)
    assert sum(each.joules or 0.0 for each in energies) == pytest.approx(energy_at(whole).joules)


def test_a_point_whose_meter_fell_silent_has_no_energy() -> None:
    found = energy_at(metered(OBSERVED, until_s=40))
    assert found.joules_per_request is None
    assert "no samples for" in found.problem


def test_a_point_without_a_meter_or_without_requests_has_none() -> None:
    assert assess(OBSERVED, {}, None).energy is None
    nobody = replace(OBSERVED, records=())
    assert assess(metered(nobody), {}, None).energy is None


def test_table_and_page_have_the_energy_of_each_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = LoadView.of(keep([metered(OBSERVED)], tmp_path / "a", objectives=None))
    energy = loaded.points[0].assessed.energy
    assert energy == energy_at(metered(OBSERVED))
    assert energy.joules_per_request is not None
    shown = joules_words(energy.joules_per_request)
    terminal.show(load_view(loaded))
    said = capsys.readouterr().out
    page = Page(render(load_page(loaded))).shown
    assert "at the wall, idle power (1.50 W) included" in " ".join(said.split())
    assert "at the wall, idle power (1.50 W) included" in page
    assert shown in said
    assert shown in page
    assert "J/request" in page


def test_energy_that_is_not_valid_is_said_and_has_no_figure(tmp_path: Path) -> None:
    stuck = metered(OBSERVED, lambda _: 4.2)
    loaded = LoadView.of(keep([stuck], tmp_path / "a", objectives=None))
    assert "At 0.5/s, energy not valid: the meter reported a constant 4.2 W (shelly at " in (
        " ".join(remarks(loaded.points[0].assessed))
    )
