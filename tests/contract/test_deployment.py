"""A board's facts, and copies on it that are right, on every kind of host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.boards.ssh import SshHost
from armload.build.binary import Binary
from armload.build.helper import Helper
from armload.core.errors import BoardError, BusyError, ConnectError
from armload.core.files import sha256_of
from armload.core.progress import Progress, Silent
from armload.core.shell import quote
from armload.deploy.clean import contents, remove
from armload.deploy.deployment import deploy, link_plainly
from armload.deploy.holder import this_process
from armload.deploy.layout import OWN_FOLDER, Layout
from armload.deploy.lease import leased
from armload.deploy.own_programs import put_helper
from armload.deploy.payload import read_payload
from armload.deploy.transfer import push
from armload.deploy.upload import Upload, stored_script
from armload.models.model import Model
from armload.runs.placing import Deployed, place
from tests.contract.conftest import NAME
from tests.contract.launching import JOB, launched, run_to_end
from tests.faults import At
from tests.servers import chrooted
from tests.unit.samples import binary, model

SILENT = Silent()


def own_file(remote: Path, kind: str) -> Path:
    return remote.parent / OWN_FOLDER / f"{remote.name}.{kind}"


def some_model(folder: Path, size: int = 3_000_000) -> Model:
    path = folder / "a model.gguf"
    path.write_bytes(os.urandom(size))
    return model(path).model_copy(update={"sha256": sha256_of(path), "size_bytes": size})


def some_binary(folder: Path) -> Binary:
    path = folder / "program"
    path.write_text('#!/bin/sh\necho "$@"\n')
    return binary(path, sha256=sha256_of(path), size_bytes=path.stat().st_size)


def test_a_board_is_probed_in_one_command(host: Host, board: Board) -> None:
    found = probe(host, board)
    assert found.machine == os.uname().machine
    assert found.cores == os.cpu_count()
    assert found.workdir_writable
    assert found.workdir_executable
    assert found.conditions.workdir_free_bytes != 0
    assert found.conditions.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert "cat" in found.tools
    transports = {transport.purpose: transport for transport in found.transports}
    assert {
        "commands",
        "long commands",
        "bulk data",
        "checksums",
        "end of a run",
    } <= transports.keys()
    assert all(transport.chosen and transport.reason for transport in found.transports)
    without = "sha256sum" not in found.tools
    usual = "openssl dgst -sha256" if "openssl" in found.tools else "sha256sum"
    assert transports["checksums"].chosen == "armload's own program"
    assert ("toybox sha256sum" if without else usual) in transports["checksums"].reason


def test_a_board_in_a_chroot_that_tells_nothing_of_its_storage_takes_a_model(
    board: Board, tmp_path: Path
) -> None:
    """Its root is no mount point, so ``/proc/mounts`` lacks it and toybox's df lists nothing."""
    inside = board.model_copy(update={"workdir": PurePosixPath("/tmp/work")})
    model = some_model(tmp_path)
    layout = Layout(workdir=inside.workdir)
    remote = layout.model(model.sha256, model.name)
    with (
        chrooted(tmp_path / "server", tools="toybox") as address,
        closing(SshHost(address, NAME)) as host,
    ):
        found = probe(host, inside)
        assert found.workdir_executable
        assert found.conditions.workdir_filesystem is None
        assert found.conditions.workdir_free_bytes is None
        assert push(
            host, layout, model.path, remote, sha256=model.sha256, executable=False, progress=SILENT
        )
        assert b"".join(host.read(remote)) == model.path.read_bytes()


@contextmanager
def storage(host: Host, folder: PurePosixPath) -> Iterator[Callable[[str], None]]:
    """Mount a small storage where the host sees it; give what mounts it anew with an option."""
    if os.geteuid() != 0:
        pytest.skip("a file system takes root")
    place = quote(folder)
    done = host.run(f"mkdir -p {place} && mount -t tmpfs -o size=9m none {place}")
    if done.status != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr!r}")

    def remount(option: str) -> None:
        assert host.run(f"mount -o remount,{option} {place}").status == 0

    try:
        yield remount
    finally:
        host.run(f"umount -l {place}")


