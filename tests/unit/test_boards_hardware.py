"""The catalogue of hardware: every entry is sound, and a board's file may name one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import load_board
from armload.boards.hardware import (
    KIND,
    Hardware,
    all_hardware,
    load_hardware,
    recognised,
)
from armload.boards.specs import CpuCluster
from armload.core.errors import DataError, UsageError
from armload.core.workspace import data_names
from armload.core.yamlfile import load_named

GIB = 1 << 30
MB = 1_000_000

REACH = "reach: {kind: ssh, host: a}\n"


@pytest.fixture(autouse=True)
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("boards", "hardware"):
        (tmp_path / name).mkdir()
    return tmp_path / "boards"


def test_the_catalogue_has_many_boards_and_servers() -> None:
    names = data_names(KIND)
    assert len(names) >= 25
    assert {"raspberry-pi-5", "orange-pi-5", "dayu200", "yitian710", "aws-graviton4"} <= set(names)
    every = [each.name for each in all_hardware()]
    assert len(every) == len(set(every))
    assert {"raspberry-pi-5-8gb", "orange-pi-5-16gb"} <= set(every)


@pytest.mark.parametrize("name", data_names(KIND))
def test_every_entry_is_sound(name: str) -> None:
    hardware = load_named(KIND, name, Hardware)
    assert hardware.target in data_names("toolchains")
    assert all(cluster.max_mhz for cluster in hardware.clusters)
    assert all(len(source) > 5 for source in hardware.sources.values())
    assert list(hardware.memory_sizes) == sorted(set(hardware.memory_sizes))
    kind, measured = hardware.memory_kind, hardware.memory_bytes_per_s
    if kind and measured:
        assert measured < kind.peak_bytes_per_s
    assert load_hardware(hardware.names[0]).hardware == hardware


def test_no_two_entries_answer_to_the_same_device() -> None:
    models = [
        model
        for name in data_names(KIND)
        for model in load_named(KIND, name, Hardware).device_models
    ]
    assert len(models) == len(set(models))


def test_a_figure_without_a_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hardware" / "mine.yaml").write_text(
        "description: Mine\nsoc: X\ntarget: rk3588\nmemory_copy_bytes_per_s: 5 GB\n"
        "clusters: [{cores: 4, name: Cortex-A76}]\nsources: {clusters: data sheet}\n"
    )
    with pytest.raises(DataError, match="sources lacks memory_copy_bytes_per_s"):
        load_hardware("mine")


def test_an_entry_of_one_s_own_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "hardware" / "mine.yaml").write_text(
        "description: Mine\nsoc: X\ntarget: rk3588\n"
        "clusters: [{cores: 4, name: Cortex-A76}]\nsources: {clusters: data sheet}\n"
    )
    assert load_hardware("mine").memory is None
    assert load_hardware("mine-16gb").memory == 16 * GIB


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rasberry-pi-5", "Did you mean 'raspberry-pi-5'"),
        ("raspberry-pi-5", "raspberry-pi-5-8gb"),
        ("raspberry-pi-5-3gb", "raspberry-pi-5-4gb"),
        ("raspberry-pi-55-8GB", "Did you mean 'raspberry-pi-5"),
        ("rpi5", "Hardware with that target: raspberry-pi-5-1gb, raspberry-pi-5-2gb"),
        ("", "no hardware named ''"),
        ("../boards/dayu200", "no hardware named"),
    ],
)
def test_a_wrong_name_is_answered_with_what_there_is(name: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_hardware(name)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["Raspberry-Pi-5-8GB", "RASPBERRY-PI-500", "Rock-5B-16gb"])
def test_an_entry_is_found_in_any_case(name: str) -> None:
    assert load_hardware(name).name == name.lower()
    assert load_hardware(name).memory == load_hardware(name.lower()).memory


def test_a_board_needs_only_its_hardware_and_how_it_is_reached(boards: Path) -> None:
    (boards / "mine.yaml").write_text(f"hardware: raspberry-pi-5-8gb\n{REACH}")
    board = load_board("mine")
    assert board.target == "rpi5"
    assert board.workdir == PurePosixPath("/var/tmp/armload")
    assert board.facts.memory == 8 * GIB
    assert board.facts.clusters == (CpuCluster(cores=4, name="Cortex-A76", max_mhz=2400),)
    assert board.facts.memory_bytes_per_s == 11_590 * MB


def test_a_board_s_own_facts_and_target_override_its_hardware_s(boards: Path) -> None:
    (boards / "mine.yaml").write_text(
        f"hardware: raspberry-pi-5-8gb\ntarget: armv8-generic\n{REACH}"
        "workdir: /mnt/work\nfacts: {storage_read_bytes_per_s: 750 MB}\n"
    )
    board = load_board("mine")
    assert board.target == "armv8-generic"
    assert board.workdir == PurePosixPath("/mnt/work")
    assert board.facts.storage_read_bytes_per_s == 750 * MB
    assert board.facts.memory == 8 * GIB


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "hardware: rasberry-pi-5-8gb\n",
            "Did you mean 'raspberry-pi-500'|Did you mean 'raspberry",
        ),
        ("hardware: raspberry-pi-5\n", "raspberry-pi-5-16gb"),
        ("description: nothing\n", "give a target"),
    ],
)
def test_a_board_s_mistake_is_told_with_its_file(boards: Path, lines: str, said: str) -> None:
    (boards / "mine.yaml").write_text(lines + REACH)
    with pytest.raises(DataError, match=said) as caught:
        load_board("mine")
    assert "mine.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "memory_bytes", "name"),
    [
        ("Raspberry Pi 5 Model B Rev 1.0", 8_246_000_000, "raspberry-pi-5-8gb"),
        ("Raspberry Pi 5 Model B Rev 1.1", 16_900_000_000, "raspberry-pi-5-16gb"),
        ("Raspberry Pi 500 Rev 1.0", 8_246_000_000, "raspberry-pi-500"),
        ("Raspberry Pi 4 Model B Rev 1.4", 3_900_000_000, "raspberry-pi-4-4gb"),
        ("Radxa ROCK 5B", 16_300_000_000, "rock-5b-16gb"),
        ("Orange Pi 5 Max", 8_100_000_000, "orange-pi-5-max-8gb"),
        ("Orange Pi 5", 16_300_000_000, "orange-pi-5-16gb"),
        ("Orange Pi 5 Plus", 16_300_000_000, ""),
        ("NVIDIA Jetson AGX Orin Developer Kit", 32_000_000_000, "jetson-agx-orin"),
        ("Orange Pi 6", 16_300_000_000, ""),
        ("", 16_300_000_000, ""),
    ],
)
def test_a_board_is_recognised_by_what_it_calls_itself(
    model: str, memory_bytes: int, name: str
) -> None:
    found = recognised(model, memory_bytes)
    assert (found.name if found else "") == name
