"""Standard streams that are closed, full, abandoned or not UTF-8, and Ctrl-C at any moment."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from armload.boards import ssh_route
from armload.boards.failures import LoginRefusedError
from armload.cli.error_output import system_error
from armload.cli.execution import _password_is_given, run_verb
from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from tests.command_line import BIN, before_others, interrupted_at
from tests.unit.builds import unfinished_build

NOBODY = "reach: {kind: ssh, host: nowhere.invalid}\ntarget: rk3568\nworkdir: /tmp/armload\n"
"""A board whose verbs fail with status 6 before anything is asked of the network."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    (folder / "boards").mkdir()
    (folder / "boards" / "nobody.yaml").write_text(f"description: none\n{NOBODY}")
    unfinished_build(folder / "cache")
    (folder / "中文").mkdir()
    shutil.copy(shutil.which("true") or "/bin/true", folder / "中文" / "程序")
    shutil.copy(Path(__file__).parents[2] / "tasks.py", folder)
    return folder


def typed(
    folder: Path, script: str, face: str = "armload", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Let a shell run a line in which ``$0`` is the program."""
    return subprocess.run(
        ["bash", "-c", script, str(BIN / face)],
        cwd=folder,
        env=os.environ | {"ARMLOAD_CACHE": str(folder / "cache")} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "face",
    [
        "armload",
        pytest.param("invoke", marks=pytest.mark.exhaustive(covers=["armload/cli", "tasks.py"])),
    ],
)
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("board.trust --board nobody", 6),
        ("bench --model nofile.gguf", 2),
        ("board.list", 0),
    ],
)
def test_the_exit_status_does_not_depend_on_open_streams(
    face: str, words: str, status: int, folder: Path
) -> None:
    done = typed(
        folder,
        f'"$0" {words} <&- >&- 2>&-; a=$?; "$0" {words} <&- 2>/dev/full >/dev/null; echo $a $?',
        face,
    )
    assert (done.stdout, done.stderr) == (f"{status} {status}\n", "")


def test_a_question_needs_a_standard_input_to_be_answered(folder: Path) -> None:
    done = typed(folder, '"$0" clean <&- >/dev/null')
    assert done.returncode == 2
    assert "armload clean --what builds --yes" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("standard_error", ["2>&-", "2> >(true)"])
def test_an_error_that_nobody_reads_keeps_its_status_and_off_standard_output(
    standard_error: str, folder: Path
) -> None:
    done = typed(folder, f'"$0" bench --bord x {standard_error}')
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.parametrize(
    ("face", "words"),
    [
        ("armload", "--help"),
        ("armload", "show --help"),
        ("armload", "board.list"),
        ("armload", "board.list --json"),
        ("invoke", "board.list --json"),
    ],
)
def test_a_full_standard_output_is_named(face: str, words: str, folder: Path) -> None:
    done = typed(folder, f'"$0" {words} >/dev/full', face)
    assert done.returncode == 1
    said = "error: Cannot write to standard output: No space left on device."
    assert done.stderr.startswith(said)
    assert "ARMLOAD_CACHE" not in done.stderr
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize(
    "words",
    [
        *("--help", "bench --help", "board.list", "board.list --json"),
        "completion bash --install",  # shows one thing after another
    ],
)
@pytest.mark.parametrize("standard_output", [">&-", "| true; exit ${PIPESTATUS[0]}"])
def test_a_standard_output_that_nobody_reads_is_no_fault(
    words: str, standard_output: str, folder: Path, tmp_path: Path
) -> None:
    done = typed(folder, f'"$0" {words} {standard_output}', HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "encoding",
    ["ascii", pytest.param("latin-1", marks=pytest.mark.exhaustive(covers=["armload/cli"]))],
)
def test_an_encoding_without_a_files_name_shows_it_escaped(encoding: str, folder: Path) -> None:
    done = typed(
        folder,
        '"$0" inspect 中文/程序 --json && "$0" inspect 中文/程序 && "$0" inspect 中文/无',
        PYTHONIOENCODING=encoding,
    )
    document, end = json.JSONDecoder().raw_decode(done.stdout)
    assert document["path"] == "中文/程序"
    assert r"\u4e2d\u6587/\u7a0b\u5e8f" in done.stdout[end:]
    assert done.returncode == 2
    assert r"\u4e2d\u6587/\u65e0'." in done.stderr.splitlines()[0]


@pytest.mark.parametrize(
    "moment", ["armload.cli.program", "armload.cli.verbs.board", "rich.console"]
)
def test_an_interruption_at_any_moment_is_no_traceback(
    moment: str, folder: Path, tmp_path: Path
) -> None:
    done = typed(folder, 'exec "$0" board.list', **interrupted_at(moment, tmp_path))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("Interrupted.")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("keeps", [True, False])
def test_only_a_verb_that_keeps_its_work_says_so_when_it_is_interrupted(
    *, keeps: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    @verb(OutputOptions, "work", keeps=keeps)
    def work(_: OutputOptions) -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as caught:
        run_verb(work, {})
    said = capsys.readouterr().err
    assert caught.value.code == 130
    assert said.startswith("Interrupted.")
    assert ("is lost" in said) == ("the same command" in said) == keeps


def test_an_interruption_after_the_work_is_no_traceback(folder: Path, tmp_path: Path) -> None:
    late = "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
    (tmp_path / "sitecustomize.py").write_text(late)
    done = typed(folder, 'exec "$0" board.list --json', PYTHONPATH=before_others(tmp_path))
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")
    assert json.loads(done.stdout)


def _refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    socket.create_connection(("127.0.0.1", port))


def _hung_up() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        ours.sendall(b"x")


def _unknown_host() -> None:
    socket.getaddrinfo("no host", 80)


def _no_folder() -> None:
    Path("/nowhere/file").write_text("")


def _no_descriptor() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        os.dup(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("refused", "kind"),
    [
        (_refused, "connection"),
        (_hung_up, "connection"),
        (_unknown_host, "connection"),
        (_no_folder, "disk"),
        (_no_descriptor, "memory"),
    ],
)
def test_what_the_system_refuses_is_called_what_it_is(
    refused: Callable[[], None], kind: str
) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - each of its kinds
        refused()
    assert system_error(caught.value).kind == kind


@pytest.mark.parametrize(
    ("number", "place", "remedy"),
    [
        (errno.ENOSPC, "cache/builds/x", "Free space on the disk that holds {}, or set ARMLOAD"),
        (errno.EDQUOT, "work/runs/x", "Free space on the disk that holds {}, or work in another"),
        (errno.EROFS, "home/.bashrc", "Mount the file system of {}/home writable, then repeat"),
        (errno.EACCES, "home/new", "Correct the permissions of {}/home, then repeat"),
        (errno.EACCES, "home/file", "Correct the permissions of {}/home/file, then repeat"),
    ],
)
def test_the_remedy_of_a_refused_file_fits_the_error_and_names_its_folder(
    number: int, place: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "file").touch()
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "work")
    folder = tmp_path / "work" if place.startswith("work") else tmp_path
    said = system_error(OSError(number, os.strerror(number), str(tmp_path / place))).remedy
    assert said.startswith(remedy.format(folder)), said


def test_a_password_that_was_typed_is_not_inherited_by_child_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("armload.cli.terminal.ask_password", lambda: "a secret")
    monkeypatch.setattr("armload.boards.ssh_route._typed_password", None)
    assert _password_is_given(LoginRefusedError("refused", "", password_would_do=True))
    seen = subprocess.run(["env"], check=True, capture_output=True, text=True).stdout
    assert "a secret" not in seen
    assert ssh_route._typed_password == "a secret"


def test_ctrl_c_is_handled_before_anything_of_ours_is_imported() -> None:
    code = (
        "import sys; import armload.cli.main; "
        "print(*(name for name in sys.modules if name.startswith('armload')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["armload", "armload.cli", "armload.cli.main"]
