"""Watching a run from afar until it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from armload.boards.failures import SwitchedOffError
from armload.boards.host import Host
from armload.core.errors import ConnectError, RunError
from armload.core.shell import render
from armload.deploy.ending import Cut
from armload.deploy.patience import PATIENCE_S, Patience, patiently

Grown = Callable[[int, str], None]
"""Is told the number of steps in the trace and the end of the text so far."""

_KEPT_TEXT_BYTES = 1 << 16

_CUTS: dict[bytes, tuple[Cut, str]] = {
    b"#lost": ("lost", "the script that watches the program was ended"),
    b"#rebooted": ("restart", "the board restarted during the run"),
}


class CutShortError(RunError):
    """A run that ended without leaving its exit status.

    Args:
        message: where and what.
        cut: by what.
    """

    def __init__(self, message: str, cut: Cut) -> None:
        super().__init__(message)
        self.cut = cut


def follow(
    host: Host,
    run_folder: PurePosixPath,
    grown: Grown,
    *,
    patience_s: float = PATIENCE_S,
    keep: Path | None = None,
) -> int:
    """Wait for a run's end and return its exit status, as a shell reports it.

    A broken line is renewed for up to ``patience_s`` at a time; the run does not mind.

    Args:
        host: the board.
        run_folder: the run's.
        grown: is told how far it is.
        patience_s: how long the board may be away at a time.
        keep: a file that holds the trace as far as it has been seen: what a board has in its
            memory only, a power cut takes away.

    Raises:
        SwitchedOffError: the virtual board went off.
        ConnectError: the board stayed away for longer; the run may still go on there.
        CutShortError: the run left no exit status.
        RunError: there is no such run.
    """
    command = render("follow.sh.j2", {"folder": run_folder})
    patience = Patience(patience_s)
    seen = Seen(keep)
    while True:
        heard = _Heard(grown, seen)
        try:
            for stream, data in host.stream(command):
                patience.heard()
                heard.take(stream, data)
            return heard.status(host.name, run_folder)
        except ConnectError as error:
            try:
                patience.pause(error)
            except SwitchedOffError:
                raise
            except ConnectError:
                raise ConnectError(
                    error.message,
                    "Unless the board went off, the run goes on there. To take it over, type the "
                    f"same command again; to fetch it: armload pull --board {host.name}",
                ) from error


def stop(host: Host, run_folder: PurePosixPath) -> None:
    """Ask a run's program to end, and make it when it does not; harmless when it has ended.

    Raises:
        ConnectError: the board does not answer.
    """
    patiently(lambda: host.run(render("stop.sh.j2", {"folder": run_folder})))


def end_orphan(host: Host, run_folder: PurePosixPath) -> None:
    """End the program of a run whose script was ended: it can become no result any more.

    Raises:
        ConnectError: the board does not answer.
    """
    host.run(render("orphan_end.sh.j2", {"folder": run_folder}))


class Seen:
    """The lines of a run's trace that have been seen, in a file.

    After a broken line the board sends them again from the first on; they are not kept twice,
    and what a restart took from the board stays.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines = 0
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            former = path.read_bytes() if path.exists() else b""
            whole = former[: former.rfind(b"\n") + 1]
            self._lines = whole.count(b"\n")
            path.write_bytes(whole)

    def line(self, number: int, content: bytes) -> None:
        """Keep a line, of which ``number`` came before it over the same line."""
        if self._path is not None and number == self._lines:
            self._lines += 1
            with self._path.open("ab") as file:
                file.write(content + b"\n")


class _Heard:
    """What the following script has said so far."""

    def __init__(self, grown: Grown, seen: Seen) -> None:
        self._grown = grown
        self._seen = seen
        self._rest = b""
        self._text = b""
        self._lines = 0
        self._steps = 0
        self._verdict = b""

    def take(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._text = (self._text + data)[-_KEPT_TEXT_BYTES:]
        else:
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"#"):
                    self._verdict = line if line != b"#" else self._verdict
                else:
                    self._seen.line(self._lines, line)
                    self._lines += 1
                    self._steps += line.startswith(b'{"step"')
        self._grown(self._steps, self._text.decode("utf-8", "ignore"))

    def status(self, board_name: str, run_folder: PurePosixPath) -> int:
        word, _, number = self._verdict.partition(b" ")
        if word == b"#exit" and number.isdigit():
            return int(number)
        if word in _CUTS:
            cut, what = _CUTS[word]
            raise CutShortError(f"{board_name}: {what} ({run_folder.name}).", cut)
        if word == b"#gone":
            raise RunError(f"{board_name}: there is no such run on the board ({run_folder.name}).")
        raise ConnectError(f"{board_name}: the line to the board broke while a run was followed.")
