"""The demonstration's text as it comes, and its end."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from armload.analysis.emulation import EmulatorDelayed
from armload.analysis.precision import WideSpread
from armload.analysis.repeats import DisturbedInARow, NothingTimed, OutOfTime, PrecisionReached
from armload.analysis.run import Run
from armload.analysis.verdict import Verdict
from armload.report.demo import SpokenText, demo_view
from tests.unit.runs import quick_run

ONE_RUN = OutOfTime(
    more_runs=5,
    run_s=29,
    allowed_s=60,
    needed_s=240,
    runs=1,
    disturbed=0,
    reason="",
    is_storage_limited=False,
)


def test_a_text_is_said_line_by_line_and_no_line_twice() -> None:
    said: list[str] = []
    words = [f"word{number}" for number in range(60)]
    whole = " ".join(words)
    spoken = SpokenText(said.append, "A prompt\n\nof two lines ")
    for end in range(0, len(whole), 7):
        spoken(whole[:end], is_whole=False)
    assert 4 < len(said) < 10
    ended_before = spoken.has_ended
    spoken(f"{whole} [end of text]\n\n\n", is_whole=True)
    assert (ended_before, spoken.has_ended) == (False, True)
    spoken.end(whole)
    assert said[:2] == ["Prompt: A prompt of two lines", "The model continues:"]
    assert " ".join(said[2:]) == whole
    assert all(60 < len(line) <= 76 for line in said[2:-1])


def test_a_run_that_is_not_valid_is_called_so_with_the_reason(tmp_path: Path) -> None:
    run = quick_run()
    console = Console(width=100, record=True, file=io.StringIO())
    doubt = Verdict(valid=False, reasons=("Other programs used the CPU.",))
    spoilt = run.model_copy(update={"verdict": doubt})
    for one in (run, spoilt):
        console.print(demo_view([one], one, tmp_path / "report.html", PrecisionReached()))
        text = " ".join(console.export_text().split())
        assert ("This run is not valid: Other programs used the CPU." in text) == (one is spoilt)


def test_what_disturbed_the_runs_is_said_once_and_no_limit_of_them(tmp_path: Path) -> None:
    spoilt = Verdict.of([EmulatorDelayed(cpu_share=0.05, cores=2, load=40.12, board_cores=2)])
    (reason,) = spoilt.reasons
    run = quick_run().model_copy(update={"verdict": spoilt})
    console = Console(width=100, record=True, file=io.StringIO())
    stop = DisturbedInARow(runs=3, reason=reason)
    console.print(demo_view([run] * 3, run, tmp_path / "report.html", stop))
    text = " ".join(console.export_text().split())
    assert text.count(reason) == 1
    assert run.limit.sentence not in text


def test_an_imprecise_first_run_has_one_remedy_and_is_not_called_invalid(tmp_path: Path) -> None:
    wide = WideSpread(within=0.12, more=None, adds_repeats=True, workstation=None)
    one = quick_run().model_copy(update={"verdict": Verdict.of([wide])})
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(demo_view([one], one, tmp_path / "report.html", ONE_RUN))
    text = " ".join(console.export_text().split())
    assert "Estimated from one run: 5 more runs" in text
    assert text.count("--precision-time") == 1
    assert "not valid" not in text


def test_a_figure_that_is_not_known_well_enough_says_how_to_know_it(tmp_path: Path) -> None:
    runs = [quick_run()] * 6
    changed = {"more_runs": 4, "allowed_s": 240, "needed_s": 390, "runs": 6, "within": 0.08}
    stop = ONE_RUN.model_copy(update=changed)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(demo_view(runs, runs[0], tmp_path / "report.html", stop))
    text = " ".join(console.export_text().split())
    assert "Not known within 5%: 4 more runs of about 29 s" in text
    assert "--precision-time 390" in text


def _with_interval(run: Run, low_s: float | None, high_s: float | None) -> Run:
    assert run.summary.token_s is not None
    times = run.summary.token_s.model_copy(update={"p50_low": low_s, "p50_high": high_s})
    return run.model_copy(update={"summary": run.summary.model_copy(update={"token_s": times})})


def test_a_single_run_has_the_interval_of_its_tokens_and_says_what_that_assumes(
    tmp_path: Path,
) -> None:
    one = _with_interval(quick_run(), 0.5, 0.6)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(demo_view([one], one, tmp_path / "report.html", ONE_RUN))
    text = " ".join(console.export_text().split())
    assert ", 95% CI 500 ms to 600 ms (from one run)." in text
    assert "Estimated from one run: 5 more runs of about 29 s" in text
    assert text.count("95% CI") == 1


def test_a_figure_without_an_interval_says_why(tmp_path: Path) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    one = _with_interval(quick_run(), None, None)
    console.print(demo_view([one], one, tmp_path / "report.html", NothingTimed()))
    text = console.export_text()
    assert "95% CI" not in text
    assert "No confidence interval: no output token was timed." in text
