"""Joules from a meter's samples: the arithmetic, and when its figures may not be believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from armload.analysis.energy import FILE_NAME, Energy, Phase, PowerLine, integral, read_energy
from armload.analysis.run import Run
from armload.boards.power import PowerReading
from armload.engines.trace import Step
from armload.report.figures.board_activity import DECODE, PREFILL, power_over_tokens
from armload.report.pages import render
from armload.report.run_page import run_page
from armload.report.run_words import energy_line
from tests.unit.runs import quick_run

UPTIME_S = 5000.0
"""By how much the board's clock is ahead of this machine's."""


def step(number: int, begin_s: float, end_s: float) -> Step:
    return Step(
        step=number,
        tokens=1 if number else 100,
        prompt_tokens=0 if number else 100,
        generated_tokens=1 if number else 0,
        start_ns=round((UPTIME_S + begin_s) * 1e9),
        end_ns=round((UPTIME_S + end_s) * 1e9),
        major_faults=0,
        rss_bytes=1,
        cpu_ns=0,
    )


STEPS = (step(0, 10.0, 30.0), *(step(n, 29.0 + n, 30.0 + n) for n in range(1, 51)))
"""Prefill of 20 s, then 50 tokens of a second each."""


def reading(watts: float) -> PowerReading:
    return PowerReading(watts=watts, source="shelly at http://plug", sees="wall")


def curve(time_s: float) -> float:
    return 6 + 2 * math.sin(2 * math.pi * time_s / 17) + 0.03 * time_s


def curves_joules(begin_s: float, end_s: float) -> float:
    def whole(time_s: float) -> float:
        wave = -2 * 17 / (2 * math.pi) * math.cos(2 * math.pi * time_s / 17)
        return 6 * time_s + wave + 0.015 * time_s**2

    return whole(end_s) - whole(begin_s)


def kept(
    folder: Path,
    watts: Callable[[float], float] = curve,
    *,
    without: range = range(0),
    until: int = 90,
    drift: float = 0.0,
    idle_w: Sequence[float] = (),
    subtracts_idle: bool = False,
    steps: Sequence[Step] = STEPS,
) -> Energy | None:
    """Write samples of each second, and read them; the clocks are aligned at both ends."""
    lines = [
        PowerLine(here_s=second - 9.0, reading=reading(each), is_idle=True)
        for second, each in enumerate(idle_w)
    ]
    lines.append(PowerLine(here_s=0.0, board_s=UPTIME_S))
    for second in range(until):
        here_s = second + 0.3
        if second not in without:
            lines.append(PowerLine(here_s=here_s, reading=reading(watts(here_s * (1 + drift)))))
    lines.append(PowerLine(here_s=90.0, board_s=UPTIME_S + 90.0 * (1 + drift)))
    text = "".join(f"{line.model_dump_json()}\n" for line in lines)
    (folder / FILE_NAME).write_text(text + '{"here_s": 91')
    phases = Phase(steps[:1], 100), Phase(steps[1:], 50)
    return read_energy(folder, steps, *phases, subtracts_idle=subtracts_idle)


def good(energy: Energy | None) -> Energy:
    assert energy is not None
    assert energy.problem == ""
    return energy


def problem(energy: Energy | None) -> str:
    assert energy is not None
    assert energy.joules is None
    assert energy.joules_per_token is None
    return energy.problem


@pytest.mark.parametrize("drift", [0.0, 0.01, -0.01])
def test_a_known_curve_is_integrated_within_a_percent(tmp_path: Path, drift: float) -> None:
    found = good(kept(tmp_path, drift=drift))
    assert found.joules == pytest.approx(curves_joules(10, 80), rel=0.01)
    assert found.prefill_j == pytest.approx(curves_joules(10, 30), rel=0.01)
    assert found.decode_j == pytest.approx(curves_joules(30, 80), rel=0.01)
    assert found.joules_per_prompt_token == pytest.approx(curves_joules(10, 30) / 100, rel=0.01)
    assert found.joules_per_token == pytest.approx(curves_joules(30, 80) / 50, rel=0.01)
    assert found.average_w == pytest.approx(curves_joules(10, 80) / 70, rel=0.01)
    assert found.peak_w == pytest.approx(max(curve(t / 10) for t in range(100, 800)), rel=0.01)
    assert found.interval_s == pytest.approx(1.0, rel=0.02)
    assert found.samples in (69, 70, 71)


def test_times_outside_the_samples_have_the_nearest_ones_watts() -> None:
    samples = [(1.0, 2.0), (3.0, 4.0)]
    assert integral(samples, 0.0, 1.0) == 2.0
    assert integral(samples, 3.0, 5.0) == 8.0
    assert integral(samples, 1.5, 2.5) == 3.0
    assert integral(samples, 0.0, 4.0) == 2.0 + 6.0 + 4.0


def test_a_run_without_a_meter_has_no_energy(tmp_path: Path) -> None:
    assert read_energy(tmp_path, STEPS, Phase((), None), Phase((), None)) is None


def test_samples_that_are_missing_make_the_figures_invalid(tmp_path: Path) -> None:
    assert problem(kept(tmp_path, without=range(40, 52))) == "no samples for 13 s"
    assert problem(kept(tmp_path, until=60)) == "no samples for 21 s"
    assert "only 3 samples within 70.0 s" in problem(kept(tmp_path, until=13))
    assert good(kept(tmp_path, without=range(40, 43)))


def test_a_meter_that_is_stuck_is_not_believed(tmp_path: Path) -> None:
    assert problem(kept(tmp_path, lambda _: 4.2)) == "the meter reported a constant 4.2 W"


def test_a_meter_that_showed_nothing_says_why(tmp_path: Path) -> None:
    lines = (PowerLine(here_s=0, board_s=1), PowerLine(here_s=1, problem="no answer: refused"))
    (tmp_path / FILE_NAME).write_text("".join(f"{one.model_dump_json()}\n" for one in lines))
    found = read_energy(tmp_path, STEPS, Phase((), None), Phase((), None))
    assert problem(found) == "the meter reported nothing: no answer: refused"


def test_single_bad_answers_are_left_out(tmp_path: Path) -> None:
    kept(tmp_path)
    lines = (tmp_path / FILE_NAME).read_text().splitlines()
    for number in (15, 16, 40, 70):
        bad = PowerLine(here_s=number - 0.7, problem="-3.5 W is not a plausible power.")
        lines[number] = bad.model_dump_json()
    (tmp_path / FILE_NAME).write_text("\n".join(lines))
    found = good(read_energy(tmp_path, STEPS, Phase(STEPS[:1], 100), Phase(STEPS[1:], 50)))
    assert found.joules == pytest.approx(curves_joules(10, 80), rel=0.01)
    assert found.samples == 66


def test_clocks_that_drift_apart_too_far_make_the_figures_invalid(tmp_path: Path) -> None:
    assert problem(kept(tmp_path, drift=0.1)) == (
        "the board's clock and this machine's drifted apart by 9 s in 90 s"
    )


def test_a_meter_that_was_replaced_meanwhile_is_not_believed(tmp_path: Path) -> None:
    kept(tmp_path)
    other = PowerReading(watts=3.0, source="hwmon ina226, channel 1", sees="board")
    lines = (tmp_path / FILE_NAME).read_text().splitlines()
    lines[50] = PowerLine(here_s=50.0, reading=other).model_dump_json()
    (tmp_path / FILE_NAME).write_text("\n".join(lines))
    found = read_energy(tmp_path, STEPS, Phase(STEPS[:1], 100), Phase(STEPS[1:], 50))
    assert problem(found) == (
        "different meters were read: hwmon ina226, channel 1, shelly at http://plug"
    )


IDLE_W = (2.1, 2.0, 1.9, 2.0, 2.1, 1.9)


def test_the_idle_board_is_recorded_and_subtracted_on_request_alone(tmp_path: Path) -> None:
    gross = good(kept(tmp_path, idle_w=IDLE_W))
    assert gross.idle_w == pytest.approx(2.0)
    assert gross.joules == pytest.approx(curves_joules(10, 80), rel=0.01)
    net = good(kept(tmp_path, idle_w=IDLE_W, subtracts_idle=True))
    assert net.joules == pytest.approx(curves_joules(10, 80) - 2.0 * 70, rel=0.01)
    assert net.prefill_j == pytest.approx(curves_joules(10, 30) - 2.0 * 20, rel=0.01)
    assert net.joules_per_token == pytest.approx((curves_joules(30, 80) - 100) / 50, rel=0.01)
    assert (net.average_w, net.peak_w) == (gross.average_w, gross.peak_w)
    assert gross.basis != net.basis


def test_an_idle_board_of_too_few_samples_is_unknown_and_cannot_be_subtracted(
    tmp_path: Path,
) -> None:
    assert good(kept(tmp_path, idle_w=IDLE_W[:4])).idle_w is None
    assert problem(kept(tmp_path, idle_w=IDLE_W[:4], subtracts_idle=True)) == (
        "the power of the idle board is unknown, so it cannot be subtracted"
    )


def test_a_run_that_draws_no_more_than_the_idle_board_has_no_energy_of_its_own(
    tmp_path: Path,
) -> None:
    found = kept(tmp_path, idle_w=[9.5] * 6, subtracts_idle=True)
    assert "does not exceed the idle board's 9.50 W" in problem(found)
    assert good(kept(tmp_path, idle_w=[9.5] * 6)).joules


def metered(energy: Energy | None) -> Run:
    return quick_run().model_copy(update={"energy": energy, "steps": STEPS})


def test_the_chart_has_each_sample_at_the_token_of_its_time(tmp_path: Path) -> None:
    energy = good(kept(tmp_path, idle_w=IDLE_W))
    figure = power_over_tokens(metered(energy))
    assert figure is not None
    rows = figure.specification["datasets"]["samples"]
    assert [row["watts"] for row in rows] == [watts for _, watts in energy.curve]
    by_time = {round(row["time"], 1): row for row in rows}
    # Samples come at 0.3 s of each second; the prompt's 100 tokens take 20 s, the others a second.
    assert by_time[10.3]["number"] == pytest.approx(1 - 100 + 51.5)
    assert by_time[10.3]["kind"] == PREFILL
    assert by_time[25.3]["number"] == pytest.approx(6.3)
    assert by_time[25.3]["kind"] == DECODE
    assert figure.specification["datasets"]["idle"] == [{"watts": energy.idle_w}]


def test_there_is_no_chart_of_figures_that_may_not_be_believed(tmp_path: Path) -> None:
    assert power_over_tokens(quick_run()) is None
    assert power_over_tokens(metered(kept(tmp_path, lambda _: 4.2))) is None
    page = render(run_page(metered(kept(tmp_path))))
    assert "<h2>Power over the tokens</h2>" in page
    assert "Power over the tokens" not in render(run_page(quick_run()))


def test_steps_that_alternate_have_no_energy_of_their_own(tmp_path: Path) -> None:
    kept(tmp_path)
    found = read_energy(tmp_path, STEPS, Phase(STEPS[20:21], 1), Phase(STEPS[1:], 50))
    assert good(found).joules_per_token is None
    assert good(found).joules == pytest.approx(curves_joules(10, 80), rel=0.01)


def test_what_a_person_reads_names_the_place_and_the_samples(tmp_path: Path) -> None:
    run = quick_run().model_copy(update={"energy": kept(tmp_path)})
    line = energy_line(run)
    assert "J per token, " in line
    assert "W peak at the wall, idle power included (shelly at http://plug; 70 samples" in line
    net = kept(tmp_path, idle_w=IDLE_W, subtracts_idle=True)
    assert "idle power (2.00 W) subtracted from the energy" in energy_line(
        run.model_copy(update={"energy": net})
    )
    stuck = run.model_copy(update={"energy": kept(tmp_path, lambda _: 4.2)})
    assert energy_line(stuck) == (
        "not valid: the meter reported a constant 4.2 W (shelly at http://plug)"
    )
    assert energy_line(quick_run()) == ""
