"""What a command on an SSH channel writes, and what it is given to read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from armload.boards.framing import after_mark
from armload.boards.pieces import PIECE_BYTES

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
