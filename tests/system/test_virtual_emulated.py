"""This machine as a board: a real OpenSSH server, ARM programs under qemu-user."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest

from armload.boards import emulated
from armload.boards.board import Board, EmulatedReach, load_board
from armload.boards.probe import probe
from armload.boards.ssh import SshHost
from armload.build.binary import FeatureUse
from armload.build.helper import CPU_FEATURES, helper
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Silent
from armload.core.shell import join
from armload.core.workspace import cache_folder
from armload.deploy.deployment import check_fit
from tests.unit.test_deploy_fit import binary

pytestmark = pytest.mark.machine

EXIT_7 = (0xD28000E0, 0xD2800BA8, 0xD4000001)  # mov x0, #7; mov x8, #93 (exit); svc #0
SMMLA = (0x4E80A400,)  # smmla v0.4s, v0.16b, v0.16b: needs i8mm


def aarch64_program(instructions: tuple[int, ...]) -> bytes:
    """Return a static ELF file of these instructions."""
    start, base = 120, 0x400000
    code = b"".join(word.to_bytes(4, "little") for word in instructions)
    size = start + len(code)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, base + start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 4096)
    return header + segment + code


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    usual = cache_folder().resolve()
    helper(CPU_FEATURES)
    (usual / "packages").mkdir(parents=True, exist_ok=True)
    folder = tmp_path_factory.mktemp("cache") / 'a "new" folder, 100% full'
    folder.mkdir()
    for kind in ("packages", "helpers"):
        (folder / kind).symlink_to(usual / kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARMLOAD_CACHE", str(folder))
        found = load_board("qemu-user")
        emulated.up(found, Silent())
        yield found
        emulated.down(found)


@pytest.fixture
def host(board: Board) -> Iterator[SshHost]:
    with closing(SshHost(emulated.up(board, Silent()), board.name)) as connected:
        yield connected


def run_program(host: SshHost, path: Path, instructions: tuple[int, ...]) -> int:
    host.write(PurePosixPath(path), [aarch64_program(instructions)])
    path.chmod(0o755)
    return host.run(join([*host.launcher, str(path)])).status


def test_arm_program_runs(host: SshHost, tmp_path: Path) -> None:
    assert run_program(host, tmp_path / "exit7", EXIT_7) == 7


def test_instruction_that_a_cortex_a55_lacks_is_illegal(host: SshHost, tmp_path: Path) -> None:
    assert run_program(host, tmp_path / "smmla", SMMLA) == 132


def test_a_program_that_needs_more_than_the_emulated_cpu_has_is_refused_beforehand(
    board: Board,
) -> None:
    reach = EmulatedReach(kind="qemu-user", cpu="cortex-a72")
    old = board.model_copy(update={"name": "a72", "reach": reach})
    engine = binary(FeatureUse(feature="asimddp", count=3, address=4096, mnemonic="sdot"))
    for one, fits in ((board, True), (old, False)):
        with closing(SshHost(emulated.up(one, Silent()), one.name)) as host:
            found = probe(host, one)
            assert found.machine == "aarch64"
            assert "fp" in found.cpu_features
            if fits:
                check_fit(one, engine, found, emulated=True)
                continue
            with pytest.raises(BoardError, match="a72: its CPU lacks asimddp"):
                check_fit(one, engine, found, emulated=True)
    emulated.down(old)


def test_up_again_changes_nothing(board: Board) -> None:
    first = emulated.up(board, Silent())
    assert emulated.running(board) == first == emulated.up(board, Silent())


def test_work_folder_can_be_made(board: Board, host: SshHost) -> None:
    assert host.run(join(["mkdir", "-p", board.workdir])).status == 0
    assert Path(board.workdir).is_dir()


def test_down_ends_it_and_up_brings_it_back_with_the_same_key(board: Board) -> None:
    before = emulated.up(board, Silent())
    assert emulated.down(board)
    assert emulated.running(board) is None
    assert not emulated.down(board)
    assert emulated.up(board, Silent()).host_key == before.host_key


def test_two_boards_of_the_kind_run_at_once(board: Board) -> None:
    other = board.model_copy(
        update={"name": "second", "reach": EmulatedReach(kind="qemu-user", cpu="cortex-a76")}
    )
    try:
        first, second = emulated.up(board, Silent()), emulated.up(other, Silent())
        assert first.port != second.port
        assert first.host_key != second.host_key
        assert second.launcher[-1] == "cortex-a76"
    finally:
        emulated.down(other)


def test_board_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a qemu-user board"):
        emulated.up(load_board("virtual"), Silent())
