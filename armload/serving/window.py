"""The part of a service's trace that lies between two moments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from pydantic import BaseModel

from armload.boards.host import Host
from armload.core.errors import DataError
from armload.core.json_lines import is_whole
from armload.core.shell import call
from armload.core.values import Count, parse_json
from armload.deploy.layout import TRACE_FILE

_SILENCE_S = 120.0


class _Span(BaseModel):
    """What of a step says whether it is wanted; all of it is read with the load."""

    step: Count
    start_ns: Count
    end_ns: Count


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
        DataError: a line is none of a trace.
    """
    from_ns, to_ns = from_board_s * 1e9, to_board_s * 1e9
    header = held = ""
    last_step = -1
    for line in _lines(host, run_folder):
        try:
            content = parse_json(line)
            step = _Span.model_validate(content) if "step" in content else None
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{host.name}: {run_folder / TRACE_FILE} contains a line that no engine writes.",
                "The board's storage may be damaged.",
            ) from error
        if "format" in content:
            if not header:
                header = line
                yield line
        elif "weights" in content:
            held = line
        elif step is not None and step.step > last_step:
            last_step = step.step
            if step.start_ns > to_ns:
                return
            if step.end_ns >= from_ns:
                if held:
                    yield held
                    held = ""
                yield line


def _lines(host: Host, run_folder: PurePosixPath) -> Iterator[str]:
    rest = b""
    command = call("send_trace", run_folder)
    for stream, data in host.stream(command, silence_s=_SILENCE_S):
        if stream == "stdout":
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode("utf-8", "replace") + "\n" for line in lines if is_whole(line))
