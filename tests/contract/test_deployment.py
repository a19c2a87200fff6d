"""The whole way of a run, on every kind of host."""

from __future__ import annotations

import os
import signal
from pathlib import Path, PurePosixPath
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armload.boards.board import Board
from armload.boards.host import Completed, Host
from armload.boards.probe import probe
from armload.build.binary import Binary
from armload.core.errors import BoardError, BusyError, ConnectError, RunError
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.deploy.collect import collect, peak_memory_bytes
from armload.deploy.deployment import Deployment, deploy
from armload.deploy.ending import explain
from armload.deploy.follow import follow, stop
from armload.deploy.item import Item, stored_script
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.owner import this_process
from armload.deploy.stored import list_runs
from armload.deploy.transfer import push
from armload.models.model import Model
from tests.faults import At

SILENT = Silent()
JOB = b'{"id": "run"}'


def nothing(steps: int, text: str) -> None:
    del steps, text


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board.model_validate(
        {
            "name": "bench-board",
            "target": "rk3568",
            "reach": {"kind": "ssh", "host": "unused"},
            "workdir": str(tmp_path / "work dir's $(id)"),
        }
    )


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


def run_to_end(
    host: Host, board: Board, argv: list[str], local: Path, *, limit_s: float = 60
) -> int:
    folder = Layout(workdir=board.workdir).run(local.name)
    launch(host, run_folder=folder, argv=argv, trace=True, time_limit_s=limit_s, job=JOB)
    status = follow(host, folder, nothing)
    collect(host, folder, local)
    return status


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
    assert run_to_end(emulated, board, ["env", str(second.program), "a  b"], local) == 0
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


WORDS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(words=st.lists(WORDS, max_size=3), number=st.integers(0, 1 << 60))
def test_every_argument_of_a_run_arrives_unchanged(
    emulated: Host, board: Board, tmp_path: Path, words: list[str], number: int
) -> None:
    awkward = ["-x", "$(id)", "a b", "q'\"", "é\n%", "", *words]
    script = 'for word in "$@"; do cat <<E\n$word\nE\ndone'
    local = tmp_path / f"run-{number}-{os.urandom(4).hex()}"
    assert run_to_end(emulated, board, ["sh", "-c", script, "name", *awkward], local) == 0
    assert (local / "stdout").read_bytes() == "".join(f"{word}\n" for word in awkward).encode()


@pytest.mark.parametrize(
    ("script", "status", "meaning"),
    [
        ("exit 0", 0, "done"),
        ("echo no such model >&2; exit 1", 1, "no such model"),
        ("kill -ILL $$", 132, "illegal instruction"),
        ("kill -KILL $$", 137, "killed from outside"),
        ("kill -SEGV $$", 139, "SIGSEGV"),
        ("exec /no/such/program", 127, "not found"),
        ("exec /etc/passwd", 126, "cannot be run"),
        ("cat /etc/passwd >/dev/full", 1, "storage is full"),
    ],
)
def test_every_ending_is_told_apart(
    host: Host, board: Board, tmp_path: Path, script: str, status: int, meaning: str
) -> None:
    local = tmp_path / "run"
    assert run_to_end(host, board, ["sh", "-c", script], local) == status
    ending = explain(local)
    assert ending.status == status
    assert meaning in ending.meaning


def test_the_board_itself_ends_a_run_that_takes_too_long(
    host: Host, board: Board, tmp_path: Path
) -> None:
    local = tmp_path / "run"
    assert run_to_end(host, board, ["sleep", "600"], local, limit_s=1) == 124
    assert explain(local).meaning == "stopped by its time limit"