def test_storage_that_is_mounted_anew_is_looked_at_anew(
    emulated: Host, board: Board, tmp_path: Path
) -> None:
    """With everything in place: nothing else would find out before the program fails."""
    binary, model = some_binary(tmp_path), some_model(tmp_path)

    def refused() -> BoardError:
        with pytest.raises(BoardError) as caught:
            place(emulated, board, probe(emulated, board), binary, model, SILENT)
        return caught.value

    said: list[str] = []

    class Saying(Silent):
        def say(self, message: str) -> None:
            said.append(message)

    with storage(emulated, board.workdir) as remount:
        place(emulated, board, probe(emulated, board), binary, model, Saying())
        assert f"{board.workdir} is in memory (tmpfs): the 3.0 MB to send" in said[0]
        remount("noexec")
        error = refused()
        assert error.message.endswith(f"{board.workdir} (tmpfs) is mounted noexec.")
        assert f"mount -o remount,exec {quote(board.workdir)}" in error.remedy
        remount("ro")
        with (
            pytest.raises(BoardError) as caught,
            leased(emulated, board.workdir, SILENT, wait_s=0, beside=lambda: emulated),
        ):
            pytest.fail("nobody has this board")
        for error in (refused(), caught.value):
            assert error.message.endswith(f"{board.workdir} (tmpfs) is mounted read-only.")
            assert f"mount -o remount,rw {quote(board.workdir)}" in error.remedy
            assert "dmesg" in error.remedy


def test_storage_without_room_is_said_whatever_a_tool_calls_it(
    emulated: Host, board: Board, tmp_path: Path
) -> None:
    """A copy finds no room before, and while, it is sent; so does a run that is to start."""
    model = some_model(tmp_path)
    layout = Layout(workdir=board.workdir)
    remote = layout.model(model.sha256, model.name)
    filler = quote(board.workdir / "filler")

    def pushed(progress: At) -> bool:
        return push(
            emulated,
            layout,
            model.path,
            remote,
            sha256=model.sha256,
            executable=False,
            progress=progress,
        )

    def fill() -> None:
        emulated.run(f"cat /dev/zero >{filler}", timeout_s=120)

    with storage(emulated, board.workdir):
        with pytest.raises(BoardError) as meanwhile:
            pushed(At(0, fill))
        assert meanwhile.value.message.startswith(f"{NAME}: {board.workdir} (tmpfs) is full. ")
        assert "repeat the command to resume" in meanwhile.value.message
        assert "free other space" in meanwhile.value.remedy
        with pytest.raises(BoardError, match=r"not enough space for a model\.gguf"):
            pushed(At(0, lambda: None))
        with pytest.raises(BoardError, match="cannot start the run in") as not_started:
            launched(emulated, board.workdir, "true")
        assert not_started.value.message.endswith(" (tmpfs) is full.")
        emulated.run(f"rm {filler}")
        assert pushed(At(0, lambda: None))


def test_deploying_twice_sends_once(emulated: Host, board: Board, tmp_path: Path) -> None:
    binary, model = some_binary(tmp_path), some_model(tmp_path)

    def deployed() -> Deployed:
        return place(emulated, board, probe(emulated, board), binary, model, SILENT)

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
        place(host, board, probe(host, board), some_binary(tmp_path), some_model(tmp_path), SILENT)
    assert not Path(Layout(workdir=board.workdir).runs.parent / "models").exists()


def test_a_model_larger_than_the_boards_memory_is_said_and_sent(
    emulated: Host, board: Board, tmp_path: Path
) -> None:
    model = some_model(tmp_path)
    large = model.model_copy(update={"size_bytes": 1 << 50})
    progress = At(0, lambda: None)
    done = place(emulated, board, probe(emulated, board), some_binary(tmp_path), large, progress)
    assert any("larger than the memory of bench-board" in line for line in progress.said)
    assert Path(done.model).read_bytes() == model.path.read_bytes()


def test_damage_that_no_mark_shows_is_found_when_all_is_verified(
    emulated: Host, board: Board, tmp_path: Path
) -> None:
    binary, model = some_binary(tmp_path), some_model(tmp_path)

    def deployed(*, verify: bool) -> Deployed:
        return place(emulated, board, probe(emulated, board), binary, model, SILENT, verify=verify)

    remote = Path(deployed(verify=False).model)
    assert not deployed(verify=True).sent
    remote.write_bytes(bytes(remote.stat().st_size))
    item = Upload(
        local=model.path, remote=PurePosixPath(remote), sha256=model.sha256, executable=False
    )
    lines = emulated.run(stored_script([item])).text.splitlines()
    mark = lines[lines.index("present") + 2]
    own_file(remote, "sha256").write_text(f"{model.sha256} {mark}\n")
    assert not deployed(verify=False).sent, "nothing shows the damage"
    assert deployed(verify=True).sent
    assert remote.read_bytes() == model.path.read_bytes()


