"""What a run is told of under-voltage, heat and over-current, by what the board's script noted."""

from __future__ import annotations

import pytest

from armload.analysis.conditions_log import RunConditions
from armload.analysis.throttling import (
    ThrottledByHardware,
    ThrottledFromStart,
    ThrottleEvent,
    UnderVoltage,
    notes_about_supply,
    throttle_events,
)
from armload.boards.throttling import ThrottleReading, read_throttling
from armload.engines.plan import Plan
from tests.unit.samples import board_record, conditions
from tests.unit.test_analysis_verdict_board import LITTLE_AND_BIG, at_khz, reasons


def log(*rows: str, source: str = "firmware get_throttled") -> tuple[ThrottleReading, ...]:
    return read_throttling([f"source {source}", *(f"at {row}" for row in rows)])


def low(from_s: float, active_s: float) -> ThrottleEvent:
    return ThrottleEvent(
        cause="under-voltage", source="get_throttled", from_s=from_s, active_s=active_s
    )


def hot(source: str, from_s: float, active_s: float) -> ThrottleEvent:
    return ThrottleEvent(cause="heat", source=source, from_s=from_s, active_s=active_s)


@pytest.mark.parametrize(
    ("rows", "events"),
    [
        (["100.0 0", "160.0 0"], ()),
        # Seen before the run, and never again: not the run's.
        (["100.0 50000", "160.0 50000"], ()),
        (["100.0 0x50000", "160.0 0x50000"], ()),
        (["100.0 0", "131.0 50005", "143.0 50000", "160.0 50000"], (low(31, 12),)),
        # Low again, though it was low before the run.
        (["100.0 50000", "131.0 50005", "143.0 50000", "160.0 50000"], (low(31, 12),)),
        # Over between two looks: only the bit since the boot is new.
        (["100.0 0", "131.0 50000", "160.0 50000"], (low(31, 0),)),
        (["100.0 40000", "131.0 50000", "160.0 50000"], (low(31, 0),)),
        (["100.0 50005", "160.0 50005"], (low(0, 60),)),
        # The clock stays capped for a moment after the supply has recovered.
        (["100.0 0", "131.0 50005", "132.0 50006", "133.0 70000", "160.0 70000"], (low(31, 1),)),
        (["100.0 0", "120.0 80008", "160.0 80008"], (hot("get_throttled", 20, 40),)),
        (["100.0 0", "120.0 60006", "150.0 60000", "160.0 60000"], (hot("get_throttled", 20, 30),)),
        (
            ["100.0 0", "120.0 80008", "131.0 d0009", "160.0 d0000"],
            (hot("get_throttled", 20, 40), low(31, 29)),
        ),
        (["100.0 -", "131.0 50005", "160.0 -"], (low(31, 29),)),
    ],
)
def test_the_firmwares_bits_are_blamed_on_a_run_only_if_they_were_set_in_it(
    rows: list[str], events: tuple[ThrottleEvent, ...]
) -> None:
    assert throttle_events(log(*rows)) == events


def test_the_alarm_of_the_supply_is_under_voltage() -> None:
    found = throttle_events(log("5.0 0", "6.0 1", "8.0 0", "9.0 0", source="alarm rpi_volt"))
    assert found == (ThrottleEvent(cause="under-voltage", source="rpi_volt", from_s=1, active_s=2),)


def test_a_cooling_device_that_works_is_heat_and_an_event_is_what_it_counts() -> None:
    cooling = log("5.0 0", "6.5 3", "8.0 0", "9.0 0", source="cooling thermal-cpufreq-0")
    assert throttle_events(cooling) == (hot("thermal-cpufreq-0", 1.5, 1.5),)
    idle = log("5.0 -1", "9.0 -1", source="cooling intel_powerclamp")
    assert throttle_events(idle) == ()
    counted = log("5.0 7", "8.0 8", "9.0 8", source="overcurrent oc1_event_cnt")
    assert throttle_events(counted) == (
        ThrottleEvent(cause="over-current", source="oc1_event_cnt", from_s=3, active_s=0),
    )
    assert throttle_events(log("5.0 7", "9.0 7", source="overcurrent oc1_event_cnt")) == ()
    assert throttle_events(log("5.0 7", "9.0 9", source="events cpu0")) == (hot("cpu0", 4, 0),)


def test_two_sources_of_one_cause_make_one_event_with_the_time_of_both() -> None:
    readings = read_throttling(
        [
            "source firmware get_throttled",
            "source alarm rpi_volt",
            *(
                "at 10.0 0 0",
                "at 11.0 0 1",
                "at 12.0 50005 1",
                "at 14.0 50000 0",
                "at 20.0 50000 0",
            ),
        ]
    )
    assert throttle_events(readings) == (
        ThrottleEvent(cause="under-voltage", source="rpi_volt", from_s=1, active_s=3),
    )


def test_a_line_that_was_cut_off_is_left_out_and_an_unknown_source_refused() -> None:
    assert len(log("100.0 0", "131.0")) == 1
    assert throttle_events(()) == ()
    with pytest.raises(ValueError, match="unknown source"):
        log("1.0 0", source="oracle x")


def test_what_the_firmware_had_recorded_before_is_told() -> None:
    (note,) = notes_about_supply(log("100.0 50000"))
    assert "recorded under-voltage, throttled since the boot" in note
    assert notes_about_supply(log("100.0 5")) == []
    assert notes_about_supply(()) == []


def test_under_voltage_makes_a_run_invalid_and_is_the_one_cause_of_its_low_clock() -> None:
    slow = at_khz(600_000, 600_000, 600_000, 600_000)
    around = RunConditions(throttling=log("100.0 0", "131.0 50005", "160.0 50005"))
    board = board_record().model_copy(update={"device": "Raspberry Pi 5 Model B Rev 1.0"})
    before = conditions(clusters=LITTLE_AND_BIG)
    found = reasons(slow, around, before=before, plan=Plan(n_predict=22), board=board)
    assert found == [UnderVoltage(event=low(31, 29), device="Raspberry Pi 5 Model B Rev 1.0")]


def test_a_power_modes_limit_is_no_throttling_but_the_kernels_is() -> None:
    limited = tuple(each.model_copy(update={"limit_khz": 1_500_000}) for each in LITTLE_AND_BIG)
    before = conditions(clusters=limited)
    steps = at_khz(1_500_000, 1_500_000, 1_500_000, 1_500_000)
    quiet = RunConditions(throttling=log("1.0 0", "9.0 0", source="cooling thermal-cpufreq-0"))
    plan = Plan(n_predict=22)
    assert reasons(steps, quiet, before=before, plan=plan) == []
    busy = RunConditions(throttling=log("1.0 4", "9.0 4", source="cooling thermal-cpufreq-0"))
    assert reasons(steps, busy, before=before, plan=plan) == [
        ThrottledByHardware(event=hot("thermal-cpufreq-0", 0, 8), celsius=None),
        ThrottledFromStart(
            highest_khz=1_500_000, maximum_khz=2_400_000, governor="powersave", celsius=None
        ),
    ]
    slower = at_khz(1_200_000, 1_200_000, 1_200_000, 1_200_000)
    (found,) = reasons(slower, quiet, before=before, plan=plan)
    assert isinstance(found, ThrottledFromStart)
    assert (found.highest_khz, found.maximum_khz) == (1_200_000, 1_500_000)