def test_a_run_grows_before_the_followers_eyes(host: Host, board: Board, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = (
        'echo \'{"format":1}\' >"$ARMLOAD_TRACE"; echo \'{"step":0}\' >>"$ARMLOAD_TRACE"; '
        f"echo Once; until [ -e '{gate}' ]; do sleep 1; done; "
        'echo \'{"step":1}\' >>"$ARMLOAD_TRACE"; echo upon'
    )
    folder = Layout(workdir=board.workdir).run("run")
    launch(host, run_folder=folder, argv=["sh", "-c", script], trace=True, time_limit_s=60, job=JOB)
    seen = []

    def grown(steps: int, text: str) -> None:
        seen.append((steps, text))
        if steps:
            gate.touch()

    assert follow(host, folder, grown) == 0
    assert (1, "Once\n") in seen
    assert seen[-1] == (2, "Once\nupon\n")


def test_memory_is_watched(host: Host, board: Board, tmp_path: Path) -> None:
    local = tmp_path / "run"
    assert run_to_end(host, board, ["sleep", "1.5"], local) == 0
    peak = peak_memory_bytes(local)
    assert peak is not None
    assert 100_000 < peak[0] <= peak[1]


def test_a_run_is_stopped_on_request(host: Host, board: Board, tmp_path: Path) -> None:
    folder = Layout(workdir=board.workdir).run("run")
    launch(host, run_folder=folder, argv=["sleep", "600"], trace=False, time_limit_s=600, job=JOB)
    assert [(run.id, run.state) for run in list_runs(host, board.workdir)] == [("run", "running")]
    stop(host, folder)
    stop(host, folder)
    assert follow(host, folder, nothing) == 143
    collect(host, folder, tmp_path / "local")
    assert explain(tmp_path / "local").meaning == "stopped on request"
    (run,) = list_runs(host, board.workdir)
    assert (run.state, run.status, run.folder) == ("ended", 143, folder)


def test_a_run_whose_script_is_killed_is_called_interrupted(
    host: Host, board: Board, tmp_path: Path
) -> None:
    folder = Layout(workdir=board.workdir).run("run")
    launch(host, run_folder=folder, argv=["sleep", "600"], trace=False, time_limit_s=600, job=JOB)
    killed = False

    def grown(steps: int, text: str) -> None:
        nonlocal killed
        if not killed:
            killed = True
            os.kill(int(Path(folder / "wrapper").read_text()), signal.SIGKILL)

    try:
        with pytest.raises(RunError, match="watches the program"):
            follow(host, folder, grown)
        assert [run.state for run in list_runs(host, board.workdir)] == ["interrupted"]
        collect(host, folder, tmp_path / "local")
        assert explain(tmp_path / "local").status is None
    finally:
        os.kill(int(Path(folder / "pid").read_text()), signal.SIGKILL)


class _RestartingAtLaunch:
    """A host whose first command is done there, and whose board restarts before it has answered."""

    def __init__(self, host: Host, folder: PurePosixPath) -> None:
        self._host = host
        self._boot_id = Path(folder / "boot_id")
        self.restarted = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._host, name)

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        done = self._host.run(command, stdin=stdin, timeout_s=timeout_s)
        if not self.restarted:
            self.restarted = True
            self._boot_id.write_text("the-boot-of-the-first-attempt\n")
            raise ConnectError("broken")
        return done


def test_a_restart_between_two_attempts_to_launch_is_not_hidden_by_the_second(
    host: Host, board: Board, tmp_path: Path
) -> None:
    folder, gate = Layout(workdir=board.workdir).run("run"), tmp_path / "gate"
    restarting = cast("Host", _RestartingAtLaunch(host, folder))
    argv = ["sh", "-c", f"until [ -e '{gate}' ]; do sleep 0.1; done"]
    launch(restarting, run_folder=folder, argv=argv, trace=False, time_limit_s=60, job=JOB)
    with pytest.raises(RunError, match="restarted"):
        follow(host, folder, nothing)
    gate.touch()
    assert not [path for path in Path(folder).glob("*.sh") if path.name != "run.sh"]


def test_a_run_of_a_former_boot_is_called_interrupted(host: Host, board: Board) -> None:
    folder = Layout(workdir=board.workdir).run("run")
    launch(host, run_folder=folder, argv=["true"], trace=False, time_limit_s=600, job=JOB)
    follow(host, folder, nothing)
    Path(folder / "exit").unlink()
    Path(folder / "boot_id").write_text("another-boot\n")
    with pytest.raises(RunError, match="restarted"):
        follow(host, folder, nothing)


def test_a_run_that_is_not_there_is_said(host: Host, board: Board, tmp_path: Path) -> None:
    folder = Layout(workdir=board.workdir).run("never")
    assert list_runs(host, board.workdir) == ()
    with pytest.raises(RunError, match="no such run"):
        follow(host, folder, nothing)
    with pytest.raises(BoardError, match="no run to collect"):
        collect(host, folder, tmp_path / "local")


def test_a_run_folder_is_used_once(host: Host, board: Board) -> None:
    folder = Layout(workdir=board.workdir).run("run")
    launch(host, run_folder=folder, argv=["true"], trace=False, time_limit_s=60, job=JOB)
    with pytest.raises(BoardError, match="cannot be started"):
        launch(host, run_folder=folder, argv=["true"], trace=False, time_limit_s=60, job=JOB)
