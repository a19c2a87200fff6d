"""What is said of a benchmark's precision before it is run is what its verdict says afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.statistics import FEWEST_TOKENS, interval_of_runs, median_interval
from armload.bench.options import precision_note
from armload.core.errors import UsageError
from armload.tuning.request import work_of
from armload.tuning.wanted import Objective
from tests.command_line import typed


@pytest.mark.parametrize("n_predict", range(1, 14))
@pytest.mark.parametrize("repeats", [1, 2, 3, 4, 5])
def test_a_note_comes_where_neither_the_tokens_nor_the_repeats_give_an_interval(
    n_predict: int, repeats: int
) -> None:
    timed = [0.1] * (n_predict - 1)
    no_interval_of_tokens = bool(timed) and median_interval(timed) is None
    no_interval_of_runs = interval_of_runs([0.1] * repeats) is None
    note = precision_note([n_predict], repeats)
    assert (f"With -n {n_predict}," in note) == (no_interval_of_tokens and no_interval_of_runs)
    assert ("--repeats 4 or more" in note) == bool(note)
    assert bool(note) == (no_interval_of_runs and (repeats > 1 or no_interval_of_tokens))


def test_a_run_that_is_repeated_until_it_is_known_needs_no_note() -> None:
    assert precision_note([2], None) == ""


def test_several_lengths_are_named_once_each() -> None:
    assert precision_note([8, 4, 64, 4], 1).startswith("With -n 4, 8, the result")
    assert f"takes {FEWEST_TOKENS}" in precision_note([8], 1)


def test_bench_says_it_before_it_reaches_a_board(tmp_path: Path) -> None:
    done = typed(tmp_path, "bench", "--model", "no.gguf", "-n", "8", "--repeats", "1")
    assert done.stderr.count("With -n 8, the result will be imprecise") == 1
    assert done.stderr.index("With -n 8") < done.stderr.index("no.gguf")
    assert done.stdout == ""


@pytest.mark.parametrize("objective", ["decode", "energy"])
def test_a_search_for_the_time_of_tokens_that_are_not_decoded_is_refused(
    objective: Objective,
) -> None:
    with pytest.raises(UsageError, match=f"--for {objective} cannot be measured with -n 1"):
        work_of(objective, prompt="", prompt_tokens=None, n_predict=1)
    (plan,) = work_of("prefill", prompt="", prompt_tokens=None, n_predict=1).plans()
    assert plan.n_predict == 1
