"""Words of reasons to stop repeating, and of notes on predictions, that no recorded case has."""

from __future__ import annotations

import typing

import pytest

from armload.analysis.prediction_notes import note
from armload.analysis.repeats import OutOfTime
from armload.engines.prediction import PredictionNoteKind

OUT_OF_TIME = OutOfTime(
    more_runs=1,
    run_s=13.2,
    allowed_s=60,
    needed_s=70,
    runs=8,
    disturbed=0,
    reason="",
    is_storage_limited=True,
)


def test_a_single_run_that_waits_for_storage_is_told_with_the_time_it_needs() -> None:
    assert OUT_OF_TIME.fact() == (
        "1 more run of about 13 s would be needed, which exceeds the time limit for repeats "
        "(60 s). To allow it, use --precision-time 70. Tokens wait for storage, whose speed "
        "varies."
    )


@pytest.mark.parametrize("kind", typing.get_args(PredictionNoteKind))
def test_a_note_on_a_prediction_holds_what_it_is_made_from(kind: PredictionNoteKind) -> None:
    found = note(kind, subject="kitchen", reason="it is full")
    assert (found.kind, found.subject, found.reason) == (kind, "kitchen", "it is full")
    assert found.sentence.endswith(".")
    if kind == "operations failed":
        assert "kitchen" in found.sentence
        assert "it is full" in found.sentence
