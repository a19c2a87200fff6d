"""What a program on a board says of operations is read, and doubted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from armload.engines.operations import Timed, read_operations, read_timed

LISTED: dict[str, Any] = {
    "load_s": 0.1,
    "timed_bytes": 1 << 20,
    "graphs": [{"tokens": 1, "depth": 256, "counts": [[0, 16], [1, 1]]}],
    "operations": [
        {"key": "MUL_MAT f32[8] q4_0[32x8]@CPU f32[32]", "weights_bytes": 144, "moved_bytes": 128},
        {"key": "ADD f32[8] f32[8] f32[8]", "weights_bytes": 0, "moved_bytes": 64},
    ],
}


def _line(**changed: Any) -> str:
    return f"ARMLOAD_OPERATIONS {json.dumps(LISTED | changed)}"


def test_the_list_is_found_in_what_else_is_printed() -> None:
    found = read_operations(f"system_info: n_threads = 4\n\n{_line()}\n")
    assert found is not None
    assert found.graphs[0].counts == ((0, 16), (1, 1))
    assert found.operations[0].weights_bytes == 144


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Illegal instruction",
        "ARMLOAD_OPERATIONS {",
        _line(load_s=-1),
        _line(load_s="nan"),
        _line(graphs=[]),
        _line(graphs=[{"tokens": 0, "depth": 256, "counts": []}]),
        _line(graphs=[{"tokens": 1, "depth": 0, "counts": []}]),
        _line(graphs=[{"tokens": 1, "depth": 256, "counts": [[2, 1]]}]),
        _line(graphs=[{"tokens": 1, "depth": 256, "counts": [[0, 1 << 70]]}]),
        _line(operations=[{"key": "ADD", "weights_bytes": -1, "moved_bytes": 0}]),
    ],
)
def test_a_list_that_makes_no_sense_is_none(output: str) -> None:
    assert read_operations(output) is None


def test_what_was_timed_before_a_program_died_counts() -> None:
    timed = 'ARMLOAD_TIMED {"number":3,"time_s":0.25,"load_s":0.5}'
    ended = 'ARMLOAD_TIMED {"number":4,"signal":4}'
    found = list(read_timed(f'{timed}\nnoise\n{ended}\nARMLOAD_TIMED {{"number":5,"ti'))
    assert found == [Timed(number=3, time_s=0.25, load_s=0.5), Timed(number=4, signal=4)]


def test_what_was_timed_beside_other_programs_is_timed_again_and_the_better_time_counts() -> None:
    busy = Timed(number=0, time_s=0.2, is_settled=False)
    alone = Timed(number=0, time_s=0.3)
    assert [each.may_improve for each in (busy, alone, alone.after(alone))] == [True, True, False]
    assert alone.after(busy) == alone.model_copy(update={"attempts": 2})
    assert busy.after(alone) == alone.model_copy(update={"attempts": 2})
    assert busy.after(None) == busy
    for _ in range(10):
        busy = busy.model_copy(update={"attempts": 1}).after(busy)
    assert busy.time_s == pytest.approx(0.2)
    assert not busy.may_improve


def test_times_of_a_board_whose_speed_varies_are_averaged_and_timed_more_often() -> None:
    times = [Timed(number=0, time_s=time_s) for time_s in (0.3, 0.6, 0.3, 0.6, 0.3, 0.6)]
    mean = times[0]
    for each in times[1:]:
        assert mean.may_improve
        assert not each.is_like(mean) or mean.attempts > 1
        mean = each.after(mean)
    assert mean.time_s == pytest.approx(0.45)
    assert mean.times_s == (0.3, 0.6)
    assert not mean.may_improve
    assert times[0].is_like(Timed(number=0, time_s=0.36))


def test_a_board_that_became_slower_for_good_is_known_after_some_attempts() -> None:
    mean, slower = Timed(number=0, time_s=0.3), Timed(number=0, time_s=0.6)
    for _ in range(20):
        mean = slower.after(mean)
    assert mean.time_s == pytest.approx(0.6, rel=0.05)
