"""The part of a service's trace that lies between two moments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath

from armload.boards.host import Host
from armload.core.shell import render
from armload.deploy.traces import is_whole

_SILENCE_S = 120.0


def trace_between(
    host: Host, run_folder: PurePosixPath, from_board_s: float, to_board_s: float
) -> Iterator[str]:
    """Yield the trace's first line, and those of steps that touch a span of the board's time.

    Lines are as the board wrote them, with their newline. How the weights are held is said by the
    last such line before the span, and by those within. Steps that the board does not keep any
    more are missing from the beginning, which shows in their numbers.

    Args:
        run_folder: of the service on the board.
        from_board_s, to_board_s: on the board's ``CLOCK_MONOTONIC``.

    Raises:
        ConnectError: the connection dropped.
    """
    from_ns, to_ns = from_board_s * 1e9, to_board_s * 1e9
    header = held = ""
    last_step = -1
    for line in _lines(host, run_folder):
        content = json.loads(line)
        if "format" in content:
            if not header:
                header = line
                yield line
        elif "weights" in content:
            held = line
        elif "step" in content and content["step"] > last_step:
            last_step = content["step"]
            if content["start_ns"] > to_ns:
                return
            if content["end_ns"] >= from_ns:
                if held:
                    yield held
                    held = ""
                yield line


def _lines(host: Host, run_folder: PurePosixPath) -> Iterator[str]:
    rest = b""
    command = render("trace.sh.j2", {"folder": run_folder})
    for stream, data in host.stream(command, silence_s=_SILENCE_S):
        if stream == "stdout":
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode() + "\n" for line in lines if is_whole(line))
