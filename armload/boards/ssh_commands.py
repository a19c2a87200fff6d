"""Commands over one SSH connection, which is renewed when it drops."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator

from armload.boards.board import SshAddress
from armload.boards.bulk import READ_BYTES, TRANSFER_SILENCE_S, output_chunks, whole_output
from armload.boards.failures import PoweredOffError, SlowCommandError, translated
from armload.boards.framing import (
    READING,
    after_mark,
    bounded,
    marked,
    own_output,
    reason,
    shell_line,
    to_be_read,
)
from armload.boards.host import Completed, OutputChunk
from armload.boards.ssh_connection import open_connection
from armload.boards.ssh_transport import Channel, SshTransport
from armload.core.errors import BoardError, ConnectError, LostConnectionError


def output_of(channel: Channel) -> Iterator[bytes]:
    """Yield what the command itself writes to standard output, to its end."""
    return after_mark(blocks_of(channel))


def blocks_of(channel: Channel) -> Iterator[bytes]:
    """Yield all of standard output, what the login shell writes included."""
    return iter(lambda: channel.recv(READ_BYTES), b"")


def errors_of(channel: Channel) -> Iterator[bytes]:
    """Yield standard error to its end."""
    return iter(lambda: channel.recv_stderr(READ_BYTES), b"")


def sent_to(channel: Channel, chunk: bytes) -> bool:
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


def feed(channel: Channel, stdin: bytes) -> None:
    """Write all of standard input and close it."""
    # A command need not read its input to the end, and a break shows on the reading side.
    with contextlib.suppress(OSError, EOFError):
        if stdin:
            channel.sendall(stdin)
        channel.shutdown_write()


# Dropbear cuts the connection at longer command lines: 9000 bytes now, 1024 in old releases.
LONGEST_COMMAND_BYTES = 900


def fits(command: str) -> bool:
    """Say whether a command is short enough for every server's command line."""
    return len(shell_line(marked(command)).encode()) <= LONGEST_COMMAND_BYTES


class SshCommands:
    """The part of the Host protocol that a connection's channels do by themselves.

    Args:
        went_off: called when the connection drops, to say whether the board was shut down.
    """

    def __init__(
        self,
        address: SshAddress,
        board_name: str,
        went_off: Callable[[], PoweredOffError | None] = lambda: None,
    ) -> None:
        self._address = address
        self._name = board_name
        self._went_off = went_off
        self._connection: SshTransport | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def named(self) -> str:
        return f"--board {self._name}"

    @property
    def launcher(self) -> tuple[str, ...]:
        return ()

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        deadline = time.monotonic() + timeout_s
        with self._started(bounded(command, timeout_s), stdin) as channel:
            late = f"{self._name}: no answer within {timeout_s:g} s."
            try:
                stdout, stderr = whole_output(
                    self._name, blocks_of(channel), errors_of(channel), deadline, late
                )
                status = self._status(channel, max(deadline - time.monotonic(), 1.0))
            except ConnectError as error:
                if time.monotonic() >= deadline and self._answers():
                    raise SlowCommandError(self._name, timeout_s) from error
                raise
        own = own_output(stdout)
        if own is None:
            raise BoardError(
                f"{self._name}: the login shell did not run the command, and wrote: "
                f"{reason(stdout or stderr).rstrip('.')}.",
                "Give the user a POSIX shell, or log in as another user.",
            )
        return Completed(status=status, stdout=own, stderr=stderr)

    def stream(
        self, command: str, *, silence_s: float = 30.0
    ) -> Generator[OutputChunk, None, None]:
        with self._started(command, b"") as channel:
            late = f"{self._name}: no data for {silence_s:g} s."
            yield from output_chunks(
                self._name, output_of(channel), errors_of(channel), lambda: silence_s, late
            )
            self._status(channel, silence_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answers(self) -> bool:
        """Say whether the connection that is open still reaches the board."""
        with contextlib.suppress(ConnectError):
            if self._connection is not None:
                self._connection.check()
                return True
        return False

    def _connected(self) -> SshTransport:
        if self._connection is None or not self._connection.alive:
            self.close()
            self._connection = open_connection(self._address, self._name)
        return self._connection

    def _new_channel(self) -> Channel:
        if self._connection is not None and self._connection.alive:
            with contextlib.suppress(ConnectError):
                return self._connection.channel()
        self.close()
        return self._connected().channel()

    @contextlib.contextmanager
    def _started(self, command: str, stdin: bytes | None) -> Iterator[Channel]:
        script = marked(command)
        line = shell_line(script)
        beforehand = b""
        if not fits(command):
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

    def _status(self, channel: Channel, timeout_s: float) -> int:
        if not channel.status_event.wait(timeout_s) or channel.exit_status < 0:
            raise LostConnectionError(f"{self._name}: the connection dropped during a command.")
        return channel.exit_status

    def _check_done(self, channel: Channel, complaint: str) -> None:
        stderr = b"".join(errors_of(channel))
        if self._status(channel, TRANSFER_SILENCE_S) != 0:
            raise BoardError(f"{self._name}: {complaint}: {reason(stderr)}.")
