"""A board's facts, and copies on it that are right, on every kind of host."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.build.binary import Binary
from armload.core.errors import BoardError, BusyError, ConnectError
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.deploy.deployment import Deployment, deploy
from armload.deploy.item import Item, stored_script
from armload.deploy.layout import Layout
from armload.deploy.owner import this_process
from armload.deploy.transfer import push
from armload.models.model import Model
from tests.contract.launching import JOB, run_to_end
from tests.faults import At

SILENT = Silent()


def some_model(folder: Path, size: int = 3_000_000) -> Model:
    path = folder / "a model.gguf"
    path.write_bytes(os.urandom(size))
    return Model(
        path=path,
        sha256=sha256_of(path),
        size_bytes=size,
        architecture="llama",
        quantisation="Q4_0",
        parameters=1,
        layers=1,
        context_length=1,
        vocabulary=1,
        bytes_per_token=1,
        kv_bytes_per_token=1,
    )


def some_binary(folder: Path) -> Binary:
    path = folder / "program"
    path.write_text('#!/bin/sh\necho "$@"\n')
    return Binary(
        program="program",
        path=path,
        sha256=sha256_of(path),
        size_bytes=path.stat().st_size,
        target="rk3568",
        architecture="aarch64",
        compiler="none",
        source="none",
        engine_commit="none",
        build_id="none",
        features=(),
    )


def test_a_board_is_probed_in_one_command(host: Host, board: Board) -> None:
    found = probe(host, board)
    assert found.machine == os.uname().machine
    assert found.cores == os.cpu_count()
    assert found.workdir_writable
    assert found.workdir_executable
    assert found.conditions.workdir_free_bytes > 0
    assert found.conditions.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert "cat" in found.tools
    ways = {way.purpose: way for way in found.ways}
    assert {"commands", "long commands", "bulk data", "checksums", "end of a run"} <= ways.keys()
    assert all(way.chosen and way.reason for way in found.ways)
    without = "sha256sum" not in found.tools
    usual = "openssl dgst -sha256" if "openssl" in found.tools else "sha256sum"
    assert ways["checksums"].chosen == "a program of ours"
    assert ("toybox sha256sum" if without else usual) in ways["checksums"].reason


def test_deploying_twice_sends_once(emulated: Host, board: Board, tmp_path: Path) -> None:
    binary, model = some_binary(tmp_path), some_model(tmp_path)

    def deployed() -> Deployment:
        return deploy(emulated, board, binary=binary, model=model, progress=SILENT)

    first, second = deployed(), deployed()
    assert (first.sent, second.sent) == (True, False)
    assert Path(second.model).read_bytes() == model.path.read_bytes()
    assert os.access(second.program, os.X_OK)
    local = tmp_path / "run"
    assert run_to_end(emulated, board.workdir, local, "env", str(second.program), "a  b") == 0
    assert (local / "stdout").read_text() == "a  b\n"
    assert (local / "job.json").read_bytes().strip() == JOB


def test_a_board_without_aarch64_is_refused(host: Host, board: Board, tmp_path: Path) -> None:
    if os.uname().machine == "aarch64":
        pytest.skip("this machine is aarch64")
    with pytest.raises(BoardError, match="needs aarch64"):
        deploy(
            host,
            board,
            binary=some_binary(tmp_path),
            model=some_model(tmp_path),
            progress=SILENT,
        )
    assert not Path(Layout(workdir=board.workdir).runs.parent / "models").exists()


def test_a_model_larger_than_the_boards_memory_is_said_and_sent(
    emulated: Host, board: Board, tmp_path: Path
) -> None:
    model = some_model(tmp_path)
    large = model.model_copy(update={"size_bytes": 1 << 50})
    progress = At(0, lambda: None)
    done = deploy(emulated, board, binary=some_binary(tmp_path), model=large, progress=progress)
    assert any("larger than the memory of bench-board" in line for line in progress.said)
    assert Path(done.model).read_bytes() == model.path.read_bytes()


def test_damage_that_no_mark_shows_is_found_when_all_is_verified(
    emulated: Host, board: Board, tmp_path: Path
) -> None:
    binary, model = some_binary(tmp_path), some_model(tmp_path)

    def deployed(*, verify: bool) -> Deployment:
        return deploy(emulated, board, binary=binary, model=model, progress=SILENT, verify=verify)

    remote = Path(deployed(verify=False).model)
    assert not deployed(verify=True).sent
    remote.write_bytes(bytes(remote.stat().st_size))
    item = Item(
        local=model.path, remote=PurePosixPath(remote), sha256=model.sha256, executable=False
    )
    lines = emulated.run(stored_script([item])).text.splitlines()
    mark = lines[lines.index("present") + 2]
    Path(f"{remote}.sha256").write_text(f"{model.sha256} {mark}\n")
    assert not deployed(verify=False).sent, "nothing shows the damage"
    assert deployed(verify=True).sent
    assert remote.read_bytes() == model.path.read_bytes()


def test_a_copy_whose_line_broke_leaves_the_board_to_whoever_has_it_by_then(
    emulated: Host, board: Board, tmp_path: Path
) -> None:
    """As after a night in which the laptop slept, and its lease ran out."""
    binary, model = some_binary(tmp_path), some_model(tmp_path)
    lease = Path(Layout(workdir=board.workdir).lease)
    somebody = this_process().model_copy(update={"laptop": "thinkpad-0a1b"})
    until = int(Path("/proc/uptime").read_text().split(".")[0]) + 50

    def break_the_line() -> None:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (lease / f"other.{boot}.{until}").write_text(f"{somebody.model_dump_json()}\n1\n")
        raise ConnectError("broken")

    lease.mkdir(parents=True)
    progress = At(model.size_bytes, break_the_line)
    with pytest.raises(BusyError, match="somebody else has the board"):
        deploy(emulated, board, binary=binary, model=model, progress=progress)
    for claim in lease.iterdir():
        claim.unlink()
    assert deploy(emulated, board, binary=binary, model=model, progress=SILENT).sent


def test_a_changed_file_on_the_board_is_replaced(host: Host, board: Board, tmp_path: Path) -> None:
    model = some_model(tmp_path)
    remote = Layout(workdir=board.workdir).model(model.sha256, model.name)

    def pushed() -> bool:
        return push(
            host, model.path, remote, sha256=model.sha256, executable=False, progress=SILENT
        )

    assert pushed()
    Path(remote).write_bytes(b"rubbish")
    assert pushed()
    assert Path(remote).read_bytes() == model.path.read_bytes()
    Path(remote).touch()
    assert not pushed(), "the same content with a new time is checked, not sent"
    assert not pushed()


@pytest.mark.parametrize("start", [None, b"x" * 2_000_000], ids=["sound", "spoilt"])
def test_a_part_is_continued_only_when_it_is_sound(
    host: Host, board: Board, tmp_path: Path, start: bytes | None
) -> None:
    model = some_model(tmp_path)
    remote = Layout(workdir=board.workdir).model(model.sha256, model.name)
    part = Path(f"{remote}.part")
    part.parent.mkdir(parents=True)
    data = model.path.read_bytes()
    part.write_bytes(start or data[:2_000_000])
    assert push(host, model.path, remote, sha256=model.sha256, executable=False, progress=SILENT)
    assert Path(remote).read_bytes() == data
    assert not part.exists()


def test_a_file_in_the_way_of_the_work_folder_is_said(host: Host, tmp_path: Path) -> None:
    model = some_model(tmp_path)
    (tmp_path / "file").touch()
    remote = PurePosixPath(tmp_path / "file" / "models" / "0" / "m.gguf")
    with pytest.raises(BoardError, match="cannot be made"):
        push(host, model.path, remote, sha256=model.sha256, executable=False, progress=SILENT)
