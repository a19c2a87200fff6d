"""Watching a run from afar until it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from armload.boards.failures import PoweredOffError
from armload.boards.host import Host
from armload.core.errors import ConnectError, RunError
from armload.core.json_lines import whole_lines
from armload.core.shell import call, render
from armload.core.values import whole_number
from armload.deploy.exit_record import Cut
from armload.deploy.retry import RETRY_FOR_S, Retry, with_retries


@dataclass(frozen=True, kw_only=True)
class ProgressUpdate:
    """How far a run is.

    Attributes:
        steps: in its trace that go through the model; preparing and encoding an image do not.
        media_steps: of these, those of an image's or a sound's tokens.
        lines: that it has written, whole ones.
        text: the end of what it has written.
        new_lines: whole ones since the last time, however long; over a new connection, all again.
    """

    steps: int
    lines: int
    text: str
    new_lines: tuple[str, ...] = ()
    media_steps: int = 0


Grown = Callable[[ProgressUpdate], None]

SEEN_TRACE, SEEN_TEXT = "seen.jsonl", "seen.stdout"
"""The trace, and what the program has written, as far as a run was followed."""

_SHOWN_TEXT_BYTES = 1 << 16
_LONGEST_STOP_S = 200.0  # where sleep takes whole seconds only

_CUTS: dict[bytes, tuple[Cut, str]] = {
    b"#lost": ("lost", "the script that monitors the program was killed"),
    b"#rebooted": ("restart", "the board restarted during the run"),
}


class CutShortError(RunError):
    """A run that ended without leaving its exit status."""

    def __init__(self, message: str, cut: Cut) -> None:
        super().__init__(message)
        self.cut = cut


def follow(
    host: Host,
    run_folder: PurePosixPath,
    grown: Grown,
    *,
    retry_for_s: float = RETRY_FOR_S,
    keep: Path | None = None,
) -> int:
    """Wait for a run's end and return its exit status, as a shell reports it.

    A dropped connection is renewed for up to ``retry_for_s`` at a time; the run is not affected.

    Args:
        retry_for_s: how long the board may be away at a time.
        keep: a folder for what has been seen, ``SEEN_TRACE`` and ``SEEN_TEXT``: what a board has
            in its memory only, a power cut takes away.

    Raises:
        PoweredOffError: the virtual board went off.
        ConnectError: the board stayed away for longer; the run may still go on there.
        CutShortError: the run left no exit status.
        RunError: there is no such run.
    """
    command = render("run/follow.sh.j2", {"folder": run_folder})
    retry = Retry(retry_for_s)
    seen = FollowBuffer(keep)

    def attempt() -> int:
        heard = _Heard(grown, seen)
        for stream, data in host.stream(command):
            retry.heard()
            heard.take(stream, data)
        return heard.status(host.name, run_folder)

    try:
        return with_retries(attempt, retry)
    except PoweredOffError:
        raise
    except ConnectError as error:
        raise ConnectError(
            error.message,
            "Unless the board was switched off, the run is still going. Repeat the command to "
            f"reattach, or fetch it later: armload pull --board {host.name}",
        ) from error


def stop(host: Host, run_folder: PurePosixPath, *, finished: bool = False) -> None:
    """Ask a run's program to end, and make it when it does not; harmless when it has ended.

    With ``finished`` its work is done, so that being stopped is no failure.
    """
    mark = "finished" if finished else "stopped"
    script = render("run/stop.sh.j2", {"folder": run_folder, "mark": mark})
    with_retries(lambda: host.run(script, timeout_s=_LONGEST_STOP_S))


def end_orphan(host: Host, run_folder: PurePosixPath) -> None:
    """End the program of a run whose script was ended: it can become no result any more."""
    host.run(call("end_orphan", run_folder))


class FollowBuffer:
    """What has been seen of a run, in files that only grow.

    After a dropped connection the board sends all of it again; nothing is kept twice, and what a
    restart took from the board stays.

    Args:
        folder: for the files; none keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._trace_lines = self._text_bytes = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            trace, text = folder / SEEN_TRACE, folder / SEEN_TEXT
            former = whole_lines(trace.read_bytes()) if trace.exists() else b""
            trace.write_bytes(former)
            self._trace_lines = former.count(b"\n")
            self._text_bytes = text.stat().st_size if text.exists() else 0

    def lines(self, number: int, lines: Sequence[bytes]) -> None:
        """Keep lines of the trace, of which ``number`` came before them over this connection."""
        if number > self._trace_lines:
            return
        new = lines[self._trace_lines - number :]
        if self._folder is not None and new:
            self._trace_lines += len(new)
            with (self._folder / SEEN_TRACE).open("ab") as file:
                file.write(b"\n".join([*new, b""]))

    def text(self, offset: int, content: bytes) -> None:
        """Keep output, of which ``offset`` bytes came before it over this connection."""
        new = content[max(self._text_bytes - offset, 0) :]
        if self._folder is not None and new:
            self._text_bytes += len(new)
            with (self._folder / SEEN_TEXT).open("ab") as file:
                file.write(new)


