"""The part of a service's trace between two moments."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.local import LocalHost
from armload.core.errors import DataError
from armload.serving.window import trace_between

HEADER = {"format": 2, "start_ns": 0}


def step(number: int) -> dict[str, int]:
    """Return the step that takes the second of that number."""
    return {"step": number, "start_ns": number * 10**9, "end_ns": (number + 1) * 10**9}


def written(path: Path, *lines: object) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def between(folder: Path, from_s: float, to_s: float) -> list[dict[str, object]]:
    lines = trace_between(LocalHost("here"), PurePosixPath(folder), from_s, to_s)
    return [json.loads(line) for line in lines]


def test_steps_that_touch_the_span_come_behind_the_first_line(tmp_path: Path) -> None:
    written(tmp_path / "trace.jsonl", HEADER, *map(step, range(10)))
    assert between(tmp_path, 2.5, 4.5) == [HEADER, step(2), step(3), step(4)]


def test_both_files_are_read_and_the_first_line_comes_once(tmp_path: Path) -> None:
    written(tmp_path / "trace.jsonl.1", HEADER, *map(step, range(3, 6)))
    written(tmp_path / "trace.jsonl", HEADER, *map(step, range(5, 9)))
    assert between(tmp_path, 4.5, 7.5) == [HEADER, *map(step, range(4, 8))]


def test_the_last_word_on_the_weights_before_the_span_is_told(tmp_path: Path) -> None:
    early, late = {"weights": "mapped"}, {"weights": "streamed"}
    lines = (HEADER, early, step(0), late, step(1), step(2))
    written(tmp_path / "trace.jsonl", *lines)
    assert between(tmp_path, 2.5, 9) == [HEADER, late, step(2)]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    written(tmp_path / "trace.jsonl", HEADER, step(0))
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write('{"step":1,"start_')
    assert between(tmp_path, 0, 9) == [HEADER, step(0)]


def test_a_service_that_has_done_nothing_has_no_trace(tmp_path: Path) -> None:
    assert between(tmp_path, 0, 9) == []


@pytest.mark.parametrize(
    "line", ['{"step": "1"}', '{"a": ' + "[" * 10_000 + "}", "7}", '{"step": -1}']
)
def test_a_line_that_no_engine_writes_is_told(tmp_path: Path, line: str) -> None:
    written(tmp_path / "trace.jsonl", HEADER)
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(DataError, match="no engine writes"):
        between(tmp_path, 0, 9)
