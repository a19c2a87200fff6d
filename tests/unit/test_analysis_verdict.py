"""Whether a run's figures may be believed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from armload.analysis.conditions_log import Around
from armload.analysis.run import Run, Verdict
from armload.analysis.sanity import Departure
from armload.analysis.verdict import judge
from armload.deploy.exit_reason import Exit
from armload.engines.job import Watched
from armload.engines.output import Output
from armload.engines.plan import Plan
from armload.engines.trace import Step, Trace
from armload.runs.reference import keep_reference, read_departure
from tests.unit.runs import quick_run
from tests.unit.samples import (
    board_record,
    conditions,
    step,
    steps_with_prompt,
    trace,
)

PROGRAM = Watched(words=("llm_demo",), reads="mnn", time_limit_s=60)
ENDED_WELL = Exit(status=0, meaning="ended well")


def reasons(
    steps: tuple[Step, ...],
    *,
    n_predict: int = 9,
    text: str = "a little girl",
    ended: Exit = ENDED_WELL,
    swap_after: int = 0,
    full: bool = False,
    header: Trace | None = None,
) -> tuple[str, ...]:
    verdict = judge(
        quick_run().model_copy(
            update={
                "plan": Plan(n_predict=n_predict),
                "board": board_record(),
                "before": conditions(),
            }
        ),
        Output(header=header or trace(), steps=steps, text=text),
        ended,
        Around(after=conditions(swap_used=swap_after), storage_was_full=full),
    )
    assert verdict.valid == (not verdict.reasons)
    return verdict.reasons


def test_a_good_run_is_valid() -> None:
    assert reasons(steps_with_prompt([0.1] * 8)) == ()


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (reasons(steps_with_prompt([0.1] * 7)), "the trace has 8"),
        (reasons(steps_with_prompt([0.1] * 7), n_predict=8), "Too few tokens: 7 after the first"),
        (reasons(steps_with_prompt([0.1]), n_predict=2), "1 after the first was timed"),
        (reasons(steps_with_prompt([0.1] * 8), text=" \n"), "white space"),
        (reasons(steps_with_prompt([0.1] * 8), swap_after=50_000_000), "50.0 MB"),
        (reasons((), ended=Exit(status=132, meaning="ended by SIGILL")), "SIGILL"),
        (reasons(steps_with_prompt([0.1] * 8), full=True), "the trace may be incomplete"),
        (reasons(steps_with_prompt([0.1] * 8)[3:], full=True), "3 of 9 steps are missing"),
    ],
)
def test_every_doubt_has_its_reason(found: tuple[str, ...], word: str) -> None:
    assert any(word in reason for reason in found), found


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        ({"plan": Plan(n_predict=9)}, "Use -n 9 or more."),
        ({"plan": Plan(n_predict=8, stop_at_end=True)}, "Use -n 9 or more."),
        (
            {"plan": Plan(n_predict=48, stop_at_end=True)},
            "use a --prompt with a longer answer, or omit --stop-at-end.",
        ),
        (
            {"plan": None, "watched": PROGRAM.model_copy(update={"n_predict": 48})},
            "The model ended its answer after 8 tokens: use a --prompt with a longer answer.",
        ),
        (
            {"plan": None, "watched": PROGRAM.model_copy(update={"n_predict": 8})},
            "Use -n 9 or more.",
        ),
        ({"plan": None, "watched": PROGRAM}, "Let the program generate 9 tokens or more."),
    ],
)
def test_too_few_tokens_are_told_with_what_gives_more_of_them(
    changed: dict[str, object], advice: str
) -> None:
    verdict = judge(
        quick_run().model_copy(update=changed),
        Output(header=trace(), steps=steps_with_prompt([0.1] * 7), text="a little girl"),
        ENDED_WELL,
        Around(after=conditions()),
    )
    (few,) = [each.sentence for each in verdict.findings or () if each.name == "few tokens"]
    assert few.startswith("Too few tokens: 7 after the first were timed; ")
    assert few.endswith(f" {advice}")


def test_an_answer_of_one_token_has_too_few_and_a_run_for_prefill_alone_has_not() -> None:
    def found(plan: Plan) -> tuple[str, ...]:
        run = quick_run().model_copy(update={"plan": plan})
        output = Output(header=trace(), steps=steps_with_prompt([]), text="a")
        return judge(run, output, ENDED_WELL, Around(after=conditions())).reasons

    assert found(Plan(n_predict=1)) == ()
    (reason,) = found(Plan(n_predict=48, stop_at_end=True))
    assert "0 after the first were timed" in reason
    assert "ended its answer after 1 token:" in reason


def test_a_run_that_something_disturbed_is_not_valid() -> None:
    steps = steps_with_prompt([0.1] * 18 + [1.0] * 4)
    (reason,) = reasons(steps, n_predict=23)
    assert "10.0 times the median" in reason


def test_tokens_that_read_storage_are_not_called_disturbed() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    slow = [step(n, duration_s=2.0, read_bytes=10**8) for n in range(1, 6)]
    quick = [step(n) for n in range(6, 22)]
    assert reasons((prompt, *slow, *quick), n_predict=22) == ()


def test_a_run_at_a_lowered_frequency_is_not_valid() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    quick = [step(n, cpu_khz=(1_992_000, 408_000)) for n in range(1, 12)]
    hot = [step(n, cpu_khz=(1_416_000, 408_000), celsius=86.0) for n in range(12, 22)]
    (reason,) = reasons((prompt, *quick, *hot), n_predict=22)
    assert "for 48% of the time" in reason
    assert "1.42 of 1.99 GHz" in reason
    assert "86 °C" in reason


def test_cores_that_idle_are_not_throttled_and_one_slow_reading_is_no_matter() -> None:
    prompt = step(0, phase="prompt", tokens=8, cpu_khz=(408_000, 408_000))
    steps = [step(n, cpu_khz=(1_992_000, 408_000)) for n in range(1, 31)]
    steps[4] = step(5, cpu_khz=(1_608_000, 408_000))
    assert reasons((prompt, *steps), n_predict=31) == ()


def test_a_run_whose_threads_were_preempted_is_not_valid() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    steps = [step(n, busy_threads=0.94, involuntary_switches=40) for n in range(1, 21)]
    (reason,) = reasons((prompt, *steps), n_predict=21)
    assert "2 threads had the CPU for 47% of the time" in reason
    assert "40 times per token" in reason


def test_threads_that_wait_for_storage_are_not_called_preempted() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    steps = [
        step(n, busy_threads=0.3, involuntary_switches=40, read_bytes=10**8) for n in range(1, 21)
    ]
    assert reasons((prompt, *steps), n_predict=21) == ()


def test_too_few_tokens_for_their_spread_are_counted() -> None:
    durations = [0.1, 0.13] * 10
    (reason,) = reasons(steps_with_prompt(durations), n_predict=21)
    needed = re.search(r"Use -n (\d+) or more", reason)
    assert needed is not None
    assert int(needed[1]) > len(durations)


def test_of_a_disturbed_run_not_thousands_of_tokens_are_asked_for() -> None:
    (reason,) = reasons(steps_with_prompt([0.1, 0.15] * 10), n_predict=21)
    assert "Too few tokens for their spread" in reason
    assert "About" not in reason
    assert "--repeats" in reason


def speculating(duration_s: float, *, drafts: int, accepted_before: int, number: int) -> Step:
    counts = {"speculated_tokens": drafts, "accepted_tokens": accepted_before}
    return step(number, duration_s=duration_s).model_copy(update={**counts, "tokens": 1 + drafts})


def test_accepted_drafts_count_as_tokens_of_the_text() -> None:
    steps = steps_with_prompt([0.1] * 8)
    accepted = (*steps, speculating(0.1, drafts=0, accepted_before=3, number=9))
    assert reasons(accepted, n_predict=13) == ()
    assert "the trace has 13" in reasons(accepted, n_predict=14)[0]
    assert "the trace has 13" in reasons(accepted, n_predict=12)[0]


def test_the_last_accepted_drafts_may_be_more_than_was_asked_for() -> None:
    header = trace().model_copy(update={"last_accepted_tokens": 2})
    steps = steps_with_prompt([0.1] * 8)
    for requested, fits in ((8, False), (9, True), (11, True), (12, False)):
        found = reasons(steps, n_predict=requested, header=header)
        assert any("requested" in reason for reason in found) != fits, requested


def test_passes_of_several_tokens_are_not_called_unsteady() -> None:
    quick = [speculating(0.1, drafts=0, accepted_before=0, number=1 + n) for n in range(20)]
    slow = [speculating(0.3, drafts=8, accepted_before=0, number=21 + n) for n in range(10)]
    prompt = step(0, phase="prompt", tokens=8, duration_s=0.4)
    assert reasons((prompt, *quick, *slow), n_predict=31) == ()


def test_a_run_that_generates_nothing_and_one_that_failed_lack_no_tokens() -> None:
    assert reasons(steps_with_prompt([]), n_predict=1) == ()
    failed = Exit(status=137, meaning="killed for memory")
    assert reasons(steps_with_prompt([0.1]), ended=failed) == ("killed for memory",)


def compared(run: Run, reference: Run, folder: Path) -> tuple[Departure, Verdict]:
    keep_reference(reference, folder)
    found = read_departure(run, run.text, folder)
    assert found is not None
    output = Output(header=run.trace, steps=run.steps, text=run.text)
    return found, judge(run, output, run.exit, Around(after=run.after), found)


def test_a_text_that_departs_from_its_reference_is_not_valid(tmp_path: Path) -> None:
    run = quick_run()
    assert run.verdict.valid
    other = run.model_copy(update={"id": "20261121T000000Z-r", "text": run.text[:40] + "other"})
    found, verdict = compared(run, other, tmp_path)
    assert found.at_character == 40
    assert [finding.name for finding in verdict.findings or ()] == ["reference"]
    assert "differs from that of 20261121T000000Z-r" in verdict.reasons[0]
    _, verdict = compared(run, run, tmp_path)
    assert verdict.valid
    killed = run.model_copy(update={"exit": Exit(status=137, meaning="killed")})
    _, verdict = compared(killed, other, tmp_path)
    assert [finding.name for finding in verdict.findings or ()] == ["exit", "reference"]


def test_another_models_text_says_nothing_against_a_run(tmp_path: Path) -> None:
    run = quick_run()
    model = run.model.model_copy(update={"sha256": "c" * 64})
    other = run.model_copy(update={"model": model, "text": "other"})
    found, verdict = compared(run, other, tmp_path)
    assert found.kind == "other model"
    assert verdict.valid


def test_a_run_without_a_reference_is_compared_with_nothing(tmp_path: Path) -> None:
    run = quick_run()
    assert read_departure(run, run.text, tmp_path) is None


def test_few_tokens_are_no_doubt_about_a_run_that_measures_something_else() -> None:
    job = quick_run().model_copy(update={"plan": None, "board": board_record()})
    few = Output(header=trace(), steps=steps_with_prompt([0.1] * 3))
    doubted, scored = (
        judge(job, output, ENDED_WELL, Around(after=conditions()))
        for output in (few, few.model_copy(update={"result": {"answers": 3}}))
    )
    assert [finding.name for finding in doubted.findings or ()] == ["few tokens"]
    assert scored.valid
