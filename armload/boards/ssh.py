"""A board reached by SSH: commands, streams and bytes over one line that is renewed."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from armload.boards.address import SshAddress
from armload.boards.failures import translated
from armload.boards.host import Completed, Piece
from armload.boards.line import Line, open_line
from armload.boards.sending import told_chunks
from armload.core.errors import BoardError, ConnectError
from armload.core.shell import quote

if TYPE_CHECKING:
    import paramiko

PIECE_BYTES = 1 << 18
TRANSFER_SILENCE_S = 60.0
# Dropbear cuts the connection at longer command lines: 9000 bytes now, 1024 in old releases.
LONGEST_COMMAND_BYTES = 900
# The start file of a person's shell may say something first; a command's own output follows this.
_MARK = "armload-output-begins"


class SshHost:
    """The Host protocol over SSH.

    Needs nothing of the board but an SSH server, a POSIX shell, ``cat`` and ``dd``.

    Args:
        address: where it is and how to log in.
        board_name: for messages.
    """

    def __init__(self, address: SshAddress, board_name: str) -> None:
        self._address = address
        self._name = board_name
        self._line: Line | None = None

    @property
    def name(self) -> str:
        """The board's name."""
        return self._name

    @property
    def launcher(self) -> tuple[str, ...]:
        """Words that go before a program that was built for the board; mostly none."""
        return self._address.launcher

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        """Run a shell command to its end, whatever its status is."""
        deadline = time.monotonic() + timeout_s
        output = {"stdout": bytearray(), "stderr": bytearray()}
        with self._started(command, stdin) as channel:
            late = f"a command took longer than {timeout_s:g} s"
            for stream, data in self._pieces(channel, lambda: deadline - time.monotonic(), late):
                output[stream] += data
            status = self._status(channel, max(deadline - time.monotonic(), 1.0))
        return Completed(
            status=status, stdout=bytes(output["stdout"]), stderr=bytes(output["stderr"])
        )

    def stream(self, command: str, *, silence_s: float = 30.0) -> Iterator[Piece]:
        """Run a shell command and yield its output as it comes, to its end."""
        with self._started(command, b"") as channel:
            late = f"nothing was heard for {silence_s:g} s"
            yield from self._pieces(channel, lambda: silence_s, late)
            self._status(channel, silence_s)

    def read(self, path: PurePosixPath) -> Iterator[bytes]:
        """Yield the file's bytes."""
        with self._started(f"cat <{quote(path)}", b"") as channel, translated(self._name):
            channel.settimeout(TRANSFER_SILENCE_S)
            yield from _output(channel)
            self._check_done(channel, f"{path} cannot be read")

    def write(self, path: PurePosixPath, chunks: Iterable[bytes], *, offset_bytes: int = 0) -> None:
        """Write bytes to a file from an offset on: 0 replaces it, else it is cut there first."""
        command = _receive(path, offset_bytes)
        with self._started(command, None) as channel, translated(self._name):
            channel.settimeout(TRANSFER_SILENCE_S)
            for chunk in chunks:
                if channel.exit_status_ready() or not _sent(channel, chunk):
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
        self.write(remote, told_chunks(local, offset_bytes, sent), offset_bytes=offset_bytes)

    def close(self) -> None:
        """End the connection; harmless when it has ended."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _new_channel(self) -> paramiko.Channel:
        if self._line is not None and self._line.alive:
            with contextlib.suppress(ConnectError):
                return self._line.channel()
        self.close()
        self._line = open_line(self._address, self._name)
        return self._line.channel()

    @contextlib.contextmanager
    def _started(self, command: str, stdin: bytes | None) -> Iterator[paramiko.Channel]:
        # A signalled program ends this shell's command, not the shell: it still tells the status.
        script = f"echo {_MARK}\n{command}\nexit $?\n"
        line = f"exec sh -c {quote(script)}"
        if stdin == b"" and len(line.encode()) > LONGEST_COMMAND_BYTES:
            # Shells may read ahead, so the script has standard input to itself.
            line, stdin = "exec sh", f"{{\n{script}}} </dev/null\n".encode()
        channel = self._new_channel()
        try:
            with translated(self._name):
                channel.exec_command(line)
            if stdin is not None:
                feeder = threading.Thread(target=_feed, args=(channel, stdin), daemon=True)
                feeder.start()
            yield channel
        except ConnectError:
            self.close()
            raise
        finally:
            with contextlib.suppress(EOFError, OSError):
                channel.close()

    def _pieces(
        self, channel: paramiko.Channel, patience_s: Callable[[], float], complaint: str
    ) -> Iterator[Piece]:
        pieces: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        for reader in (_read_stdout, _read_stderr):
            threading.Thread(target=reader, args=(channel, pieces), daemon=True).start()
        open_streams = 2
        while open_streams:
            try:
                piece = pieces.get(timeout=max(patience_s(), 0.001))
            except queue.Empty as error:
                raise ConnectError(f"{self._name}: {complaint}.") from error
            if piece is None:
                open_streams -= 1
            else:
                yield piece

    def _status(self, channel: paramiko.Channel, timeout_s: float) -> int:
        if not channel.status_event.wait(timeout_s) or channel.exit_status < 0:
            raise ConnectError(f"{self._name}: the line to the board broke during a command.")
        return channel.exit_status

    def _check_done(self, channel: paramiko.Channel, complaint: str) -> None:
        said = bytearray()
        while data := channel.recv_stderr(PIECE_BYTES):
            said += data
        if self._status(channel, TRANSFER_SILENCE_S) != 0:
            reason = said.decode("utf-8", "replace").strip().removeprefix("sh: ")
            raise BoardError(f"{self._name}: {complaint}: {reason or 'the board gave no reason'}.")


def _output(channel: paramiko.Channel) -> Iterator[bytes]:
    """Yield what the command itself writes, to its end."""
    before: bytes | None = b""
    while data := channel.recv(PIECE_BYTES):
        if before is not None:
            before, mark, data = (before + data).partition(f"{_MARK}\n".encode())
            before = None if mark else before
        if data:
            yield data


def _receive(path: PurePosixPath, offset_bytes: int) -> str:
    # What a broken line had sent may still be on its way into the file, out of an old cat.
    target, mark = quote(path), quote(path.with_name(f"{path.name}.writer"))
    end_former = (
        f"[ -r {mark} ] && read -r p <{mark} && "
        f'while [ "/proc/$p/fd/1" -ef {target} ]; do kill "$p"; sleep 0.1 2>/dev/null || sleep 1; '
        f"done; "
    )
    cut = f"{_cut(path, offset_bytes)} && " if offset_bytes else ""
    redirect = ">>" if offset_bytes else ">"
    return (
        f"{end_former}exec 3<&0; {cut}{{ cat <&3 {redirect}{target} & p=$!; }} && exec 3<&- && "
        f'echo "$p" >{mark}; wait "$p"; s=$?; rm -f {mark}; (exit "$s")'
    )


def _cut(path: PurePosixPath, length: int) -> str:
    # A board can lack truncate and dd; mostly there is nothing to cut.
    target, beside = quote(path), quote(path.with_name(f"{path.name}.cut"))
    return (
        f'{{ [ "$(wc -c <{target})" -eq {length} ]'
        f" || truncate -s {length} {target} 2>/dev/null"
        f" || dd if=/dev/null of={target} bs=1 seek={length} 2>/dev/null"
        f" || {{ head -c {length} <{target} >{beside} && mv -f {beside} {target}; }}; }}"
    )


def _sent(channel: paramiko.Channel, chunk: bytes) -> bool:
    try:
        channel.sendall(chunk)
    except TimeoutError:
        raise
    except OSError:
        # The reader has gone; the channel knows why.
        return False
    return True


def _feed(channel: paramiko.Channel, stdin: bytes) -> None:
    # A command need not read its input to the end, and a break shows on the reading side.
    with contextlib.suppress(OSError, EOFError):
        if stdin:
            channel.sendall(stdin)
        channel.shutdown_write()


def _read_stdout(channel: paramiko.Channel, pieces: queue.SimpleQueue[Piece | None]) -> None:
    with contextlib.suppress(OSError, EOFError):
        for data in _output(channel):
            pieces.put(("stdout", data))
    pieces.put(None)


def _read_stderr(channel: paramiko.Channel, pieces: queue.SimpleQueue[Piece | None]) -> None:
    with contextlib.suppress(OSError, EOFError):
        while data := channel.recv_stderr(PIECE_BYTES):
            pieces.put(("stderr", data))
    pieces.put(None)
