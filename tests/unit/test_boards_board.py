"""A mistake in a board's file is answered with the key and its line."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import load_board
from armload.boards.specs import CpuCluster
from armload.core.errors import DataError
from armload.core.workspace import data_names

_SSH = """target: rk3568
reach:
  kind: ssh
  host: {host}
  port: {port}
workdir: {workdir}
facts:
  memory: {memory}
  clusters:
    - {{cores: {cluster}, name: Cortex-A55}}
"""
_SSH_VALUES = {
    "host": "a",
    "port": "22",
    "workdir": "/data/armload",
    "memory": "2 GiB",
    "cluster": "4",
}
_VIRTUAL = """target: rk3568
reach:
  kind: virtual
  cores: {cores}
  memory: {memory}
  disk: {disk}
  disk_read_bytes_per_s: {rate}
workdir: /data/armload
"""
_VIRTUAL_VALUES = {"cores": "2", "memory": "1 GiB", "disk": "1 GiB", "rate": "20 MB"}


@pytest.fixture(autouse=True)
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "boards"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", data_names("boards"))
def test_every_shipped_board_is_sound(name: str) -> None:
    assert load_board(name).workdir.is_absolute()


@pytest.mark.parametrize(
    ("changed", "line", "key"),
    [
        ({"host": "''"}, 4, "host"),
        ({"port": "0"}, 5, "port"),
        ({"port": "65536"}, 5, "port"),
        ({"workdir": "data/armload"}, 6, "workdir"),
        ({"memory": "0"}, 8, "memory"),
        ({"cluster": "0"}, 10, "cores"),
    ],
)
def test_a_wrong_value_of_a_real_board_is_told(
    boards: Path, changed: dict[str, str], line: int, key: str
) -> None:
    (boards / "mine.yaml").write_text(_SSH.format(**_SSH_VALUES))
    load_board("mine")
    (boards / "mine.yaml").write_text(_SSH.format(**{**_SSH_VALUES, **changed}))
    with pytest.raises(DataError, match=rf"mine\.yaml, line {line}: (\S+\.|.*, )?{key}: "):
        load_board("mine")


@pytest.mark.parametrize(
    ("changed", "line", "key"),
    [
        ({"cores": "0"}, 4, "cores"),
        ({"cores": "9"}, 4, "cores"),
        ({"memory": "2"}, 5, "memory"),
        ({"disk": "-1"}, 6, "disk"),
        ({"rate": "0 MB"}, 7, "disk_read_bytes_per_s"),
    ],
)
def test_a_wrong_value_of_a_virtual_board_is_told(
    boards: Path, changed: dict[str, str], line: int, key: str
) -> None:
    (boards / "mine.yaml").write_text(_VIRTUAL.format(**_VIRTUAL_VALUES))
    load_board("mine")
    (boards / "mine.yaml").write_text(_VIRTUAL.format(**{**_VIRTUAL_VALUES, **changed}))
    with pytest.raises(DataError, match=rf"mine\.yaml, line {line}: (\S+\.|.*, )?{key}: "):
        load_board("mine")


@pytest.mark.parametrize(
    ("reach", "said"),
    [
        ("{kind: local, host: a}", "there is no key 'reach.host'"),
        ("{kind: hdc, key: ''}", "reach.key: must not be empty"),
        ("{kind: usb}", "'ssh', 'local', 'hdc', 'adb', 'virtual'"),
        ("{kind: adb, serial: ''}", "reach.serial: must not be empty"),
    ],
)
def test_a_reach_that_makes_no_sense_is_told(boards: Path, reach: str, said: str) -> None:
    (boards / "mine.yaml").write_text(f"target: rk3568\nreach: {reach}\nworkdir: /data/armload\n")
    with pytest.raises(DataError, match=re.escape(said)):
        load_board("mine")


def test_only_this_machine_as_a_board_may_have_a_work_folder_in_the_cache(
    boards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", "/cache")
    (boards / "own.yaml").write_text("target: rk3568\nreach:\n  kind: local\nworkdir: work\n")
    assert load_board("own").workdir == PurePosixPath("/cache/work")


def test_a_virtual_board_declares_what_its_own_machine_is_made_with(boards: Path) -> None:
    (boards / "tight.yaml").write_text(
        "extends: virtual-dayu200\nreach:\n  memory: 512 MiB\n  disk_read_bytes_per_s: 20 MB\n"
        "  cores: 1\n  cpu: neoverse-n1\nfacts:\n  memory_bytes_per_s: 3 GB\n"
        "  clusters: [{cores: 4, name: Cortex-A55}]\n"
    )
    facts = load_board("tight").facts
    assert (facts.memory, facts.storage_read_bytes_per_s) == (512 << 20, 20_000_000)
    assert facts.clusters == (CpuCluster(cores=1, name="Neoverse-N1"),)
    assert facts.memory_bytes_per_s == 3_000_000_000, "what the machine does not settle stays"
    assert load_board("virtual-dayu200").facts.storage_read_bytes_per_s == 165_000_000


def test_a_size_out_of_range_is_told_as_sizes_are_written(boards: Path) -> None:
    content = _VIRTUAL.format(**{**_VIRTUAL_VALUES, "memory": "10 MiB"})
    (boards / "small.yaml").write_text(content)
    with pytest.raises(DataError, match=r"must be 64 MiB or more, but is 10 MiB\.$"):
        load_board("small")
    (boards / "small.yaml").write_text("extends: virtual\nreach:\n  disk_read_bytes_per_s: 0 MB\n")
    with pytest.raises(DataError, match=r"must be more than 0 B, but is '0 MB'\.$"):
        load_board("small")
