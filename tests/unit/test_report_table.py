"""Tables for a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from armload.analysis.finding import RunFinding
from armload.analysis.output_doubts import Failed
from armload.analysis.verdict import Verdict
from armload.deploy.exit_reason import Exit, ExitKind
from armload.report import formatting as words
from armload.report import run_words
from armload.report.binaries import binaries_table
from armload.report.table import list_table, run_table
from tests.unit.findings import EXAMPLES
from tests.unit.runs import failed_run, quick_run
from tests.unit.samples import binary


def _shown(renderable: RenderableType, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(renderable)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_failed_run_says_why_and_shows_no_empty_figures() -> None:
    shown = " ".join(_shown(run_table(failed_run())).split())
    assert "SIGILL" in shown
    assert failed_run().exit.remedy in shown
    assert "not valid" in shown
    assert "tok/s" not in shown


def test_names_from_files_are_never_read_as_markup() -> None:
    run = quick_run()
    odd = run.model_copy(
        update={"model": run.model.model_copy(update={"name": "[red]x[/oops].gguf"})}
    )
    assert "[red]x[/oops].gguf" in _shown(run_table(odd))
    assert "[red]x[/oops].gguf" in _shown(list_table([odd]), width=200)


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("stopped", 143, "stopped on request"),
        ("restart", None, "interrupted: restart"),
        ("out of memory", 137, "failed: out of memory"),
        ("exit status", 3, "failed: exit 3"),
        ("done", 0, "not valid (contended)"),
    ],
)
def test_a_list_says_in_few_words_why_a_run_is_not_valid(
    kind: ExitKind, status: int | None, said: str, width: int
) -> None:
    contended = next(each for each in EXAMPLES if each.name == "contended")
    found: list[RunFinding] = [Failed(status=status, meaning="x")] if status != 0 else [contended]
    ended = Exit(kind=kind, status=status, meaning="x")
    run = quick_run().model_copy(update={"exit": ended, "verdict": Verdict.of(found)})
    shown = _shown(list_table([run, quick_run()]), width=width)
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= width
    assert [line for line in lines if said in line]
    assert [line for line in lines if line.endswith("valid") and "not" not in line]


@pytest.mark.parametrize("width", [80, 200])
def test_a_program_that_came_with_a_release_says_so_wherever_it_is_shown(width: int) -> None:
    came = binary().model_copy(update={"prebuilt_in": "armload 0.1.0"})
    assert "armload 0.1.0" in _shown(binaries_table([came]), width=width)
    run = quick_run()
    ran = run.binary.model_copy(update={"prebuilt_in": "armload 0.1.0"})
    assert run_words.binary_line(run.model_copy(update={"binary": ran})).endswith(
        f"build {run.binary.build_id}, prebuilt in armload 0.1.0)"
    )
    assert "prebuilt" not in run_words.binary_line(run)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0664, "66.4 ms"),
        (0.74, "740 ms"),
        (0.99949, "999 ms"),
        (0.99996, "1.00 s"),
        (1.0, "1.00 s"),
        (9.996, "10.0 s"),
        (18.18, "18.2 s"),
        (123.4, "123 s"),
        (4321.0, "4,321 s"),
        (None, "-"),
    ],
)
def test_times_have_three_figures(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (15.0, "15.0"),
        (0.0557, "0.0557"),
        (0.00001, "0.0000100"),
        (320.4, "320"),
        (999.9, "1,000"),
        (0.0, "0.00"),
        (None, "-"),
    ],
)
def test_rates_have_three_figures(value: float | None, text: str) -> None:
    assert words.rate(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (64, "64"),
        (999_999, "1.00 M"),
        (292_800, "293 k"),
        (81_808_128, "81.8 M"),
        (8_030_261_312, "8.03 B"),
    ],
)
def test_weights_are_counted_as_in_model_names(count: int, text: str) -> None:
    assert words.weights(count) == text


@given(value=st.floats(1e-6, 1e7))
@example(0.99996)
@example(999.9)
@example(1e-5)
def test_a_figure_is_never_written_with_an_exponent(value: float) -> None:
    rate, time, count = words.rate(value), words.seconds(value), words.weights(round(value))
    assert not any("e" in text for text in (rate, time, count))
    number, unit = time.split()
    shown = float(number.replace(",", "")) / {"s": 1, "ms": 1000}[unit]
    assert (unit == "s") == (shown >= 1)
    for figure, exact in ((float(rate.replace(",", "")), value), (shown, value)):
        assert figure == pytest.approx(exact, rel=0.00501)
    for text in (rate, number):
        figures = text.replace(",", "").replace(".", "").lstrip("0")
        assert len(figures) == 3 or ("." not in text and len(figures) > 3)


@pytest.mark.parametrize(
    ("lasted_s", "text"),
    [(0.4, "0 s"), (90, "90 s"), (150, "2 min"), (7300, "2 h"), (200_000, "2 days")],
)
def test_a_duration_has_the_unit_that_suits_it(lasted_s: float, text: str) -> None:
    assert words.duration(lasted_s) == text


def test_one_token_is_not_several() -> None:
    run = quick_run()
    one = run.summary.model_copy(update={"prefill_tokens": 1, "decode_tokens": 1})
    said = run_words.in_all(run.model_copy(update={"summary": one}))
    assert "prefill 1 token in" in said
    assert "decode 1 token in" in said
