"""What a run says of how its weights were held."""

from __future__ import annotations

import pytest

from armload.analysis.run import Run
from armload.analysis.streaming import doubts_about_streaming, notes_about_weights
from tests.unit.streamed import HELD, MODEL, RELEASED, mapped_run, streamed_run


def notes(run: Run, *, weights: str = "auto", experts: int = 0) -> tuple[str, ...]:
    assert run.plan is not None
    plan = run.plan.model_copy(update={"weights": weights})
    model = MODEL.model_copy(update={"experts": experts})
    return notes_about_weights(run.trace, plan, model, run.before)


def test_a_mixture_of_experts_that_exceeds_the_memory_says_why_it_was_not_streamed() -> None:
    (note,) = notes(mapped_run(), experts=8)
    assert "in a mixture of experts, a token decides which weights are read" in note


@pytest.mark.parametrize(
    ("run", "weights", "experts"),
    [
        (mapped_run(), "auto", 0),
        (mapped_run(), "mapped", 8),
        (mapped_run(free_bytes=2_000_000_000), "auto", 8),
        (streamed_run(), "auto", 0),
    ],
    ids=["dense", "mapped on request", "fits", "streamed"],
)
def test_otherwise_nothing_is_said(run: Run, weights: str, experts: int) -> None:
    assert notes(run, weights=weights, experts=experts) == ()


def test_where_locking_was_refused_the_note_says_where_the_weights_are_instead() -> None:
    half = HELD.locked_bytes // 2
    refused = {"lock_refused": True, "locked_bytes": half}
    cached = HELD.model_copy(update={**refused, "cached_bytes": half})
    copied = HELD.model_copy(update={**refused, "anonymous_bytes": half})
    (note,) = notes(streamed_run(cached))
    assert "the rest was left in the page cache" in note
    (note,) = notes(streamed_run(copied))
    assert "the rest was kept in anonymous memory" in note
    assert "ulimit -l unlimited" in note


def test_other_programs_are_named_only_where_memory_ran_short() -> None:
    def told(run: Run) -> str:
        more = [
            step.model_copy(update={"read_bytes": 910_000_000}) if step.step else step
            for step in run.steps
        ]
        (doubt,) = doubts_about_streaming(run.trace, more)
        return doubt

    buffered = HELD.model_copy(update={"reads": "buffered"})
    doubt = told(streamed_run(buffered))
    assert "311.0 MB more than needed, with buffered reads." in doubt
    assert "other programs" not in doubt
    assert "other programs took memory" in told(streamed_run(HELD, RELEASED))
