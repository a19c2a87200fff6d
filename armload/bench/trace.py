"""The trace that the engine writes on the board, one JSON line a step."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from armload.bench.run import Step, Trace
from armload.core.errors import DataError


def read_trace(path: Path) -> tuple[Trace | None, tuple[Step, ...]]:
    """Read ``trace.jsonl``: its header, and the steps in the order of time.

    A last line that was cut off with the program is left out. A file that is missing or
    empty, as when the engine ended before it began, gives ``(None, ())``.

    Raises:
        DataError: a line that is whole is not what the trace library writes.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None, ()
    # Where a power cut took the content of a block, some file systems leave zeros.
    whole = text.partition("\0")[0].split("\n")[:-1]
    header: Trace | None = None
    steps = []
    for number, line in enumerate(whole, start=1):
        try:
            content = json.loads(line)
            if number == 1:
                header = Trace.model_validate(content)
            else:
                steps.append(Step.model_validate(content))
        except (ValueError, ValidationError) as error:
            raise DataError(
                f"{path}, line {number}: this is no trace that this armload reads.",
                "The folder may come from a newer armload, or the file was changed.",
            ) from error
    return header, tuple(steps)
