"""Thermal zones that count, and those that are left out."""

from __future__ import annotations

import pytest

from armload.boards.sensors import Sensor, chosen_names, chosen_zones, hottest, read_sensors

JETSON = (
    "0 42500 CPU-therm",
    "1 - CV0-therm",
    "2 100000 PMIC-Die",
    "3 41000 GPU-therm",
    "4 -256000 CV1-therm",
)


def test_a_dummy_an_error_and_an_impossible_value_are_left_out_and_named() -> None:
    found = read_sensors(JETSON)
    assert {each.name: each.left_out for each in found} == {
        "CPU-therm": None,
        "CV0-therm": "no answer",
        "PMIC-Die": "constant",
        "GPU-therm": None,
        "CV1-therm": "implausible",
    }
    assert hottest(found) == Sensor(zone=0, name="CPU-therm", celsius=42.5)
    assert chosen_zones(found) == (0, 3)


@pytest.mark.parametrize("value", ["0", "-40000", "-40", "-273150", "150000", "200", "255000"])
def test_what_no_board_survives_does_not_count(value: str) -> None:
    (sensor,) = read_sensors([f"0 {value} soc"])
    assert sensor.left_out == "implausible"
    assert hottest([sensor]) is None


@pytest.mark.parametrize(
    ("value", "celsius"), [("-39900", -39.9), ("149000", 149), ("99500", 99.5)]
)
def test_what_a_board_can_have_counts(value: str, celsius: float) -> None:
    (sensor,) = read_sensors([f"7 {value} PMIC-Die"])
    assert sensor == Sensor(zone=7, name="PMIC-Die", celsius=celsius)


def test_the_boards_file_chooses_also_a_zone_that_would_be_left_out() -> None:
    found = read_sensors(JETSON, ("PMIC-Die", "GPU-therm"))
    assert [each.name for each in found if each.left_out is None] == ["PMIC-Die", "GPU-therm"]
    assert chosen_zones(found) == (2, 3)
    assert read_sensors(JETSON, chosen_names(found)) == found


def test_without_a_constant_or_a_choice_programs_read_all_zones() -> None:
    assert chosen_zones(read_sensors(["0 41000 soc", "1 - dead", "2 0 zero"])) == ()
    assert chosen_names(read_sensors(JETSON)) == ()
