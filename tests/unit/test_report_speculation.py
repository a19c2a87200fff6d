"""What is said of speculation: figures, whether it pays, and whether the text is the same."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.run import Run
from armload.analysis.sanity import departure
from armload.analysis.speculation import (
    SpeculationResult,
    WithoutSpeculation,
    compare_with_baseline,
)
from armload.report.cells import cells_of
from armload.report.speculation import gain_lines, gains, speculation_of
from tests.unit.runs import quick_run

FIGURES = SpeculationResult(
    passes=50,
    tokens=99,
    tokens_per_pass=1.98,
    speculated_tokens=90,
    accepted_tokens=49,
    acceptance_rate=49 / 90,
    s_per_token=0.2,
    draft_s=1.98,
)


def speculating(
    figures: SpeculationResult = FIGURES,
    *,
    without: WithoutSpeculation | None = None,
    number: int = 0,
) -> Run:
    run = quick_run()
    assert run.plan is not None
    plan = run.plan.model_copy(update={"speculate": "ngram"})
    summary = run.summary.model_copy(update={"speculation": figures})
    return run.model_copy(
        update={
            "id": f"speculating-{number}",
            "plan": plan,
            "summary": summary,
            "without_speculation": without,
        }
    )


def beside(
    baseline_s: Sequence[float], *, text: str = "a b c", other: str = "a b c", valid: bool = True
) -> Run:
    found = compare_with_baseline(
        departure(text, other, name="r"),
        ["r"],
        valid=valid,
        baseline_s=baseline_s,
        speculating_s=[FIGURES.s_per_token],
    )
    return speculating(without=found)


def test_gaining_is_called_gaining_and_another_text_is_shown() -> None:
    speed, text = gain_lines(beside([0.5], other="a b x"))
    assert "Speculation gains: 2.50 times faster than without" in speed
    assert "differs from that of r after 2 words (character 4): 'c' instead of 'x'" in text


def test_what_may_be_chance_is_not_called_a_gain() -> None:
    assert "makes no clear difference" in gain_lines(beside([0.205]))[0]


def test_runs_that_are_not_valid_show_neither_gain_nor_loss() -> None:
    run = beside([0.1])
    doubted = run.model_copy(update={"verdict": run.verdict.model_copy(update={"valid": False})})
    for each in (doubted, beside([0.1], valid=False)):
        speed, _ = gain_lines(each)
        assert "judged from runs that are not valid: 2.00 times slower" in speed
        assert "Speculation loses" not in speed


def test_a_cell_is_compared_with_the_one_that_differs_in_nothing_else() -> None:
    baseline = [quick_run().model_copy(update={"id": f"plain-{n}"}) for n in range(4)]
    guessing = [speculating(number=n) for n in range(4)]
    other = speculating(number=9)
    assert other.plan is not None
    longer = other.plan.model_copy(update={"n_predict": other.plan.n_predict + 1})
    cells = cells_of([*baseline, *guessing, other.model_copy(update={"plan": longer})])
    found = {cell.runs[0].id: speculation_of(cell, cells) for cell in cells}
    assert found["plain-0"] is None
    assert found["speculating-9"] is not None
    assert found["speculating-9"].without is None
    compared = found["speculating-0"]
    assert compared is not None
    assert compared.without is not None
    assert compared.without.runs == ("plain-0", "plain-1", "plain-2", "plain-3")
    assert compared.without.ratio is not None
    assert compared.without.ratio.unit == "runs"
    (line,) = gains({cell.label: cell for cell in cells})
    assert "95% CI" in line
