"""Whether a run's figures may be believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.conditions_log import RunConditions
from armload.analysis.contention import Contended, Unsteady
from armload.analysis.emulation import EmulatorDelayed
from armload.analysis.finding import RunFinding
from armload.analysis.output_doubts import DegenerateText, Failed, OutputCount, TextDiffers
from armload.analysis.precision import MoreTokens, TooFewTokens, WideSpread
from armload.analysis.run import Run
from armload.analysis.sanity import Departure, TextFault
from armload.analysis.throttling import Throttled
from armload.analysis.verdict import StorageFull, Swapping, Verdict, judge
from armload.deploy.exit_reason import Exit
from armload.engines.job import SweepPoint, Watched
from armload.engines.output import Output
from armload.engines.plan import Plan
from armload.engines.spread import Spread
from armload.engines.trace import Step, Trace
from armload.engines.watched.reader import load_reader
from armload.runs.reference import keep_reference, read_departure
from tests.unit.findings import USE_MORE
from tests.unit.runs import quick_run
from tests.unit.samples import (
    board_record,
    conditions,
    step,
    steps_with_prompt,
    trace,
)

PROGRAM = Watched(words=("llm_demo",), reader=load_reader("mnn"), time_limit_s=60)
ILLEGAL = Exit(kind="illegal instruction", status=132, meaning="ended by SIGILL")
ENDED_WELL = Exit(kind="done", status=0, meaning="ended well")


def reasons(
    steps: tuple[Step, ...],
    *,
    n_predict: int = 9,
    text: str = "a little girl",
    ended: Exit = ENDED_WELL,
    swap_after: int = 0,
    full: bool = False,
    header: Trace | None = None,
    spread: Spread | None = None,
    place: SweepPoint | None = None,
) -> list[RunFinding]:
    return judge(
        quick_run().model_copy(
            update={
                "plan": Plan(n_predict=n_predict),
                "board": board_record(),
                "before": conditions(),
                "spread": spread,
                "place": place,
            }
        ),
        Output(header=header or trace(), steps=steps, text=text),
        ended,
        RunConditions(after=conditions(swap_used=swap_after), storage_was_full=full),
    )


def test_a_good_run_is_valid() -> None:
    assert reasons(steps_with_prompt([0.1] * 8)) == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            reasons(steps_with_prompt([0.1] * 7)),
            OutputCount(requested_tokens=9, traced_tokens=8),
        ),
        (
            reasons(steps_with_prompt([0.1] * 7), n_predict=8),
            TooFewTokens(timed_tokens=7, needed_tokens=8, more=USE_MORE),
        ),
        (
            reasons(steps_with_prompt([0.1]), n_predict=2),
            TooFewTokens(timed_tokens=1, needed_tokens=8, more=USE_MORE),
        ),
        (
            reasons(steps_with_prompt([0.1] * 8), text=" \n"),
            DegenerateText(
                fault=TextFault(kind="only white space"), has_prompt=True, ignores_end=True
            ),
        ),
        (
            reasons(steps_with_prompt([0.1] * 8), swap_after=50_000_000),
            Swapping(
                out_bytes=50_000_000,
                in_bytes=None,
                used_before_bytes=0,
                used_after_bytes=50_000_000,
                total_bytes=10**9,
            ),
        ),
        (
            reasons((), ended=ILLEGAL),
            Failed(status=132, meaning="ended by SIGILL"),
        ),
        (
            reasons(steps_with_prompt([0.1] * 8), full=True),
            StorageFull(board=board_record().name, steps=9, missing_steps=0),
        ),
        (
            reasons(steps_with_prompt([0.1] * 8)[3:], full=True),
            StorageFull(board=board_record().name, steps=9, missing_steps=3),
        ),
    ],
)
def test_every_doubt_has_its_reason(found: list[RunFinding], expected: RunFinding) -> None:
    assert expected in found


@pytest.mark.parametrize(
    ("changed", "answer_tokens", "has_plan", "has_count"),
    [
        ({"plan": Plan(n_predict=9)}, None, True, True),
        ({"plan": Plan(n_predict=8, stop_at_end=True)}, None, True, True),
        ({"plan": Plan(n_predict=48, stop_at_end=True)}, 8, True, True),
        (
            {"plan": None, "watched": PROGRAM.model_copy(update={"n_predict": 48})},
            8,
            False,
            True,
        ),
        (
            {"plan": None, "watched": PROGRAM.model_copy(update={"n_predict": 8})},
            None,
            False,
            True,
        ),
        ({"plan": None, "watched": PROGRAM}, None, False, False),
    ],
)
def test_too_few_tokens_are_told_with_what_gives_more_of_them(
    changed: dict[str, object],
    answer_tokens: int | None,
    has_plan: bool,  # noqa: FBT001
    has_count: bool,  # noqa: FBT001
) -> None:
    found = judge(
        quick_run().model_copy(update=changed),
        Output(header=trace(), steps=steps_with_prompt([0.1] * 7), text="a little girl"),
        ENDED_WELL,
        RunConditions(after=conditions()),
    )
    (few,) = [each for each in found if isinstance(each, TooFewTokens)]
    assert few.timed_tokens == 7
    assert few.more == MoreTokens(
        wanted_tokens=9, answer_tokens=answer_tokens, has_plan=has_plan, has_count=has_count
    )


def test_an_answer_of_one_token_has_too_few_and_a_run_for_prefill_alone_has_not() -> None:
    def found(plan: Plan) -> list[RunFinding]:
        run = quick_run().model_copy(update={"plan": plan})
        output = Output(header=trace(), steps=steps_with_prompt([]), text="a")
        return judge(run, output, ENDED_WELL, RunConditions(after=conditions()))

    assert found(Plan(n_predict=1)) == []
    (reason,) = found(Plan(n_predict=48, stop_at_end=True))
    assert isinstance(reason, TooFewTokens)
    assert (reason.timed_tokens, reason.more.answer_tokens) == (0, 1)


def test_a_run_that_something_disturbed_is_not_valid() -> None:
    steps = steps_with_prompt([0.1] * 18 + [1.0] * 4)
    (reason,) = reasons(steps, n_predict=23)
    assert isinstance(reason, Unsteady)
    assert reason.times_median == pytest.approx(10)


def test_tokens_that_read_storage_are_not_called_disturbed() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    slow = [step(n, duration_s=2.0, read_bytes=10**8) for n in range(1, 6)]
    quick = [step(n) for n in range(6, 22)]
    assert reasons((prompt, *slow, *quick), n_predict=22) == []


def test_a_run_at_a_lowered_frequency_is_not_valid() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    quick = [step(n, cpu_khz=(1_992_000, 408_000)) for n in range(1, 12)]
    hot = [step(n, cpu_khz=(1_416_000, 408_000), celsius=86.0) for n in range(12, 22)]
    (reason,) = reasons((prompt, *quick, *hot), n_predict=22)
    assert isinstance(reason, Throttled)
    assert reason.time_share == pytest.approx(0.48, abs=0.005)
    assert (reason.lowest_khz, reason.peak_khz, reason.celsius) == (1_416_000, 1_992_000, 86.0)


def test_cores_that_idle_are_not_throttled_and_one_slow_reading_is_no_matter() -> None:
    prompt = step(0, phase="prompt", tokens=8, cpu_khz=(408_000, 408_000))
    steps = [step(n, cpu_khz=(1_992_000, 408_000)) for n in range(1, 31)]
    steps[4] = step(5, cpu_khz=(1_608_000, 408_000))
    assert reasons((prompt, *steps), n_predict=31) == []


def test_a_run_whose_threads_were_preempted_is_not_valid() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    steps = [step(n, busy_threads=0.94, involuntary_switches=40) for n in range(1, 21)]
    (reason,) = reasons((prompt, *steps), n_predict=21)
    assert isinstance(reason, Contended)
    assert (reason.threads, reason.switches, reason.per) == (2, 40, "token")
    assert reason.busy_share == pytest.approx(0.47)
    # The threads of a group's first member wait for the others.
    group = Spread(split="layer", shares=())
    assert reasons((prompt, *steps), n_predict=21, spread=group) == []


def test_threads_that_wait_for_storage_are_not_called_preempted() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    steps = [
        step(n, busy_threads=0.3, involuntary_switches=40, read_bytes=10**8) for n in range(1, 21)
    ]
    assert reasons((prompt, *steps), n_predict=21) == []


def test_too_few_tokens_for_their_spread_are_counted() -> None:
    durations = [0.1, 0.13] * 10
    (reason,) = reasons(steps_with_prompt(durations), n_predict=21)
    assert isinstance(reason, WideSpread)
    assert reason.more is not None
    assert reason.more.wanted_tokens > len(durations)


@pytest.mark.parametrize("precision", [None, 0.05])
def test_more_time_for_repeats_is_advised_only_where_armload_adds_them(
    precision: float | None,
) -> None:
    place = SweepPoint(sweep="s", cell=0, round=0, precision=precision)
    (reason,) = reasons(steps_with_prompt([0.1, 0.13] * 10), n_predict=21, place=place)
    assert isinstance(reason, WideSpread)
    assert reason.adds_repeats is (precision is not None)


def test_of_a_disturbed_run_not_thousands_of_tokens_are_asked_for() -> None:
    (reason,) = reasons(steps_with_prompt([0.1, 0.15] * 10), n_predict=21)
    assert isinstance(reason, WideSpread)
    assert reason.more is None


def speculating(duration_s: float, *, drafts: int, accepted_before: int, number: int) -> Step:
    counts = {"speculated_tokens": drafts, "accepted_tokens": accepted_before}
    return step(number, duration_s=duration_s).model_copy(update={**counts, "tokens": 1 + drafts})


def test_accepted_drafts_count_as_tokens_of_the_text() -> None:
    steps = steps_with_prompt([0.1] * 8)
    accepted = (*steps, speculating(0.1, drafts=0, accepted_before=3, number=9))
    assert reasons(accepted, n_predict=13) == []
    for requested in (14, 12):
        expected = OutputCount(requested_tokens=requested, traced_tokens=13)
        assert reasons(accepted, n_predict=requested)[0] == expected


def test_the_last_accepted_drafts_may_be_more_than_was_asked_for() -> None:
    header = trace().model_copy(update={"last_accepted_tokens": 2})
    steps = steps_with_prompt([0.1] * 8)
    for requested, fits in ((8, False), (9, True), (11, True), (12, False)):
        found = reasons(steps, n_predict=requested, header=header)
        assert any(isinstance(reason, OutputCount) for reason in found) != fits, requested


def test_passes_of_several_tokens_are_not_called_unsteady() -> None:
    quick = [speculating(0.1, drafts=0, accepted_before=0, number=1 + n) for n in range(20)]
    slow = [speculating(0.3, drafts=8, accepted_before=0, number=21 + n) for n in range(10)]
    prompt = step(0, phase="prompt", tokens=8, duration_s=0.4)
    assert reasons((prompt, *quick, *slow), n_predict=31) == []


def test_a_run_that_failed_is_not_doubted_for_its_speed_or_for_having_no_trace() -> None:
    contended = tuple(step(n, busy_threads=0.94, involuntary_switches=40) for n in range(1, 21))
    assert "contended" in [each.name for each in reasons(contended)]
    assert [each.name for each in reasons(contended, ended=ILLEGAL)] == ["failed"]
    job = quick_run().model_copy(update={"before": conditions()})
    around = RunConditions(after=conditions())
    nothing = Output(header=None, steps=(), text=None)
    assert [each.name for each in judge(job, nothing, ENDED_WELL, around)][:1] == ["no trace"]
    assert [each.name for each in judge(job, nothing, ILLEGAL, around)] == ["failed"]


def test_a_run_that_generates_nothing_and_one_that_failed_lack_no_tokens() -> None:
    assert reasons(steps_with_prompt([]), n_predict=1) == []
    failed = Exit(kind="out of memory", status=137, meaning="killed for memory")
    (reason,) = reasons(steps_with_prompt([0.1]), ended=failed)
    assert reason == Failed(status=137, meaning="killed for memory")


def compared(run: Run, reference: Run, folder: Path) -> tuple[Departure, list[RunFinding]]:
    keep_reference(reference, folder)
    found = read_departure(run, run.text, folder)
    assert found is not None
    output = Output(header=run.trace, steps=run.steps, text=run.text)
    return found, judge(run, output, run.exit, RunConditions(after=run.after), found)


def test_a_text_that_departs_from_its_reference_is_not_valid(tmp_path: Path) -> None:
    run = quick_run()
    assert run.verdict.valid
    other = run.model_copy(update={"id": "20261121T000000Z-r", "text": run.text[:40] + "other"})
    found, doubts = compared(run, other, tmp_path)
    assert (found.reference, found.at_character) == ("20261121T000000Z-r", 40)
    assert doubts == [TextDiffers(departure=found)]
    _, doubts = compared(run, run, tmp_path)
    assert doubts == []
    killed = run.model_copy(
        update={"exit": Exit(kind="out of memory", status=137, meaning="killed")}
    )
    _, doubts = compared(killed, other, tmp_path)
    assert [doubt.name for doubt in doubts] == ["failed", "text differs"]


def test_another_models_text_says_nothing_against_a_run(tmp_path: Path) -> None:
    run = quick_run()
    model = run.model.model_copy(update={"sha256": "c" * 64})
    other = run.model_copy(update={"model": model, "text": "other"})
    found, doubts = compared(run, other, tmp_path)
    assert found.kind == "other model"
    assert doubts == []


def test_a_run_without_a_reference_is_compared_with_nothing(tmp_path: Path) -> None:
    run = quick_run()
    assert read_departure(run, run.text, tmp_path) is None


def test_few_tokens_are_no_doubt_about_a_run_that_measures_something_else() -> None:
    job = quick_run().model_copy(update={"plan": None, "board": board_record()})
    few = Output(header=trace(), steps=steps_with_prompt([0.1] * 3))
    doubted, scored = (
        judge(job, output, ENDED_WELL, RunConditions(after=conditions()))
        for output in (few, few.model_copy(update={"result": {"answers": 3}}))
    )
    assert [doubt.name for doubt in doubted] == ["imprecise"]
    assert scored == []


def test_a_kind_of_reason_is_named_once() -> None:
    preempted = Contended(
        threads=2, busy_share=0.8, switches=192, per="token", process=None, workstation=None
    )
    delayed = EmulatorDelayed(cpu_share=0.49, cores=2, load=5.6, board_cores=2)
    verdict = Verdict.of([preempted, delayed])
    assert len(verdict.reasons) == 2
    assert verdict.names == "contended"