@pytest.mark.parametrize("what", ["an engine's files", "a payload", "a program of ours"])
def test_a_copy_whose_connection_dropped_leaves_the_board_to_whoever_has_it_by_then(
    emulated: Host, board: Board, tmp_path: Path, what: str
) -> None:
    """As after a night in which this machine slept and its lease expired."""
    binary, model = some_binary(tmp_path), some_model(tmp_path)
    layout = Layout(workdir=board.workdir)
    lease = Path(layout.lease)
    somebody = this_process().model_copy(update={"workstation": "thinkpad-0a1b"})
    until = int(Path("/proc/uptime").read_text().split(".")[0]) + 50

    def break_the_line() -> None:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (lease / f"other.{boot}.{until}").write_text(f"{somebody.model_dump_json()}\n1\n")
        raise ConnectError("broken")

    def copied(progress: Progress) -> None:
        if what == "a payload":
            payload = [read_payload(model.path, SILENT)]
            assert deploy(emulated, board, payload, progress).sent
        elif what == "a program of ours":
            ours = Helper(name="program", path=model.path, sha256=model.sha256)
            put_helper(emulated, layout, ours, progress)
        else:
            found = probe(emulated, board)
            assert place(emulated, board, found, binary, model, progress).sent

    lease.mkdir(parents=True)
    with pytest.raises(BusyError, match="another user has the board"):
        copied(At(model.size_bytes, break_the_line))
    for claim in lease.iterdir():
        claim.unlink()
    copied(SILENT)


def test_a_changed_file_on_the_board_is_replaced(host: Host, board: Board, tmp_path: Path) -> None:
    model = some_model(tmp_path)
    layout = Layout(workdir=board.workdir)
    remote = layout.model(model.sha256, model.name)

    def pushed() -> bool:
        return push(
            host, layout, model.path, remote, sha256=model.sha256, executable=False, progress=SILENT
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
    layout = Layout(workdir=board.workdir)
    remote = layout.model(model.sha256, model.name)
    part = own_file(Path(remote), "part")
    part.parent.mkdir(parents=True)
    data = model.path.read_bytes()
    part.write_bytes(start or data[:2_000_000])
    assert push(
        host, layout, model.path, remote, sha256=model.sha256, executable=False, progress=SILENT
    )
    assert Path(remote).read_bytes() == data
    assert not part.exists()


def test_a_file_in_the_way_of_the_work_folder_is_said(host: Host, tmp_path: Path) -> None:
    model = some_model(tmp_path)
    (tmp_path / "file").touch()
    layout = Layout(workdir=PurePosixPath(tmp_path / "file"))
    remote = layout.model(model.sha256, model.name)
    with pytest.raises(BoardError, match="cannot be written"):
        push(
            host, layout, model.path, remote, sha256=model.sha256, executable=False, progress=SILENT
        )


def test_plain_names_lead_to_the_newest_and_go_with_what_they_lead_to(
    host: Host, board: Board, tmp_path: Path
) -> None:
    layout = Layout(workdir=board.workdir)
    workdir = Path(board.workdir)
    files = [workdir / "models" / (each * 12) / "a model.gguf" for each in "12"]
    program = workdir / "bin" / ("3" * 12) / "llama-completion"
    for file in (*files, program):
        file.parent.mkdir(parents=True)
        file.write_text(file.parent.name)
    (workdir / "bin" / "llama-server").mkdir()
    taken = program.with_name("llama-server")
    taken.touch()
    plain = workdir / "models" / "a model.gguf"
    for file in files:
        linked = link_plainly(host, layout, [PurePosixPath(each) for each in (file, program)])
        assert linked == {
            PurePosixPath(file): PurePosixPath(plain),
            PurePosixPath(program): layout.workdir / "bin" / "llama-completion",
        }
        assert plain.read_text() == file.parent.name
        assert not plain.readlink().is_absolute()
    assert link_plainly(host, layout, [PurePosixPath(taken)]) == {}, "a folder has that name"

    kept = {entry.name.name for entry in contents(host, board.workdir)}
    assert kept == {"1" * 12, "2" * 12, "3" * 12, "llama-server"}
    newest = [entry for entry in contents(host, board.workdir) if entry.name.name == "2" * 12]
    remove(host, board.workdir, newest)
    assert not plain.is_symlink()
    assert (workdir / "bin" / "llama-completion").is_symlink()
