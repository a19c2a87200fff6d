"""What a run says of how its weights were held."""

from __future__ import annotations

import pytest

from armload.analysis.run import Run
from armload.analysis.streaming import (
    StreamedBytes,
    doubts_about_streaming,
    notes_about_weights,
)
from armload.analysis.summary import summarise
from armload.core.values import format_bytes
from armload.report.run_facts import weights_line
from tests.unit.streamed import HELD, RELEASED, mapped_run, streamed_run


@pytest.mark.parametrize("run", [mapped_run(), streamed_run()], ids=["mapped", "streamed"])
def test_where_weights_were_held_as_wanted_nothing_is_said(run: Run) -> None:
    assert notes_about_weights(run.trace) == []


def test_where_locking_was_refused_the_note_says_where_the_weights_are_instead() -> None:
    half = HELD.locked_bytes // 2
    refused = {"lock_refused": True, "locked_bytes": half}
    cached = HELD.model_copy(update={**refused, "cached_bytes": half})
    copied = HELD.model_copy(update={**refused, "anonymous_bytes": half})
    (note,) = notes_about_weights(streamed_run(cached).trace)
    assert f"refused after {format_bytes(half)}" in note
    assert "page cache" in note
    (note,) = notes_about_weights(streamed_run(copied).trace)
    assert "anonymous memory" in note


def test_more_bytes_read_than_streamed_are_told_with_what_was_released() -> None:
    def told(run: Run) -> StreamedBytes:
        more = [
            step.model_copy(update={"read_bytes": 910_000_000}) if step.step else step
            for step in run.steps
        ]
        (doubt,) = doubts_about_streaming(run.trace, more)
        assert isinstance(doubt, StreamedBytes)
        return doubt

    buffered = HELD.model_copy(update={"reads": "buffered"})
    doubt = told(streamed_run(buffered))
    assert (doubt.read_bytes, doubt.streamed_bytes) == (910_000_000, HELD.streamed_bytes)
    assert (doubt.reads, doubt.released_bytes) == ("buffered", 0)
    assert told(streamed_run(HELD, RELEASED)).released_bytes == RELEASED.released_bytes > 0


def of_experts(missed_bytes: int, read_bytes: int) -> Run:
    """Return a run with half of its weights of experts, all others of which stay."""
    held = HELD.model_copy(
        update={
            "expert_bytes": HELD.weights_bytes // 2,
            "expert_slot_bytes": HELD.weights_bytes // 4,
            "expert_held_bytes": HELD.weights_bytes // 4,
            "locked_bytes": HELD.weights_bytes * 3 // 4,
        }
    )
    run = streamed_run(held)
    steps = tuple(
        step.model_copy(
            update={
                "read_bytes": read_bytes,
                "expert_bytes": 200_000_000,
                "missed_bytes": missed_bytes,
                "locked_bytes": held.locked_bytes,
            }
        )
        for step in run.steps
    )
    return run.model_copy(update={"steps": steps, "summary": summarise(run.trace, steps)})


def test_of_experts_what_was_missed_is_to_be_read_and_no_more() -> None:
    run = of_experts(50_000_000, 51_000_000)
    assert doubts_about_streaming(run.trace, run.steps) == []
    run = of_experts(50_000_000, 90_000_000)
    (doubt,) = doubts_about_streaming(run.trace, run.steps)
    assert isinstance(doubt, StreamedBytes)
    assert doubt.streamed_bytes == 50_000_000


def test_hits_misses_and_waiting_are_summed_up_and_shown() -> None:
    run = of_experts(50_000_000, 51_000_000)
    reads = run.summary.experts
    assert reads is not None
    assert (reads.hit_rate, reads.bytes_per_token) == (0.75, 200_000_000)
    assert reads.missed_bytes_per_token == 50_000_000
    shown = weights_line(run)
    assert "275.1 MB of 550.1 MB for experts, 75% hits" in shown
    assert "50.0 MB streamed per token (measured 51.0 MB)" in shown
    assert streamed_run().summary.experts is None