class _Heard:
    """The output of the following script so far."""

    def __init__(self, grown: Grown, seen: FollowBuffer) -> None:
        self._grown = grown
        self._seen = seen
        self._rest = b""
        self._begun = b""
        self._text = b""
        self._text_rest = b""
        self._text_bytes = 0
        self._text_lines = 0
        self._lines = 0
        self._steps = 0
        self._media_steps = 0
        self._verdict = b""

    def take(self, stream: str, data: bytes) -> None:
        new_lines: list[bytes] = []
        if stream == "stderr":
            self._seen.text(self._text_bytes, data)
            self._text_bytes += len(data)
            self._text_lines += data.count(b"\n")
            self._text = (self._text + data)[-_SHOWN_TEXT_BYTES:]
            *new_lines, self._text_rest = (self._text_rest + data).split(b"\n")
        else:
            *lines, self._rest = (self._rest + data).split(b"\n")
            whole = [each for line in lines if (each := self._whole(line)) is not None]
            self._seen.lines(self._lines, whole)
            self._lines += len(whole)
            steps = [
                each for each in whole if each.startswith(b'{"step"') and b'"stage":' not in each
            ]
            self._steps += len(steps)
            self._media_steps += sum(b'"media_tokens":' in each for each in steps)
        text = self._text.decode("utf-8", "ignore")
        self._grown(
            ProgressUpdate(
                steps=self._steps,
                media_steps=self._media_steps,
                lines=self._text_lines,
                text=text,
                new_lines=tuple(line.decode("utf-8", "replace") for line in new_lines),
            )
        )

    def _whole(self, line: bytes) -> bytes | None:
        """Return the line of the trace that is complete now; none of another kind of line."""
        if line.endswith(b"#"):
            # Each look at the trace ends so, even in the middle of a line.
            self._begun += line[:-1]
            return None
        if line.startswith(b"#"):
            self._verdict = line
            return None
        whole, self._begun = self._begun + line, b""
        return whole

    def status(self, board_name: str, run_folder: PurePosixPath) -> int:
        word, _, number = self._verdict.partition(b" ")
        status = whole_number(number.decode("ascii", "replace"))
        if word == b"#exit" and status is not None:
            return status
        if word in _CUTS:
            cut, what = _CUTS[word]
            raise CutShortError(f"{board_name}: {what} ({run_folder.name}).", cut)
        if word == b"#unreadable":
            raise RunError(
                f"{board_name}: the run has ended, but its files cannot be read: the board's "
                f"storage reports errors ({run_folder.name}).",
                "Once it can be read again, fetch the run: armload pull --board " + board_name,
            )
        if word == b"#gone":
            raise RunError(f"{board_name}: no such run on the board ({run_folder.name}).")
        raise ConnectError(f"{board_name}: the connection dropped while following a run.")
