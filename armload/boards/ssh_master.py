"""A login by the system's ``ssh``, where Python's client cannot: one for all that a process does.

Security keys, other agents, smart cards, certificates and what else OpenSSH alone knows. Commands
are sessions of one master connection, so that a person types a passphrase, or touches a key, once.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from armload.boards.bulk import NotStartedError
from armload.boards.failures import CONNECT_TIMEOUT_S, FORBIDDEN_FORWARDING
from armload.boards.forward import Tunnel
from armload.boards.framing import shell_line
from armload.boards.host import TransportChoice
from armload.boards.ssh_transport import CipherChoice
from armload.core.children import known
from armload.core.errors import BoardError, ConnectError

# The name goes to nobody: the socket leads to the master, and nothing else does.
NAME = "armload"
_BROKEN = 255
STAYS_S = 15
"""How long the master stays when armload was killed."""
# A person may have to find the key that is to be touched.
_LOGIN_S = 120.0
_REFUSED_WITHIN_S = 0.5
_OPTIONS = (
    "ClearAllForwardings=yes",
    "Compression=no",
    f"ConnectTimeout={CONNECT_TIMEOUT_S:.0f}",
    "ControlMaster=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "LogLevel=DEBUG1",
    "NumberOfPasswordPrompts=1",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "ServerAliveCountMax=4",
    "ServerAliveInterval=5",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
)
_SECRET = "ARMLOAD_ASKPASS_ANSWER"  # noqa: S105 - the variable's name


class Login:
    """An ``ssh`` in the background that is logged in, shared by those who need the same one.

    Args:
        words: the options and the host that lead there.
        host_key: the one key that the server must show; none to ask the known_hosts files.
        secret: the passphrase or password that answers all questions; none to ask a person, where
            one is at the terminal.

    Raises:
        NotStartedError: it cannot log in; says why.
    """

    def __init__(self, words: tuple[str, ...], host_key: str | None, secret: str | None) -> None:
        program = shutil.which("ssh")
        if program is None:
            raise NotStartedError("no ssh in PATH")
        self.users = 0
        with contextlib.ExitStack() as stack:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="armload-ssh-"))
            folder = Path(name)
            self._log = folder / "log"
            path = folder / "m"
            self.words = (program, "-F", "/dev/null", "-S", str(path), "-o", "ProxyCommand=false")
            if secret is not None:
                asking = []
            elif not _person_is_there():
                asking = ["BatchMode=yes"]
            else:
                # Passphrases and PINs; for a password armload asks itself.
                asking = ["PasswordAuthentication=no", "KbdInteractiveAuthentication=no"]
            options = [*_OPTIONS, f"ControlPersist={STAYS_S}", *asking]
            if host_key is not None:
                (folder / "known").write_text(f"{NAME} {host_key}\n", encoding="ascii")
                options += [
                    f"HostKeyAlias={NAME}",
                    f"UserKnownHostsFile={folder}/known",
                    "GlobalKnownHostsFile=/dev/null",
                ]
            line = [program, "-E", str(self._log), "-S", str(path)]
            line += [word for option in options for word in ("-o", option)]
            self._log_in([*line, "-T", *words, shell_line("true")], secret, folder)
            if not path.exists():
                lines = (
                    self.log().decode("utf-8", "replace").splitlines() if self._log.exists() else []
                )
                said = [line for line in lines if not line.startswith("debug") and line.strip()]
                raise NotStartedError(
                    said[-1].strip().rstrip(".") if said else "it exited immediately"
                )
            stack.callback(self._ask_to_exit)
            self._holder = subprocess.Popen(
                [*self.words, "-T", NAME, shell_line("exec cat")],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(self._let_go)
            # With its own input it also ends when armload is killed, and the master soon after.
            stack.enter_context(known(self._holder, is_kept=True))
            self._opened = stack.pop_all()

    @property
    def alive(self) -> bool:
        return self._holder.poll() is None

    def dropped_within(self, timeout_s: float) -> bool:
        """Say whether the connection has gone, or goes within so long."""
        try:
            self._holder.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def log(self) -> bytes:
        return self._log.read_bytes()

    def close(self) -> None:
        self._opened.close()

    def _log_in(self, words: list[str], secret: str | None, folder: Path) -> None:
        environment = dict(os.environ)
        if secret is not None:
            answering = folder / "answer"
            answering.write_text(f'#!/bin/sh\nprintf "%s\\n" "${_SECRET}"\n', encoding="ascii")
            answering.chmod(0o700)
            asked = {"SSH_ASKPASS": str(answering), "SSH_ASKPASS_REQUIRE": "force"}
            environment.update({"DISPLAY": ":0", **os.environ, **asked, _SECRET: secret})
        # In the terminal's foreground, as it may ask there; its log stands in the file.
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if _person_is_there() else subprocess.DEVNULL,
            env=environment,
        )
        try:
            process.wait(_LOGIN_S)
        except subprocess.TimeoutExpired:
            raise NotStartedError(f"no login within {_LOGIN_S:g} s") from None
        finally:
            process.kill()
            process.wait()

    def _ask_to_exit(self) -> None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*self.words, "-O", "exit", NAME],
                capture_output=True,
                check=False,
                timeout=CONNECT_TIMEOUT_S,
            )

    def _let_go(self) -> None:
        if self._holder.stdin is not None:
            with contextlib.suppress(OSError):
                self._holder.stdin.close()
        self._holder.kill()
        self._holder.wait()


def _person_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


_CIPHER = re.compile(rb"debug1: kex: client->server cipher: (\S+)")


def cipher_in(log: bytes) -> str:
    """Return the cipher that ``ssh`` negotiated with the board, empty where its log tells none."""
    found = _CIPHER.findall(log)
    return found[-1].decode() if found else ""


_logins: dict[object, Login] = {}
_changing = threading.Lock()


class MasterConnection:
    """An ``SshTransport`` by the system's ``ssh``: a use of a login.

    Args:
        why: what kept Python's client from logging in.

    Others as for ``Login``.
    """

    carries_ssh = True

    def __init__(
        self,
        words: tuple[str, ...],
        host_key: str | None,
        secret: str | None,
        board_name: str,
        why: str,
    ) -> None:
        self._why = why
        self._board_name = board_name
        self._key = (words, host_key)
        self._closed = False
        with _changing:
            login = _logins.get(self._key)
            if login is None or not login.alive:
                login = _logins[self._key] = Login(words, host_key, secret)
            login.users += 1
        self._login = login

    @property
    def alive(self) -> bool:
        return self._login.alive

    @property
    def _reason(self) -> str:
        return f"Python's SSH client cannot log in: {self._why.rstrip('.')}"

    @property
    def commands(self) -> TransportChoice:
        return TransportChoice(
            purpose="commands", chosen="sessions of the system's ssh", reason=self._reason
        )

    def bulk(self, why_no_ssh: str) -> TransportChoice:
        del why_no_ssh
        return TransportChoice(purpose="bulk data", chosen="the system's ssh", reason=self._reason)

    def encryption(
        self, negotiated: str, ciphers: CipherChoice, why_no_ssh: str
    ) -> TransportChoice:
        del ciphers, why_no_ssh
        return TransportChoice(
            purpose="encryption", chosen=negotiated, reason="as configured for ssh"
        )

    def ssh_line(self, folder: Path, ciphers: Sequence[str]) -> tuple[tuple[str, ...], str]:
        del folder, ciphers
        return self._login.words, NAME

    def ssh_cipher(self, debug: bytes) -> str:
        del debug  # of a session, which negotiates nothing
        return cipher_in(self._login.log())

    def tunnel(self, port: int, why_no_ssh: str) -> Tunnel:
        del port
        raise ConnectError(f"{self._board_name}: ssh cannot forward a port: {why_no_ssh}.")

    def reverse_tunnel(
        self, port: int, local_port: int, why_no_ssh: str
    ) -> contextlib.AbstractContextManager[None]:
        del port, local_port
        raise BoardError(
            f"{self._board_name}: the board cannot reach ports of this machine: {why_no_ssh}.",
            FORBIDDEN_FORWARDING,
        )

    def channel(self) -> MasterChannel:
        if not self.alive:
            raise ConnectError(f"{self._board_name}: the connection dropped.")
        return MasterChannel(self._login)

    def check(self) -> None:
        channel = self.channel()
        channel.exec_command(shell_line("true"))
        answered = channel.status_event.wait(CONNECT_TIMEOUT_S) and channel.exit_status >= 0
        channel.close()
        if not answered:
            raise ConnectError(f"{self._board_name}: the connection dropped.")

    def check_forwarding(self, port: int) -> None:
        before = len(self._login.log())
        trial = subprocess.Popen(
            [*self._login.words, "-W", f"127.0.0.1:{port}", NAME],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with known(trial, is_kept=True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                trial.wait(_REFUSED_WITHIN_S)
            trial.kill()
            trial.wait()
        for line in self._login.log()[before:].decode("utf-8", "replace").splitlines():
            if "prohibited" in line or "unknown channel type" in line:
                reason = line.rpartition("open failed: ")[2].strip()
                raise BoardError(
                    f"{self._board_name}: the board's SSH server forbids port forwarding "
                    f"({reason}).",
                    FORBIDDEN_FORWARDING,
                )

    def close(self) -> None:
        """End the connection when nobody else uses it."""
        with _changing:
            if self._closed:
                return
            self._closed = True
            self._login.users -= 1
            if self._login.users == 0:
                if _logins.get(self._key) is self._login:
                    del _logins[self._key]
                self._login.close()


class MasterChannel:
    """One command, run by an ``ssh`` of its own; behaves as a channel of paramiko's does."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._process: subprocess.Popen[bytes] | None = None
        self._stream, self._theirs = socket.socketpair()
        self._errors, self._their_errors = socket.socketpair()
        self.status_event = _Ended(self._wait)
        self.recv: Callable[[int], bytes] = self._stream.recv
        self.recv_stderr: Callable[[int], bytes] = self._errors.recv
        self.sendall = self._stream.sendall

    def exec_command(self, line: str) -> None:
        self._process = subprocess.Popen(
            [*self._login.words, "-T", NAME, line],
            stdin=self._theirs.fileno(),
            stdout=self._theirs.fileno(),
            stderr=self._their_errors.fileno(),
            start_new_session=True,
        )
        self._theirs.close()
        self._their_errors.close()

    def settimeout(self, timeout_s: float | None) -> None:
        self._stream.settimeout(timeout_s)
        self._errors.settimeout(timeout_s)

    def shutdown_write(self) -> None:
        self._stream.shutdown(socket.SHUT_WR)

    def exit_status_ready(self) -> bool:
        return self._wait(0.0)

    @property
    def exit_status(self) -> int:
        """The command's status; negative when it is not known."""
        status = None if self._process is None else self._process.returncode
        if status is None or status < 0:
            return -1
        # It is also what a command may end with.
        return -1 if status == _BROKEN and self._login.dropped_within(1.0) else status

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for end in (self._stream, self._errors):
            # Whoever waits for it in another thread is to wake up.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for end in (self._stream, self._errors, self._theirs, self._their_errors):
            end.close()

    def _wait(self, timeout_s: float) -> bool:
        if self._process is None:
            return False
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True


class _Ended:
    def __init__(self, wait: Callable[[float], bool]) -> None:
        self.wait = wait
