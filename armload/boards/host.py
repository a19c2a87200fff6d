"""A live connection to a board: the one protocol that the packages above use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from armload.core.progress import Progress
from armload.core.values import Value


class Completed(Value):
    """How a command on a board ended.

    Attributes:
        status: as a POSIX shell reports it: 128 + signal when a signal ended the command.
        stdout: raw bytes.
        stderr: raw bytes.
    """

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text without the last newline."""
        return self.stdout.decode("utf-8", "replace").rstrip("\n")


OutputChunk = tuple[Literal["stdout", "stderr"], bytes]
"""Some output of a command that is still running."""


class TransportChoice(Value):
    """Which of several ways is taken for something, and why.

    Attributes:
        purpose: what it is for, such as ``"bulk data"``.
        chosen: the way, such as ``"the system's ssh"``.
        reason: why this one.
    """

    purpose: str
    chosen: str
    reason: str


class Forward(Protocol):
    """A port of this machine that leads to a port on the board's loopback.

    A client is disconnected at once while nothing listens on the board's port, or while the board
    cannot be reached. The next client is passed on as soon as that is over, over a new connection
    to the board if the former one dropped.
    """

    @property
    def port(self) -> int:
        """The local port, on 127.0.0.1."""

    def check(self) -> None:
        """Return if the latest client got as far as the board, whether or not something listens.

        Raises:
            ConnectError, BoardError: why it did not.
        """


class Host(Protocol):
    """Commands and bytes to and from one board.

    Every method raises ``ConnectError`` when the connection drops; the next call reconnects.
    """

    @property
    def name(self) -> str:
        """The board's name, for messages."""

    @property
    def named(self) -> str:
        """How a command names the board, with what it is reached through: ``--board NAME``."""

    @property
    def launcher(self) -> tuple[str, ...]:
        """Words that go before a program that was built for the board; mostly none."""

    def transports(self) -> tuple[TransportChoice, ...]:
        """Return how commands, data and clients reach the board, after a trial where one is needed.

        Raises:
            ConnectError: the board does not answer.
        """

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        """Run a shell command to its end, whatever its status is.

        Raises:
            SlowCommandError: it took longer than ``timeout_s``, and may still be running.
            ConnectError: the connection dropped.
        """

    def stream(
        self, command: str, *, silence_s: float = 30.0
    ) -> Generator[OutputChunk, None, None]:
        """Run a shell command and yield its output as it comes, to its end.

        Closing the iterator ends the command's connection, not what it left running.

        Raises:
            ConnectError: the connection dropped, or nothing came for ``silence_s``.
        """

    def read(self, path: PurePosixPath) -> Iterator[bytes]:
        """Yield the file's bytes.

        Raises:
            BoardError: the file cannot be read.
        """

    def write(self, path: PurePosixPath, chunks: Iterable[bytes], *, offset_bytes: int = 0) -> None:
        """Write bytes to a file from an offset on: 0 replaces the file, else it is cut there first.

        Raises:
            BoardError: no space, no permission.
        """

    def send_file(
        self, local: Path, remote: PurePosixPath, *, offset_bytes: int, sent: Callable[[int], None]
    ) -> None:
        """Write a local file from an offset on into ``remote``, at the same offset, as ``write``.

        The quickest way there is.

        Args:
            remote: where it goes; cut at the offset first.
            offset_bytes: what lies before it is there already.
            sent: called with the position in the file that has left this machine: the offset first,
                then a few times a second, and at the end the file's length.

        Raises:
            BoardError: no space, no permission.
            ConnectError: the connection dropped, or no byte was taken for a minute.
        """

    def forwarded(self, port: int, local_port: int = 0) -> AbstractContextManager[Forward]:
        """Let programs of this machine reach a port on the board's loopback, until the block ends.

        It has a connection to the board of its own, which ``close`` leaves alone.

        Args:
            port: on the board.
            local_port: of this machine; 0 for a free one.

        Raises:
            UsageError: the local port is taken.
            ConnectError: the board does not answer, or no local port can be opened.
            BoardError: the board's server forbids it.
        """

    def reverse_forwarded(self, local_port: int) -> AbstractContextManager[int]:
        """Let programs on the board reach a port of this machine's loopback, until the block ends.

        Clients are disconnected when the connection drops, and so are those that come later.

        Returns:
            The port of the board's loopback that leads here.

        Raises:
            ConnectError: the board does not answer.
            BoardError: the board's server forbids it, or the board is reached in a way that cannot.
        """

    def close(self) -> None:
        """End the connection; harmless when it has ended."""


class HostRelay(Protocol):
    """Reaches a board for those who have no way to it of their own."""

    def connect(self, progress: Progress) -> Host:
        """Reach the board, which is started first where that is a matter of software."""

    def is_off(self) -> bool:
        """Say whether it is a virtual board that does not run."""
