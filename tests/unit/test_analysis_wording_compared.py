"""Reasons to stop repeating, and notes on predictions, have their words."""

from __future__ import annotations

import typing

import pytest

from armload.analysis.prediction_notes import note
from armload.analysis.repeats import (
    DisturbedInARow,
    NothingTimed,
    NotRepeatable,
    OutOfTime,
    PrecisionReached,
    Stop,
)
from armload.core.values import Value
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
STOPS: tuple[tuple[Stop, str], ...] = (
    (PrecisionReached(), "the requested precision was reached."),
    (NotRepeatable(reason="It crashed."), "repeating would not help: It crashed."),
    (NothingTimed(), "no output token was timed."),
    (
        DisturbedInARow(runs=3, reason="It was hot."),
        "3 runs in a row were disturbed. It was hot.",
    ),
    (
        OUT_OF_TIME,
        (
            "1 more run of about 13 s would be needed, which exceeds the time limit for repeats "
            "(60 s). To allow it, use --precision-time 70. Tokens wait for storage, whose speed "
            "varies."
        ),
    ),
)


@pytest.mark.parametrize(("figures", "sentence"), STOPS)
def test_each_reason_to_stop_has_its_words(figures: Stop, sentence: str) -> None:
    assert figures.fact() == sentence


def test_every_kind_is_written_here() -> None:
    assert {type(figures) for figures, _ in STOPS} == {*Stop.__subclasses__()}


@pytest.mark.parametrize("kind", typing.get_args(PredictionNoteKind))
def test_a_note_on_a_prediction_holds_what_it_is_made_from(kind: PredictionNoteKind) -> None:
    found = note(kind, subject="kitchen", reason="it is full")
    assert (found.kind, found.subject, found.reason) == (kind, "kitchen", "it is full")
    assert found.sentence.endswith(".")
    if kind == "operations failed":
        assert "kitchen" in found.sentence
        assert "it is full" in found.sentence


def kinds(union: object) -> set[type[Value]]:
    return set(typing.get_args(typing.get_args(union)[0]))
