"""What a run says of how its weights were held."""

from __future__ import annotations

import pytest

from armload.analysis.findings import StreamedBytes
from armload.analysis.run import Run
from armload.analysis.streaming import (
    WeightsNote,
    doubts_about_streaming,
    notes_about_weights,
)
from tests.unit.streamed import HELD, RELEASED, mapped_run, streamed_run


def notes(run: Run) -> tuple[WeightsNote, ...]:
    return notes_about_weights(run.trace)


@pytest.mark.parametrize("run", [mapped_run(), streamed_run()], ids=["mapped", "streamed"])
def test_where_weights_were_held_as_wanted_nothing_is_said(run: Run) -> None:
    assert notes(run) == ()


def test_where_locking_was_refused_the_note_says_where_the_weights_are_instead() -> None:
    half = HELD.locked_bytes // 2
    refused = {"lock_refused": True, "locked_bytes": half}
    cached = HELD.model_copy(update={**refused, "cached_bytes": half})
    copied = HELD.model_copy(update={**refused, "anonymous_bytes": half})
    refusal = WeightsNote(kind="lock refused", weights_bytes=half)
    assert notes(streamed_run(cached)) == (refusal,)
    assert notes(streamed_run(copied)) == (refusal.model_copy(update={"is_anonymous": True}),)


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
