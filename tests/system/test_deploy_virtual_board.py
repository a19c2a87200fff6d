"""What only a whole board shows: its storage full, its memory used up, its power cut."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import Board, VirtualReach, load_board
from armload.boards.connect import connect, stop
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.boards.virtual.state import sibling_folders
from armload.core.errors import BoardError
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.core.shell import quote
from armload.deploy.exit_reason import explain
from armload.deploy.layout import Layout
from armload.deploy.transfer import push
from tests.contract.launching import run_to_end

pytestmark = [
    pytest.mark.machine,
    pytest.mark.exhaustive(covers=["armload/boards", "armload/deploy", "deploy"]),
]


@pytest.fixture(scope="module")
def board() -> Board:
    """A small board of this test's own: it is filled up and driven out of memory."""
    plain = load_board("virtual")
    assert isinstance(plain.reach, VirtualReach)
    reach = plain.reach.model_copy(update={"memory": 512 << 20, "disk": 1 << 30})
    return plain.model_copy(update={"name": f"test-{secrets.token_hex(4)}", "reach": reach})


@pytest.fixture(scope="module")
def host(board: Board) -> Iterator[Host]:
    connected = connect(board, Silent())
    try:
        yield connected
    finally:
        connected.close()
        stop(board)
        for folder in sibling_folders(board):
            shutil.rmtree(folder)


def pushed(host: Host, board: Board, local: Path) -> PurePosixPath:
    layout = Layout(workdir=board.workdir)
    remote = layout.model("0" * 64, local.name)
    push(host, layout, local, remote, sha256=sha256_of(local), executable=False, progress=Silent())
    return remote


def test_the_board_is_an_arm_machine_with_a_place_to_work(host: Host, board: Board) -> None:
    found = probe(host, board)
    assert found.machine == "aarch64"
    assert found.workdir_writable
    assert found.workdir_executable


def test_a_file_arrives_and_stays_as_it_was(host: Host, board: Board, tmp_path: Path) -> None:
    local = tmp_path / "a model.gguf"
    local.write_bytes(os.urandom(3_000_000))
    remote = pushed(host, board, local)
    assert b"".join(host.read(remote)) == local.read_bytes()


def test_a_model_that_does_not_fit_is_refused_before_it_is_sent(
    host: Host, board: Board, tmp_path: Path
) -> None:
    filler = quote(board.workdir / "models" / "filler")
    free = probe(host, board).conditions.workdir_free_bytes
    assert free is not None
    host.run(f"mkdir -p {quote(board.workdir / 'models')}")
    assert host.run(f"fallocate -l {free - 50_000_000} {filler}", timeout_s=300).status == 0
    try:
        local = tmp_path / "large.gguf"
        with local.open("wb") as file:
            file.truncate(200_000_000)
        with pytest.raises(BoardError, match="not enough space for large") as caught:
            pushed(host, board, local)
        assert re.search(r"need .* more", caught.value.message)
        assert "filler" in caught.value.remedy
    finally:
        host.run(f"rm -f {filler}")


def test_a_program_that_takes_all_memory_is_said_to_have(
    host: Host, board: Board, tmp_path: Path
) -> None:
    local = tmp_path / "run"
    script = (
        "x=0123456789abcdef i=0; while [ ${#x} -lt 100000 ]; do x=$x$x; done; "
        'while :; do i=$((i + 1)); eval "v$i=\\$x"; done'
    )
    assert run_to_end(host, board.workdir, local, "sh", "-c", script, limit_s=300) == 137
    assert "ran out of memory" in explain(local).meaning
    assert host.run("echo still there").text == "still there"
