"""This machine as a board whose programs are started by a launcher: an emulator, or a wrapper."""

from __future__ import annotations

import struct
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import Board, LocalReach
from armload.boards.local import LocalHost
from armload.boards.probe import Probe, probe
from armload.build.binary import FeatureUse
from armload.build.helper import RATES
from armload.build.target import machine_architecture
from armload.core.errors import BoardError
from armload.core.progress import Silent
from armload.core.shell import join
from armload.deploy.compatibility import check_fit
from armload.deploy.layout import Layout
from armload.deploy.own_programs import own_program
from tests.system.engines import emulator
from tests.unit.test_deploy_compatibility import binary

EXIT_7 = (0xD28000E0, 0xD2800BA8, 0xD4000001)  # mov x0, #7; mov x8, #93 (exit); svc #0
SMMLA = (0x4E80A400,)  # smmla v0.4s, v0.16b, v0.16b: needs i8mm


def aarch64_program(path: Path, instructions: tuple[int, ...]) -> Path:
    """Write a static ELF file of these instructions."""
    start, base = 120, 0x400000
    code = b"".join(word.to_bytes(4, "little") for word in instructions)
    size = start + len(code)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, base + start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 4096)
    path.write_bytes(header + segment + code)
    path.chmod(0o755)
    return path


def board(folder: Path, *launcher: str) -> Board:
    reach = LocalReach(kind="local", launcher=launcher)
    return Board(name="mine", target="rk3568", reach=reach, workdir=PurePosixPath(folder))


def emulating(cpu: str) -> tuple[str, ...]:
    return (*emulator()[:-1], cpu)


def probed(folder: Path, *launcher: str) -> Probe:
    return probe(LocalHost("mine", launcher), board(folder, *launcher))


def test_arm_programs_run_as_on_the_emulated_cpu(tmp_path: Path) -> None:
    host = LocalHost("mine", emulating("cortex-a76"))

    def status(name: str, instructions: tuple[int, ...]) -> int:
        program = aarch64_program(tmp_path / name, instructions)
        return host.run(join([*host.launcher, program])).status

    assert status("exit7", EXIT_7) == 7
    assert status("smmla", SMMLA) == 132, "a Cortex-A76 lacks it"


@pytest.mark.parametrize(("cpu", "fits"), [("cortex-a76", True), ("cortex-a72", False)])
def test_a_program_that_needs_more_than_the_emulated_cpu_has_is_refused_beforehand(
    tmp_path: Path, cpu: str, *, fits: bool
) -> None:
    engine = binary(FeatureUse(feature="asimddp", count=3, address=4096, mnemonic="sdot"))
    found = probed(tmp_path, *emulating(cpu))
    assert found.machine == "aarch64"
    assert "fp" in found.cpu_features
    if fits:
        check_fit(board(tmp_path, *emulating(cpu)), engine, found)
        return
    with pytest.raises(BoardError, match="mine: its CPU lacks asimddp"):
        check_fit(board(tmp_path, *emulating(cpu)), engine, found)


def test_a_wrapper_starts_programs_of_the_machines_own_kind(tmp_path: Path) -> None:
    wrapper = ("nice", "-n", "5")
    found = probed(tmp_path, *wrapper)
    assert found.machine == machine_architecture()
    assert set(found.cpu_features) == set(probed(tmp_path).cpu_features)
    layout = Layout(workdir=PurePosixPath(tmp_path))
    words = own_program(LocalHost("mine", wrapper), layout, RATES, found, Silent())
    assert words is not None
    assert words[:3] == wrapper
    assert LocalHost("mine").run(f"{join(words)} 2>&1").text.startswith("usage")
