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
    "line",
    [
        "0 87 soc",
        "0 4210 vbat",
        "0 310 ibat",
        "0 4199 pm8150b-vbat-lvl0",
        "0 1200 pmi632-ibat-lvl1",
    ],
)
def test_what_a_battery_shows_is_no_temperature(line: str) -> None:
    (sensor,) = read_sensors([line])
    assert sensor.left_out == "no temperature"
    assert chosen_zones([sensor, Sensor(zone=1, name="cpu", celsius=40)]) == (1,)
    (chosen,) = read_sensors([line], [sensor.name])
    assert chosen.left_out is None


# As https://developer.aliyun.com/article/1502065 shows them of a Snapdragon 625 (msm8953).
MSM8953 = (
    *("0 25000 bms", "1 -40 pa_therm1", "10 309 tsens_tz_sensor5", "11 309 tsens_tz_sensor6"),
    *("13 322 tsens_tz_sensor8", "17 319 tsens_tz_sensor12", "2 31 xo_therm"),
    *("20 306 tsens_tz_sensor15", "21 32636 pm8953_tz", "22 30 pa_therm0", "23 25000 battery"),
)


def test_zones_in_thousandths_tenths_and_whole_degrees_are_told_apart() -> None:
    found = {each.name: each for each in read_sensors(MSM8953)}
    assert found["tsens_tz_sensor8"].celsius == 32.2
    assert found["xo_therm"].celsius == 31
    assert found["pm8953_tz"].celsius == 32.636
    assert [each.name for each in found.values() if each.left_out] == ["pa_therm1"]
    # A program of ours that reads them knows no names.
    zones = chosen_zones([*found.values()])
    assert zones == (0, 10, 11, 13, 17, 2, 20, 21, 22, 23)
    (other,) = read_sensors(["0 309 gpu"])
    assert other.left_out == "implausible"


@pytest.mark.parametrize("line", ["0 41000 soc", "0 41000 soc-thermal", "0 87 battery"])
def test_what_is_one_counts_whatever_its_name_resembles(line: str) -> None:
    (sensor,) = read_sensors([line])
    assert sensor.left_out is None


@pytest.mark.parametrize("line", ["9" * 30 + " 41000 soc", "٤ 41000 soc", "0", "", "x 1 y"])
def test_a_line_that_names_no_zone_is_none(line: str) -> None:
    assert read_sensors([line]) == ()


def test_a_number_that_no_kernel_writes_is_no_answer() -> None:
    (sensor,) = read_sensors(["0 " + "9" * 400 + " soc"])
    assert sensor.left_out == "no answer"


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
