"""A run from its start to its end, on every kind of host."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path, PurePosixPath
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armload.boards.board import Board
from armload.boards.host import Completed, Host
from armload.boards.local import LocalHost
from armload.boards.virtual.process import Started
from armload.core.errors import BoardError, ConnectError, RunError
from armload.core.shell import quote
from armload.deploy.board_runs import list_runs
from armload.deploy.collect import MOST_FILES, collect
from armload.deploy.exit_reason import explain
from armload.deploy.exit_record import read_peaks
from armload.deploy.follow import ProgressUpdate, end_orphan, follow, stop
from armload.deploy.layout import PROGRAM_FOLDER, Layout
from tests.contract.launching import launched, nothing, run_to_end, waiting_for
from tests.faults import At, small_disk
from tests.waiting import wait_until

WORDS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30)


@settings(
    max_examples=3,
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
    assert run_to_end(emulated, board.workdir, local, "sh", "-c", script, "name", *awkward) == 0
    assert (local / "stdout").read_bytes() == "".join(f"{word}\n" for word in awkward).encode()


@pytest.mark.parametrize(
    ("script", "status", "meaning"),
    [
        ("kill -BUS $$", 135, "could no longer be read"),
        ("exec /etc/passwd", 126, "cannot be run"),
        ("cat /etc/passwd >/dev/full", 1, "storage is full"),
    ],
)
def test_endings_that_a_shell_brings_about_are_told_apart(
    host: Host, board: Board, tmp_path: Path, script: str, status: int, meaning: str
) -> None:
    local = tmp_path / "run"
    assert run_to_end(host, board.workdir, local, "sh", "-c", script) == status
    ending = explain(local)
    assert ending.status == status
    assert meaning in ending.meaning


def test_a_run_grows_before_the_followers_eyes(host: Host, board: Board, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = (
        'echo \'{"format":1}\' >"$ARMLOAD_TRACE"; echo \'{"step":0}\' >>"$ARMLOAD_TRACE"; '
        f"echo Once; until [ -e '{gate}' ]; do sleep 1; done; "
        'echo \'{"step":1}\' >>"$ARMLOAD_TRACE"; echo upon'
    )
    folder = launched(host, board.workdir, "sh", "-c", script)
    seen, lines = [], list[str]()

    def grown(now: ProgressUpdate) -> None:
        seen.append((now.steps, now.lines, now.text))
        lines.extend(now.new_lines)
        if now.steps and now.text:
            gate.touch()

    assert follow(host, folder, grown) == 0
    assert (1, 1, "Once\n") in seen
    assert seen[-1] == (2, 2, "Once\nupon\n")
    assert lines == ["Once", "upon"]


def test_memory_is_watched(host: Host, board: Board, tmp_path: Path) -> None:
    local = tmp_path / "run"
    assert run_to_end(host, board.workdir, local, "sleep", "1.5") == 0
    peaks = read_peaks(local)
    assert peaks is not None
    assert 100_000 < peaks.resident_bytes <= peaks.virtual_bytes


def test_a_run_is_stopped_on_request(host: Host, board: Board, tmp_path: Path) -> None:
    folder = launched(host, board.workdir, "sleep", "600")
    assert [(run.id, run.state) for run in list_runs(host, board.workdir)] == [("run", "running")]
    stop(host, folder)
    stop(host, folder)
    assert follow(host, folder, nothing) == 143
    collect(host, folder, tmp_path / "local")
    ending = explain(tmp_path / "local")
    assert (ending.kind, ending.meaning) == ("stopped", "stopped on request")
    (run,) = list_runs(host, board.workdir)
    assert (run.state, run.status, run.folder) == ("ended", 143, folder)


def test_a_run_whose_script_is_killed_is_called_interrupted(
    host: Host, board: Board, tmp_path: Path
) -> None:
    folder = launched(host, board.workdir, "sleep", "600")
    killed = False

    def grown(now: ProgressUpdate) -> None:
        nonlocal killed
        if not killed:
            killed = True
            os.kill(int(Path(folder / "wrapper").read_text()), signal.SIGKILL)

    try:
        with pytest.raises(RunError, match="monitors the program"):
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
    launched(restarting, board.workdir, *waiting_for(gate))
    with pytest.raises(RunError, match="restarted"):
        follow(host, folder, nothing)
    gate.touch()
    assert not [path for path in Path(folder).glob("*.sh") if path.name != "run.sh"]


def test_a_run_of_a_former_boot_is_called_interrupted(host: Host, board: Board) -> None:
    folder = launched(host, board.workdir, "true")
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
    with pytest.raises(BoardError, match="no run to fetch"):
        collect(host, folder, tmp_path / "local")


def test_a_run_folder_is_used_once(host: Host, board: Board) -> None:
    launched(host, board.workdir, "true")
    with pytest.raises(BoardError, match="cannot start the run"):
        launched(host, board.workdir, "true")


def test_what_a_program_writes_is_never_taken_for_a_file_of_ours(
    host: Host, board: Board, tmp_path: Path
) -> None:
    gate, local = tmp_path / "gate", tmp_path / "local"
    script = (
        "for name in exit stopped finished memory watched pid wrapper birth boot_id limit full "
        f"stdout trace.jsonl reference.json; do echo 0 >$name; done; until [ -e {quote(gate)} ]; "
        "do sleep 0.1 2>/dev/null || sleep 1; done; exit 3"
    )
    folder = launched(host, board.workdir, "sh", "-c", script)
    wait_until(lambda: any(Path(folder).rglob("reference.json")))
    assert [run.state for run in list_runs(host, board.workdir)] == ["running"]
    gate.touch()
    assert follow(host, folder, nothing) == 3
    progress = At(0, lambda: None)
    collect(host, folder, local, progress)
    assert progress.said == []
    assert explain(local).kind == "exit status"
    assert not (local / "reference.json").exists()
    assert (local / PROGRAM_FOLDER / "reference.json").read_text() == "0\n"
    assert (local / PROGRAM_FOLDER / "exit").read_text() == "0\n"


def test_the_files_of_a_program_come_home_with_their_folders(
    host: Host, board: Board, tmp_path: Path
) -> None:
    local = tmp_path / "run"
    script = "mkdir -p 'my out/deep'; echo a >'my out/deep/$(id) é '; echo b >'-n'; : >empty"
    assert run_to_end(host, board.workdir, local, "sh", "-c", script) == 0
    there = Path(Layout(workdir=board.workdir).run("run"), PROGRAM_FOLDER)
    (there / "large").write_bytes(os.urandom(2 << 20))
    (local / ".files.part").mkdir()
    (local / ".files.part" / "large").write_bytes((there / "large").read_bytes()[: 1 << 20])
    collect(host, PurePosixPath(there.parent), local)
    found = {
        str(path.relative_to(there)): path.read_bytes()
        for path in there.rglob("*")
        if path.is_file()
    }
    home = local / PROGRAM_FOLDER
    assert len(found) == 4
    assert {name: (home / name).read_bytes() for name in found} == found
    assert not list(local.glob(".*"))


def test_of_what_no_run_is_known_to_leave_only_so_much_is_fetched(
    host: Host, board: Board, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    folder = launched(host, board.workdir, "true")
    follow(host, folder, nothing)
    collect(host, folder, local)
    own = {path.name for path in local.iterdir() if path.is_file()}
    there = Path(folder, PROGRAM_FOLDER)
    with (there / "0-huge").open("wb") as file:
        file.truncate(3 << 30)
    (there / "0-dir").mkdir()
    (there / "0-dir" / "small").write_bytes(b"1")
    for number in range(10_000):
        Path(folder, f"stray-{number}").touch()
        (there / f"{number}").touch()
    (there / "back\\slash").touch()
    progress = At(0, lambda: None)
    collect(host, folder, local, progress)
    assert {path.name for path in local.iterdir() if path.is_file()} - {"job.json"} == own - {
        "job.json"
    }
    fetched = [path for path in (local / PROGRAM_FOLDER).rglob("*") if path.is_file()]
    assert len(fetched) == MOST_FILES - 1
    (said,) = progress.said
    assert f"{20_000 + 3 - len(fetched):,} files of run on" in said
    assert str(folder) in said


@pytest.mark.parametrize("more", ["", "x" * 200_000])
def test_a_name_that_is_no_utf_8_reaches_the_shell_of_this_machine(more: str) -> None:
    done = LocalHost("kitchen").run(f": {more}; printf %s '\udcc4\udce3'")
    assert done.stdout == b"\xc4\xe3"


def test_a_later_process_with_the_number_of_a_run_s_program_is_left_alone(
    tmp_path: Path,
) -> None:
    host = LocalHost("kitchen")
    workdir = PurePosixPath(tmp_path / "board")
    folder = launched(host, workdir, "sleep", "600")
    wait_until(lambda: Path(folder, "pid").exists() and Path(folder, "pid").read_text() != "")
    program = Started.of(int(Path(folder, "pid").read_text()))
    assert program is not None
    os.kill(int(Path(folder, "wrapper").read_text()), signal.SIGKILL)
    time.sleep(0.05)  # the kernel counts a process's beginning in hundredths of a second
    with subprocess.Popen(["sleep", "600"], start_new_session=True, cwd=folder) as stranger:
        try:
            Path(folder, "pid").write_text(f"{stranger.pid}\n")
            stop(host, folder)
            end_orphan(host, folder)
            assert stranger.poll() is None
            Path(folder, "pid").write_text(f"{program.pid}\n")
            end_orphan(host, folder)
            assert program.wait_gone(10)
        finally:
            stranger.kill()
            program.end()


def test_a_run_that_finds_no_room_says_how_to_make_some(tmp_path: Path) -> None:
    with small_disk(tmp_path / "board", 1) as workdir:
        with pytest.raises(OSError, match="No space left"):
            (workdir / "big").write_bytes(bytes(2 << 20))
        with pytest.raises(BoardError, match="is full") as caught:
            launched(LocalHost("kitchen"), PurePosixPath(workdir), "true")
    assert "free other space" in caught.value.remedy


def test_a_run_whose_end_cannot_be_read_is_not_waited_for(host: Host, board: Board) -> None:
    folder = launched(host, board.workdir, "true", name="unreadable")
    assert follow(host, folder, nothing) == 0
    # Reading a folder fails too, and reading from bad storage cannot be had everywhere.
    assert host.run(f"cd {quote(str(folder))} && rm exit && mkdir exit").status == 0
    with pytest.raises(RunError, match="the board's storage reports errors") as caught:
        follow(host, folder, nothing)
    assert "armload pull" in caught.value.remedy


def test_a_killed_program_is_not_called_finished_before_its_script_has_noticed(
    host: Host, board: Board, tmp_path: Path
) -> None:
    folder = launched(host, board.workdir, "sleep", "600")
    wait_until(lambda: Path(folder, "pid").exists() and Path(folder, "pid").read_text() != "")
    script, program = (int(Path(folder, name).read_text()) for name in ("wrapper", "pid"))
    os.kill(script, signal.SIGSTOP)
    os.kill(program, signal.SIGKILL)
    wait_until(lambda: ") Z " in Path(f"/proc/{program}/stat").read_text())
    noticing = threading.Timer(0.5, os.kill, (script, signal.SIGCONT))
    noticing.start()
    stop(host, folder, finished=True)
    noticing.join()
    assert follow(host, folder, nothing) == 137
    collect(host, folder, tmp_path / "local")
    assert explain(tmp_path / "local").kind == "killed"
