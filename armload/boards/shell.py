"""A shell on a board for a person, and the line that opens one without armload."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from armload.boards.board import (
    AdbReach,
    Board,
    HdcReach,
    LocalReach,
    SshAddress,
    SshReach,
    VirtualReach,
)
from armload.boards.bulk import NotStartedError
from armload.boards.connect import connect, running_address, start
from armload.boards.framing import shell_line
from armload.boards.ssh_connection import open_connection
from armload.boards.ssh_transport import PYTHONS_CIPHERS
from armload.boards.trust import ssh_address
from armload.core.bounds import size_words
from armload.core.errors import MissingToolError, UsageError
from armload.core.progress import Progress
from armload.core.shell import join, quote

_LONGEST_COMMAND_S = 86_400.0
_MOST_SCRIPT_BYTES = 1 << 20


def open_shell(board: Board, command: Sequence[str], progress: Progress) -> int:
    """Run a command, or else a shell, at this terminal; return its exit status.

    It begins in the work folder, and finds what ``deploy`` put there by plain names.

    Args:
        command: one word is a line of the shell, several are a program and its arguments; none
            for a shell, which reads standard input where that is no terminal.

    Raises:
        ArmloadError: the board cannot be reached, or a program is missing that reaches it.
    """
    is_watched = sys.stdin.isatty()
    script = _script(board.workdir, command, is_watched=is_watched)
    if isinstance(board.reach, LocalReach):
        return _run(["sh", "-c", script])
    if isinstance(board.reach, AdbReach | HdcReach):
        if command or not is_watched:
            return _through_the_tool(board, script if command else _read_script(script), progress)
        if isinstance(board.reach, AdbReach):
            return _run([*login_words(board), "-t", script])
        # It has no terminal for a command, so that nothing can be set before the shell.
        progress.say(f"To find its programs by their names: {_setting(board.workdir)}")
        return _run(login_words(board))
    return _by_ssh(board, script, progress, with_terminal=is_watched and sys.stdout.isatty())


def login_words(board: Board) -> list[str]:
    """Return what opens a shell on a board without armload; nothing for this machine's own."""
    match board.reach:
        case AdbReach(program=program, serial=serial):
            return [program, *(["-s", serial] if serial else []), "shell"]
        case HdcReach(program=program, key=key):
            return [program, *(["-t", key] if key else []), "shell"]
        case SshReach():
            return _ssh_words(ssh_address(board))
        case VirtualReach():
            address = running_address(board)
            return _ssh_words(address) if address else []
        case _:
            return []


def _ssh_words(address: SshAddress) -> list[str]:
    port = ["-p", str(address.port)] if address.port else []
    key = ["-i", str(address.key)] if address.key else []
    name = f"{address.user}@{address.host}" if address.user else address.host
    return ["ssh", *port, *key, name]


def _script(workdir: PurePosixPath, command: Sequence[str], *, is_watched: bool) -> str:
    shell = 'exec "${SHELL:-sh}"' if is_watched else "exec sh"
    work = (command[0] if len(command) == 1 else join(command)) if command else shell
    return f"cd {quote(workdir)} 2>/dev/null; {_setting(workdir)}\n{work}"


def _setting(workdir: PurePosixPath) -> str:
    return f'export PATH={quote(workdir / "bin")}:"$PATH"'


def _read_script(begin: str) -> str:
    script = sys.stdin.read(_MOST_SCRIPT_BYTES + 1)
    if len(script) > _MOST_SCRIPT_BYTES:
        raise UsageError(
            f"The script on standard input is longer than {size_words(_MOST_SCRIPT_BYTES)}.",
            "Copy it to the board, and run it there by its name.",
        )
    return f"{begin.rpartition(chr(10))[0]}\n{script}"


def _by_ssh(board: Board, script: str, progress: Progress, *, with_terminal: bool) -> int:
    address = start(board, progress) if isinstance(board.reach, VirtualReach) else None
    connection = open_connection(address or ssh_address(board), board.name)
    try:
        with tempfile.TemporaryDirectory(prefix="armload-ssh-") as folder:
            try:
                words, name = connection.ssh_line(Path(folder), PYTHONS_CIPHERS)
            except NotStartedError as error:
                raise MissingToolError(
                    f"{board.name}: the system's ssh cannot be used: {error}.",
                    "Install OpenSSH's client, then repeat the command.",
                ) from error
            # At a terminal it may ask for a password.
            asking = ["-o", "BatchMode=no"] if sys.stdin.isatty() else []
            terminal = "-tt" if with_terminal else "-T"
            return _run([*words, *asking, terminal, name, shell_line(script)])
    finally:
        connection.close()


def _through_the_tool(board: Board, script: str, progress: Progress) -> int:
    """Run a script as armload does: the tools may merge streams, and tell no status."""
    host = connect(board, progress)
    try:
        done = host.run(script, timeout_s=_LONGEST_COMMAND_S)
    finally:
        host.close()
    sys.stdout.buffer.write(done.stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(done.stderr)
    return done.status


def _run(words: Sequence[str]) -> int:
    """Run a program in this one's place at the terminal."""
    # Ctrl-C is for the program, which has the same terminal; a handler is not handed on to it.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        status = subprocess.Popen(words).wait()
    except FileNotFoundError as error:
        raise MissingToolError(f"There is no program {words[0]} in PATH.", "Install it.") from error
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status
