"""The time of an answer, from a run of the same model."""

from __future__ import annotations

import pytest

from armload.analysis.latency import Latency, latency_of
from tests.unit.runs import quick_run


def _latency(**changed: float) -> Latency:
    fields = {
        "run": "a",
        "prefill_s": 2.0,
        "prefill_tokens": 100,
        "reads_weights": False,
        "first_token_s": 0.5,
        "growth_s": 0.001,
    }
    return Latency(**{**fields, **changed})


def test_a_prompt_takes_time_by_its_length_and_gives_the_first_token() -> None:
    assert _latency().seconds(50, 1) == pytest.approx(1.0)
    assert _latency().seconds(50, 0) == 0


def test_each_token_takes_longer_by_the_tokens_before_it() -> None:
    latency = _latency()
    tokens_s = sum(0.5 + 0.001 * position for position in range(101, 105))
    assert latency.seconds(100, 5) == pytest.approx(2.0 + tokens_s)


def test_a_prompt_that_reads_the_weights_takes_one_pass_for_each_micro_batch() -> None:
    latency = _latency(reads_weights=True)
    assert latency.seconds(10, 1) == pytest.approx(2.0)
    assert latency.seconds(513, 1) == pytest.approx(4.0)


def test_a_runs_own_answer_takes_as_long_as_it_did() -> None:
    run = quick_run()
    latency = latency_of(run)
    summary = run.summary
    assert summary.prefill_tokens
    assert summary.decode_tokens
    measured_s = (summary.prefill_s or 0) + (summary.decode_s or 0)
    predicted_s = latency.seconds(summary.prefill_tokens, summary.decode_tokens + 1)
    assert predicted_s == pytest.approx(measured_s, rel=0.02)
