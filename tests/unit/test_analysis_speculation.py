"""What guessed tokens gave, counted and timed by the trace, and whether they pay."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from armload.analysis.latency import latency_of
from armload.analysis.measurement import measurement_of
from armload.analysis.sanity import departure
from armload.analysis.speculation import (
    SpeculationResult,
    WithoutSpeculation,
    compare_with_baseline,
)
from armload.analysis.summary import summarise, token_times
from armload.engines.trace import Step
from armload.tuning.continuing import outcome_of
from tests.unit.runs import quick_run
from tests.unit.samples import step, trace


def pass_of(number: int, *, drafts: int = 0, accepted_before: int = 0, first: bool = False) -> Step:
    one = step(number, duration_s=1.0, tokens=1 + drafts)
    return one.model_copy(
        update={
            "prompt_tokens": int(first),
            "generated_tokens": int(not first),
            "speculated_tokens": drafts,
            "accepted_tokens": accepted_before,
        }
    )


def drafting(number: int) -> Step:
    return step(number, duration_s=0.25).model_copy(update={"model": 1})


# A prompt of 9 tokens whose last one is verified with 3 drafts, of which 2 are accepted; then
# 4 drafts, 3 accepted; none; 2, both accepted.
STEPS = (
    step(0, phase="prompt", tokens=8, duration_s=2.0),
    drafting(1),
    pass_of(2, drafts=3, first=True),
    drafting(3),
    pass_of(4, drafts=4, accepted_before=2),
    pass_of(5, accepted_before=3),
    drafting(6),
    pass_of(7, drafts=2),
)
ENDED = trace().model_copy(update={"last_accepted_tokens": 2})


def speculation(steps: Sequence[Step] = STEPS) -> SpeculationResult:
    found = summarise(ENDED, steps, speculates=True).speculation
    assert found is not None
    return found


def test_tokens_per_pass_are_those_that_came_out_of_the_passes() -> None:
    found = speculation()
    assert (found.passes, found.tokens) == (3, 4 + 1 + 3)
    assert found.tokens_per_pass == pytest.approx(8 / 3)


def test_acceptance_is_the_share_of_all_drafts() -> None:
    found = speculation()
    assert (found.speculated_tokens, found.accepted_tokens) == (9, 7)
    assert found.acceptance_rate == pytest.approx(7 / 9)


def test_seconds_per_token_contain_the_draft_model() -> None:
    found = speculation()
    assert found.draft_s == pytest.approx(0.5)
    assert found.s_per_token == pytest.approx((3 * 1.0 + 0.5) / 8)


def test_drafts_after_the_prompt_belong_to_the_first_token() -> None:
    summary = summarise(ENDED, STEPS, speculates=True)
    assert summary.prefill_tokens == 9
    assert summary.prefill_s == pytest.approx(3.0)
    assert summary.ttft_s == pytest.approx((STEPS[2].end_ns - ENDED.start_ns) / 1e9)


def test_tokens_of_a_pass_take_equal_time() -> None:
    assert token_times(ENDED, STEPS)[:4] == pytest.approx([1.25 / 4] * 4)


def test_every_counted_token_has_a_time_those_accepted_in_the_last_pass_included() -> None:
    summary = summarise(ENDED, STEPS)
    times = token_times(ENDED, STEPS)
    assert len(times) == summary.decode_tokens
    assert sum(times) == pytest.approx(summary.decode_s)
    assert times[-3:] == pytest.approx([1.25 / 3] * 3)
    assert summary.token_s is not None
    assert summary.token_s.max == pytest.approx(1.0)


def test_the_last_accepted_drafts_reach_comparisons_tuning_and_latency() -> None:
    run = quick_run()
    steps = (STEPS[0], *(pass_of(number, drafts=3, accepted_before=3) for number in range(1, 6)))
    ended = trace().model_copy(update={"last_accepted_tokens": 3})
    run = run.model_copy(
        update={"steps": steps, "trace": ended, "summary": summarise(ended, steps)}
    )
    expected = (0.25,) * 20
    assert measurement_of(run).token_s == expected
    assert outcome_of(run, "decode").samples == expected
    assert latency_of(run).first_token_s == pytest.approx(0.25)


def test_without_drafts_a_pass_is_a_token() -> None:
    found = summarise(trace(), [STEPS[0], pass_of(1), pass_of(2)], speculates=True).speculation
    assert found is not None
    assert (found.tokens_per_pass, found.acceptance_rate) == (1.0, None)


def test_a_run_that_was_not_to_guess_says_nothing_of_it() -> None:
    assert summarise(ENDED, STEPS).speculation is None


def compared(baseline_s: Sequence[float], speculating_s: Sequence[float]) -> WithoutSpeculation:
    return compare_with_baseline(
        departure("a", "a", name="r"),
        ["r"],
        valid=True,
        baseline_s=baseline_s,
        speculating_s=speculating_s,
    )


@pytest.mark.parametrize(
    ("baseline_s", "speculating_s", "outcome"),
    [
        ([1.0], [0.5], "gains"),
        ([1.0], [1.3], "loses"),
        ([1.0], [0.98], "unclear"),
        ([1.0, 1.01, 0.99, 1.0], [0.97, 0.96, 0.97, 0.965], "gains"),
        ([1.0, 1.4, 0.7, 1.1], [0.97, 0.7, 1.3, 0.965], "unclear"),
    ],
)
def test_it_pays_where_the_interval_says_so(
    baseline_s: list[float], speculating_s: list[float], outcome: str
) -> None:
    assert compared(baseline_s, speculating_s).outcome == outcome
