"""A board reached by SSH: commands, streams and bytes over one connection that is renewed."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from armload.boards.board import SshAddress
from armload.boards.bulk import (
    PIECE_BYTES,
    TRANSFER_SILENCE_S,
    NotBegunError,
    pieces,
    reporting_chunks,
)
from armload.boards.failures import SlowCommandError, SwitchedOffError, translated
from armload.boards.forward import Proxy, Tunnel, relayed
from armload.boards.framing import (
    READING,
    after_mark,
    appending,
    cutting,
    marked,
    own_output,
    reason,
    receiving,
    shell_line,
    size_of,
    to_be_read,
)
from armload.boards.host import Completed, Piece, TransportChoice
from armload.boards.ssh_connection import SshConnection, open_connection
from armload.boards.system_ssh import SystemSsh, open_passage
from armload.boards.transport import CipherChoice, choose_ciphers, features_here, features_in
from armload.core.errors import BoardError, ConnectError
from armload.core.shell import quote

if TYPE_CHECKING:
    import paramiko


def output_of(channel: paramiko.Channel) -> Iterator[bytes]:
    """Yield what the command itself writes to standard output, to its end."""
    return after_mark(blocks_of(channel))


def blocks_of(channel: paramiko.Channel) -> Iterator[bytes]:
    """Yield all of standard output, what the login shell writes included."""
    return iter(lambda: channel.recv(PIECE_BYTES), b"")


def errors_of(channel: paramiko.Channel) -> Iterator[bytes]:
    """Yield standard error to its end."""
    return iter(lambda: channel.recv_stderr(PIECE_BYTES), b"")


def sent_to(channel: paramiko.Channel, chunk: bytes) -> bool:
    """Write to standard input; return False where nobody reads it any more.

    Raises:
        TimeoutError: it was not taken in time.
    """
    try:
        channel.sendall(chunk)
    except TimeoutError:
        raise
    except OSError:
        # The reader has gone; the channel knows why.
        return False
    return True


def feed(channel: paramiko.Channel, stdin: bytes) -> None:
    """Write all of standard input and close it."""
    # A command need not read its input to the end, and a break shows on the reading side.
    with contextlib.suppress(OSError, EOFError):
        if stdin:
            channel.sendall(stdin)
        channel.shutdown_write()


# Dropbear cuts the connection at longer command lines: 9000 bytes now, 1024 in old releases.
LONGEST_COMMAND_BYTES = 900
# Below, a second login takes longer than what it saves.
BULK_BYTES = 8 << 20
# Nothing can listen there, so that a trial disturbs nobody.
_NOBODYS_PORT = 0


def _stays() -> None:
    """Find nothing that has taken a real board away for good."""


def _fits(command: str) -> bool:
    return len(shell_line(marked(command)).encode()) <= LONGEST_COMMAND_BYTES


class SshHost:
    """The Host protocol over SSH.

    Needs nothing of the board but an SSH server, a POSIX shell and ``cat``.

    Args:
        went_off: called when the connection drops, to say whether the board was shut down.
    """

    def __init__(
        self,
        address: SshAddress,
        board_name: str,
        went_off: Callable[[], SwitchedOffError | None] = _stays,
    ) -> None:
        self._address = address
        self._name = board_name
        self._went_off = went_off
        self._connection: SshConnection | None = None
        self._system_ssh: SystemSsh | None = None
        self._why_no_system_ssh = ""
        self._cipher_choice: CipherChoice | None = None

    @property
    def name(self) -> str:
        """The board's name."""
        return self._name

    @property
    def launcher(self) -> tuple[str, ...]:
        """No words: programs are run as they are."""
        return ()

    def ways(self) -> tuple[TransportChoice, ...]:
        """Return how commands, data and clients reach the board, after a trial login."""
        negotiated = ""

        def log_in(ssh: SystemSsh) -> None:
            nonlocal negotiated
            negotiated = ssh.negotiated_cipher()

        by_system_ssh = self._by_system_ssh(log_in)
        chosen, why = (
            "the system's ssh",
            "it can log in the same way, and encrypts faster than Python",
        )
        if not by_system_ssh:
            negotiated = self._connected().cipher
            chosen = "a channel of the same connection"
            why = f"the system's ssh cannot be used: {self._why_no_system_ssh}"
        return (
            TransportChoice(
                purpose="commands", chosen="SSH exec", reason="the board is reached by SSH"
            ),
            TransportChoice(
                purpose="long commands",
                chosen="a shell's standard input",
                reason=f"small servers take no command longer than {LONGEST_COMMAND_BYTES} bytes",
            ),
            TransportChoice(purpose="bulk data", chosen=chosen, reason=why),
            self._ciphers().way(negotiated, by_program=by_system_ssh),
            self._forwarding_way(chosen, why),
        )

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        """Run a shell command to its end, whatever its status is."""
        deadline = time.monotonic() + timeout_s
        output = {"stdout": bytearray(), "stderr": bytearray()}
        with self._started(command, stdin) as channel:
            late = f"{self._name}: no answer within {timeout_s:g} s."
            streams = (blocks_of(channel), errors_of(channel))
            try:
                for stream, data in pieces(*streams, lambda: deadline - time.monotonic(), late):
                    output[stream] += data
                status = self._status(channel, max(deadline - time.monotonic(), 1.0))
            except ConnectError as error:
                if time.monotonic() >= deadline and self._answers():
                    raise SlowCommandError(self._name, timeout_s) from error
                raise
        stdout, stderr = bytes(output["stdout"]), bytes(output["stderr"])
        own = own_output(stdout)
        if own is None:
            raise BoardError(
                f"{self._name}: the login shell did not run the command, and wrote: "
                f"{reason(stdout or stderr).rstrip('.')}.",
                "Give the user a POSIX shell, or log in as another user.",
            )
        return Completed(status=status, stdout=own, stderr=stderr)

    def stream(self, command: str, *, silence_s: float = 30.0) -> Iterator[Piece]:
        """Run a shell command and yield its output as it comes, to its end."""
        with self._started(command, b"") as channel:
            late = f"{self._name}: no data for {silence_s:g} s."
            yield from pieces(output_of(channel), errors_of(channel), lambda: silence_s, late)
            self._status(channel, silence_s)

    def read(self, path: PurePosixPath) -> Iterator[bytes]:
        """Yield the file's bytes."""
        command = f"cat <{quote(path)}"
        blocks: Iterator[bytes] = iter(())

        def begin(ssh: SystemSsh) -> None:
            nonlocal blocks
            blocks = ssh.carrier(command).read(path)
            next(blocks)

        size = self.run(size_of(path)).text.strip()
        large = size.isdecimal() and int(size) >= BULK_BYTES
        if large and self._by_system_ssh(begin):
            with self._watched():
                yield from blocks
            return
        with self._started(command, b"") as channel, translated(self._name):
            channel.settimeout(TRANSFER_SILENCE_S)
            yield from output_of(channel)
            self._check_done(channel, f"{path} cannot be read")

    def write(self, path: PurePosixPath, chunks: Iterable[bytes], *, offset_bytes: int = 0) -> None:
        """Write bytes to a file from an offset on: 0 replaces it, else it is cut there first."""
        command = self._receiving(path, offset_bytes)
        rest = iter(chunks)
        first, size = [], 0
        while size < BULK_BYTES and (chunk := next(rest, None)) is not None:
            first.append(chunk)
            size += len(chunk)
        every = itertools.chain(first, rest)
        if (
            size >= BULK_BYTES
            and _fits(command)
            and self._by_system_ssh(lambda ssh: ssh.carrier(command).write(path, every))
        ):
            return
        with self._started(command, None) as channel, translated(self._name):
            channel.settimeout(TRANSFER_SILENCE_S)
            for chunk in every:
                if channel.exit_status_ready() or not sent_to(channel, chunk):
                    break
            else:
                channel.shutdown_write()
            self._check_done(channel, f"{path} cannot be written")

    def send_file(
        self,
        local: Path,
        remote: PurePosixPath,
        *,
        offset_bytes: int,
        sent: Callable[[int], None],
    ) -> None:
        """Write a local file from an offset on into ``remote``, at the same offset."""
        command = self._receiving(remote, offset_bytes)

        def send(ssh: SystemSsh) -> None:
            carrier = ssh.carrier(command)
            carrier.send_file(local, remote, offset_bytes=offset_bytes, sent=sent)

        large = local.stat().st_size - offset_bytes >= BULK_BYTES
        if not (large and _fits(command) and self._by_system_ssh(send)):
            self.write(
                remote, reporting_chunks(local, offset_bytes, sent), offset_bytes=offset_bytes
            )

    def forwarded(self, port: int, local_port: int = 0) -> contextlib.AbstractContextManager[Proxy]:
        """Let programs of this machine reach a port on the board's loopback."""
        return relayed(lambda: self._passage(port), self._name, local_port)

    def close(self) -> None:
        """End the connection; harmless when it has ended."""
        if self._system_ssh is not None:
            self._system_ssh.close()
            self._system_ssh = None
        self._why_no_system_ssh = ""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _passage(self, port: int) -> Tunnel:
        with self._explained_if_off():
            return open_passage(self._address, self._name, port, self._ciphers().order)

    def _forwarding_way(self, chosen: str, why: str) -> TransportChoice:
        try:
            with self._watched():
                self._connected().channel_to_port(_NOBODYS_PORT)
        except BoardError as error:
            chosen, why = "none", error.message
        return TransportChoice(purpose="port forwarding", chosen=chosen, reason=why)

    def _by_system_ssh(self, carry: Callable[[SystemSsh], None]) -> bool:
        """Let the system's ``ssh`` carry bytes; return False when it cannot log in."""
        with self._watched():
            ciphers = self._ciphers().order
            connection = self._connected()
            if self._why_no_system_ssh:
                return False
            try:
                if self._system_ssh is None:
                    self._system_ssh = SystemSsh(connection.hosts, self._name, ciphers)
                carry(self._system_ssh)
            except NotBegunError as error:
                self._why_no_system_ssh = str(error)
                return False
        return True

    def _ciphers(self) -> CipherChoice:
        if self._cipher_choice is None:
            cpuinfo = self.run("cat /proc/cpuinfo").stdout
            self._cipher_choice = choose_ciphers(features_in(cpuinfo), features_here())
        return self._cipher_choice

    def _receiving(self, path: PurePosixPath, offset_bytes: int) -> str:
        """Return the command that receives a file; a longer one runs in two halves."""
        command = receiving(path, offset_bytes)
        if _fits(command):
            return command
        done = self.run(cutting(path, offset_bytes))
        if done.status != 0:
            raise BoardError(f"{self._name}: {path} cannot be written: {reason(done.stderr)}.")
        return appending(path, offset_bytes)

    def _answers(self) -> bool:
        """Say whether the connection that is open still reaches the board."""
        with contextlib.suppress(ConnectError):
            if self._connection is not None:
                self._connection.channel().close()
                return True
        return False

    def _connected(self) -> SshConnection:
        if self._connection is None or not self._connection.alive:
            self.close()
            self._connection = open_connection(self._address, self._name)
        return self._connection

    def _new_channel(self) -> paramiko.Channel:
        if self._connection is not None and self._connection.alive:
            with contextlib.suppress(ConnectError):
                return self._connection.channel()
        self.close()
        return self._connected().channel()

    @contextlib.contextmanager
    def _started(self, command: str, stdin: bytes | None) -> Iterator[paramiko.Channel]:
        script = marked(command)
        line = shell_line(script)
        beforehand = b""
        if not _fits(command):
            line, beforehand = shell_line(READING), to_be_read(script)
        with self._watched():
            channel = self._new_channel()
            try:
                with translated(self._name):
                    channel.exec_command(line)
                if stdin is not None:
                    feeder = threading.Thread(
                        target=feed, args=(channel, beforehand + stdin), daemon=True
                    )
                    feeder.start()
                else:
                    sent_to(channel, beforehand)
                yield channel
            finally:
                with contextlib.suppress(EOFError, OSError):
                    channel.close()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Close a connection that drops within the block; report it if the board was shut down."""
        with self._explained_if_off():
            try:
                yield
            except ConnectError:
                self.close()
                raise

    @contextlib.contextmanager
    def _explained_if_off(self) -> Iterator[None]:
        try:
            yield
        except ConnectError as error:
            went_off = self._went_off()
            if went_off is None:
                raise
            raise went_off from error

    def _status(self, channel: paramiko.Channel, timeout_s: float) -> int:
        if not channel.status_event.wait(timeout_s) or channel.exit_status < 0:
            raise ConnectError(f"{self._name}: the connection dropped during a command.")
        return channel.exit_status

    def _check_done(self, channel: paramiko.Channel, complaint: str) -> None:
        stderr = b"".join(errors_of(channel))
        if self._status(channel, TRANSFER_SILENCE_S) != 0:
            raise BoardError(f"{self._name}: {complaint}: {reason(stderr)}.")
