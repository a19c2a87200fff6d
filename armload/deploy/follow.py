"""Watching a run from afar until it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import PurePosixPath

from armload.boards.host import Host
from armload.core.errors import ConnectError, RunError
from armload.core.shell import render

Grown = Callable[[int, str], None]
"""Is told the number of steps in the trace and the text so far."""

_LONGEST_PAUSE_S = 5.0

_INTERRUPTIONS = {
    b"#gone": "there is no such run on the board",
    b"#lost": "the script that watches the program was ended",
    b"#rebooted": "the board restarted during the run",
}


def follow(
    host: Host, run_folder: PurePosixPath, grown: Grown, *, patience_s: float = 120.0
) -> int:
    """Wait for a run's end and return its exit status, as a shell reports it.

    A broken line is renewed for up to ``patience_s`` at a time; the run does not mind.

    Raises:
        ConnectError: the board stayed away for longer; the run may still go on there.
        RunError: the run was cut short and left no exit status: a restart, no such run.
    """
    command = render("follow.sh.j2", {"folder": run_folder})
    away_since: float | None = None
    pause_s = 0.2
    while True:
        heard = _Heard(grown)
        try:
            for stream, data in host.stream(command):
                away_since, pause_s = None, 0.2
                heard.take(stream, data)
            return heard.status(host.name, run_folder)
        except ConnectError as error:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since + pause_s > patience_s:
                raise ConnectError(
                    error.message,
                    f"The run goes on there. To fetch it later: armload pull --board {host.name}",
                ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def stop(host: Host, run_folder: PurePosixPath) -> None:
    """Ask a run's program to end, and make it when it does not; harmless when it has ended.

    Raises:
        ConnectError: the board does not answer.
    """
    host.run(render("stop.sh.j2", {"folder": run_folder}))


class _Heard:
    """What the following script has said so far."""

    def __init__(self, grown: Grown) -> None:
        self._grown = grown
        self._rest = b""
        self._text = bytearray()
        self._steps = 0
        self._verdict = b""

    def take(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._text += data
        else:
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b'{"step"'):
                    self._steps += 1
                elif line.startswith(b"#") and line != b"#":
                    self._verdict = line
        self._grown(self._steps, self._text.decode("utf-8", "ignore"))

    def status(self, board_name: str, run_folder: PurePosixPath) -> int:
        word, _, number = self._verdict.partition(b" ")
        if word == b"#exit" and number.isdigit():
            return int(number)
        if word in _INTERRUPTIONS:
            raise RunError(f"{board_name}: {_INTERRUPTIONS[word]} ({run_folder.name}).")
        raise ConnectError(f"{board_name}: the line to the board broke while a run was followed.")
