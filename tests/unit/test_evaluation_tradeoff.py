"""Two models at equal latency, from kept answers; and the page that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armload.analysis.energy import Energy
from armload.analysis.run import Run
from armload.analysis.tradeoff import by_budget
from armload.analysis.verdict import Verdict
from armload.boards.power import Sees
from armload.cli import terminal
from armload.core.errors import UsageError
from armload.evaluation.record import AnswerSource, EvaluationFolder
from armload.evaluation.results import points_of
from armload.evaluation.sides import TradeoffSide, find_sides
from armload.evaluation.tradeoff import trade
from armload.report.evaluation.figures import token_figure
from armload.report.evaluation.page import evaluation_page
from armload.report.evaluation.series import EvaluationView
from armload.report.evaluation.table import notes
from armload.report.evaluation.tradeoff import TradeoffResult, energy_lines, tradeoff_view
from armload.report.pages import render
from tests.unit.evaluations import BUDGETS, QUESTIONS, answer, evaluated
from tests.unit.findings import verdict_of
from tests.unit.runs import quick_run


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)


def test_the_times_of_two_models_in_one_evaluation_are_their_answers() -> None:
    evaluated(fails=False)
    (found,) = trade(*find_sides("latest", ""), deadlines_s=[0.7])
    assert found.a.name == "a"
    assert found.a.budgets == BUDGETS
    assert found.a.latency_s[0] == pytest.approx((0.4, 1.0))
    assert found.b.latency_s[0] == pytest.approx((0.2, 0.5))
    (at,) = found.deadlines
    assert (at.a.correct, at.b.correct) == (0, 2)
    assert found.axis is not None
    assert found.axis.ratio == pytest.approx(2.0)


def test_one_of_several_models_is_named() -> None:
    evaluated(fails=False)
    a, b = find_sides("latest:b", "latest:a")
    assert (a.model, b.model) == ("b.gguf", "a.gguf")
    with pytest.raises(UsageError, match=r"has the models a\.gguf, b\.gguf"):
        find_sides("latest:c", "latest:a")


def test_a_model_whose_name_is_part_of_the_others_can_be_named() -> None:
    evaluated(models=("qwen", "qwen-tuned"))
    for name in ("qwen", "qwen.gguf"):
        a, b = find_sides(f"latest:{name}", "latest:tuned")
        assert (a.model, b.model) == ("qwen.gguf", "qwen-tuned.gguf")
    with pytest.raises(UsageError, match=r"has the models qwen\.gguf, qwen-tuned\.gguf"):
        find_sides("latest:q", "latest:tuned")


def test_projectors_are_named_and_two_of_one_model_are_told_apart() -> None:
    first = evaluated(fails=False, projector="mmproj-f16.gguf").evaluation.id
    sides = find_sides(first, "")
    (found,) = trade(*sides)
    assert found.unequal == ()
    page = TradeoffResult(sides=sides, found=(found,)).files["page"].read_text()
    assert page.count(f"mmproj-f16.gguf, SHA-256 {'c' * 64}") == 2
    other = evaluated(fails=False, projector="mmproj-q8_0.gguf").evaluation.id
    (found,) = trade(*find_sides(f"{first}:a", f"{other}:a"))
    (said,) = found.unequal
    assert f"{first}: mmproj-f16.gguf" in said
    assert f"{other}: mmproj-q8_0.gguf" in said


def test_what_not_both_have_answered_is_left_out_and_counted() -> None:
    evaluated()
    sides = find_sides("latest", "")
    (found,) = trade(*sides, deadlines_s=[0.7])
    assert found.a.questions == found.b.questions == ("1", "2", "3")
    assert found.left_out == 1
    said = "3 of 4 questions; one of the models has no answer to the other 1"
    assert said in TradeoffResult(sides=sides, found=(found,)).files["page"].read_text()


def test_models_that_answered_no_question_in_common_are_not_compared() -> None:
    made = evaluated()
    (made.folder / "answers-1.jsonl").unlink()
    with pytest.raises(UsageError, match="no answered question in common"):
        trade(*find_sides("latest", ""))


def test_a_way_in_which_one_model_has_not_been_asked_yet_does_not_hide_the_others() -> None:
    made = evaluated(variants=2)
    (made.folder / "answers-3.jsonl").unlink()
    (found,) = trade(*find_sides("latest", ""))
    assert found.prompt == "steps"


def test_evaluations_of_fewer_questions_are_not_compared() -> None:
    first = evaluated(fails=False).evaluation.id
    fewer = evaluated(fails=False, questions=QUESTIONS[:3]).evaluation.id
    with pytest.raises(UsageError, match=r"has 4 questions, .* has 3") as caught:
        find_sides(f"{first}:a", f"{fewer}:b")
    assert "--limit" in caught.value.remedy


def test_evaluations_with_different_graders_are_not_compared() -> None:
    first, other = evaluated(fails=False), evaluated(fails=False)
    a, b = first.evaluation.id, other.evaluation.id
    other.grade_by("number")
    with pytest.raises(UsageError, match=f"{a} is graded by boxed, {b} by number") as caught:
        find_sides(f"{a}:a", f"{b}:b")
    assert f"armload eval --regrade {b} --grader boxed" in caught.value.remedy


def test_times_that_are_known_to_be_wrong_are_called_so() -> None:
    made = evaluated(fails=False)
    (plain,) = trade(*find_sides("latest", ""))
    assert plain.doubts == ()
    for part, board in ((0, "x"), (1, "x"), (1, "y")):
        doubts = ("The CPU was throttled.",) if (part, board) == (1, "x") else ()
        source = AnswerSource(run=f"{part}-{board}", part=part, board=board, doubts=doubts)
        made.add(part, [answer("1", "again")], source)
    sides = find_sides("latest", "")
    (found,) = trade(*sides)
    assert found.doubts == (
        "Do not rely on the times of b: The CPU was throttled.",
        "Do not rely on the times of b: They come from several boards: x, y.",
        "The times come from different boards: a was evaluated on x; b was evaluated on x, y.",
    )
    text = TradeoffResult(sides=sides, found=(found,)).files["page"].read_text()
    for words in (*found.doubts, "With --times RUN_A,RUN_B the times come from a run of each"):
        assert words in text
    assert found.doubts[0] in notes(points_of(EvaluationFolder.read(made.folder)))


def test_runs_in_which_the_same_was_found_are_named_once() -> None:
    made = evaluated(fails=False)
    for part, share in ((0, "64%"), (1, "70%"), (1, "72%")):
        doubts = (f"Contended: it had the CPU for {share} of the time.",)
        source = AnswerSource(run=f"{part}-{share}", part=part, board="x", doubts=doubts)
        made.add(part, [answer("1", "again")], source)
    (found,) = trade(*find_sides("latest", ""))
    (doubt,) = found.doubts
    assert doubt.startswith(
        "Do not rely on the times of a and b: Contended: it had the CPU for 64%"
    )
    assert doubt.endswith(" And 2 similar findings.")


def test_times_of_answers_that_shared_the_board_are_called_so() -> None:
    evaluated(fails=False, parallel=8)
    (found,) = trade(*find_sides("latest", ""))
    (doubt,) = found.doubts
    assert doubt.startswith(
        "Do not rely on the times of a and b: Questions were answered concurren"
    )


def test_the_ratio_of_speeds_leaves_out_the_prompts() -> None:
    made = evaluated(fails=False)
    for part, factor in enumerate((1, 2)):
        (made.folder / f"answers-{part}.jsonl").unlink()
        slow = answer("1", "It is", token_s=0.05 * factor)
        late = {"times_ns": tuple(each + 5_000_000_000 for each in slow.times_ns)}
        EvaluationFolder.read(made.folder).add(part, [slow.model_copy(update=late)])
    (found,) = trade(*find_sides("latest", ""))
    assert found.axis is not None
    assert found.axis.ratio == pytest.approx(2.0)


def test_the_share_of_boxes_is_beside_each_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    evaluated(fails=False)
    sides = find_sides("latest", "")
    found = trade(*sides)
    shares = [point.boxed_share for point in by_budget(found[0].b)]
    assert shares == [0, 0.75]
    assert (
        "<span>boxed</span>"
        in TradeoffResult(sides=sides, found=tuple(found)).files["page"].read_text()
    )
    terminal.show(tradeoff_view(found))
    assert "75%" in capsys.readouterr().out


def test_questions_of_one_number_must_be_the_same_question() -> None:
    first = evaluated(fails=False).evaluation.id
    last = QUESTIONS[-1].model_copy(update={"fields": {"question": "What is 5 + 3?"}})
    other = evaluated(fails=False, questions=(*QUESTIONS[:-1], last)).evaluation.id
    with pytest.raises(UsageError, match="asked different questions: number 4") as caught:
        find_sides(f"{first}:a", f"{other}:b")
    assert "--data" in caught.value.remedy
    same = evaluated(fails=False).evaluation.id
    assert trade(*find_sides(f"{first}:a", f"{same}:b"))


def _run_of(side: TradeoffSide, *, board: str = "here", verdict: Verdict | None = None) -> Run:
    run = quick_run()
    return run.model_copy(
        update={
            "id": f"run-{side.model}",
            "model": run.model.model_copy(update={"sha256": side.model_sha256}),
            "board": run.board.model_copy(update={"name": board}),
            "verdict": verdict or run.verdict,
        }
    )


def test_times_of_another_model_are_refused() -> None:
    evaluated(fails=False)
    a, b = find_sides("latest", "")
    with pytest.raises(UsageError, match=r"not of b\.gguf"):
        trade(a, b, runs=(_run_of(a), quick_run()))


def test_times_from_two_boards_are_refused() -> None:
    evaluated(fails=False)
    a, b = find_sides("latest", "")
    with pytest.raises(UsageError, match=r"run-a\.gguf ran on here, run-b\.gguf on there"):
        trade(a, b, runs=(_run_of(a), _run_of(b, board="there")))


def test_times_of_an_invalid_run_are_called_so_and_the_answers_own_are_not_judged() -> None:
    evaluated(fails=False, parallel=8)
    a, b = find_sides("latest", "")
    contended = verdict_of(contended="The CPU was busy.")
    text = verdict_of(degenerate_text="The text repeats itself.")
    (found,) = trade(a, b, runs=(_run_of(a, verdict=text), _run_of(b, verdict=contended)))
    assert found.times_of == ("run-a.gguf", "run-b.gguf")
    assert found.doubts == ("Do not rely on the times of run-b.gguf: The CPU was busy.",)


def test_each_way_of_asking_has_its_own_figures_with_its_own_crossover() -> None:
    made = evaluated(fails=False, variants=4)
    view = EvaluationView.of(points_of(made))
    assert [len(group.series) for group in view.groups] == [2, 2, 2, 2]
    assert all(group.crossover for group in view.groups)
    assert [line.label for line in view.groups[3].series] == ["a", "b"]
    text = render(evaluation_page(made, view, "boxed"))
    for prompt in ("steps", "prompt2", "prompt3", "prompt4"):
        variant = f"Prompt {prompt}, not told the budget"
        assert f"<h2>Accuracy against time: {variant}</h2>" in text
        assert f"<h2>Accuracy against tokens: {variant}</h2>" in text
        assert f"{variant}: 4 questions: too few to tell" in text


def test_ways_of_asking_one_model_are_drawn_together_however_many_there_are() -> None:
    made = evaluated(variants=8)
    view = EvaluationView.of([each for each in points_of(made) if each.model == "a.gguf"])
    assert [len(group.series) for group in view.groups] == [7, 1]
    labels = {line.label for group in view.groups for line in group.series}
    assert labels == {"prompt steps", *(f"prompt prompt{number}" for number in range(2, 9))}
    text = render(evaluation_page(made, view, "boxed"))
    assert text.count("<h2>Accuracy against time</h2>") == 2


def test_a_line_that_lacks_answers_at_a_budget_does_not_hide_the_others() -> None:
    points = points_of(evaluated(fails=False))
    points[-1] = points[-1].model_copy(update={"attempts": ()})
    (group,) = EvaluationView.of(points).groups
    assert [line.label for line in group.series] == ["a"]


def test_a_figure_says_over_how_many_questions_each_line_is() -> None:
    (group,) = EvaluationView.of(points_of(evaluated())).groups
    assert "(mean over 4, 3 questions)" in token_figure(group.series).sentence
    (group,) = EvaluationView.of(points_of(evaluated(fails=False))).groups
    assert "(mean over 4 questions)" in token_figure(group.series).sentence


def _energy(*, sees: Sees = "wall", joules: float = 40.0, problem: str = "", **more: Any) -> Energy:
    return Energy(
        source="shelly at http://plug",
        sees=sees,
        samples=60,
        joules=None if problem else joules,
        problem=problem,
        **more,
    )


def _sourced(made: EvaluationFolder, *energies: Energy | None) -> None:
    for part, energy in enumerate(energies):
        source = AnswerSource(run=f"run-{part}", part=part, board="x", doubts=(), energy=energy)
        made.add(part, [answer("1", "again")], source)


def test_the_energy_of_answers_is_their_share_of_the_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = evaluated(fails=False)
    # Four answers of a second each, and four of half a second.
    _sourced(made, _energy(joules=40.0), _energy(joules=8.0))
    sides = find_sides("latest", "")
    (found,) = trade(*sides)
    assert found.energy is not None
    assert found.energy.a is not None
    assert found.energy.b is not None
    assert found.energy.a.joules == pytest.approx((4.0, 10.0))
    assert found.energy.b.joules == pytest.approx((0.8, 2.0))
    assert found.energy.warning == ""
    terminal.show(tradeoff_view([found]))
    said = " ".join(capsys.readouterr().out.split())
    line = "Energy of a, at the wall, idle power included: 10.0 J per answer (mean) for 100.0%."
    assert line in said
    page = TradeoffResult(sides=sides, found=(found,)).files["page"].read_text()
    assert line in page
    assert "chart-accuracy-joules-0" in page


def test_answers_that_shared_the_board_share_its_energy() -> None:
    made = evaluated(fails=False, parallel=4)
    _sourced(made, _energy(joules=10.0), _energy(joules=10.0))
    (found,) = trade(*find_sides("latest", ""))
    assert found.energy is not None
    assert found.energy.a is not None
    # The four answers took ten joules together, however many ran at a time.
    assert found.energy.a.joules[-1] == pytest.approx(2.5)


def test_energies_from_wall_and_board_are_not_compared_without_a_warning() -> None:
    made = evaluated(fails=False)
    _sourced(made, _energy(), _energy(sees="board"))
    sides = find_sides("latest", "")
    (found,) = trade(*sides)
    assert found.energy is not None
    assert found.energy.warning == (
        "a was measured at the wall, idle power included, b on the board, idle power included. "
        "These cannot be compared: only the wall includes the supply's losses."
    )
    assert (
        "These cannot be compared"
        in TradeoffResult(sides=sides, found=(found,)).files["page"].read_text()
    )


def test_energy_that_is_not_valid_or_unknown_is_said_with_its_reason() -> None:
    made = evaluated(fails=False)
    _sourced(made, _energy(problem="only 3 samples within 2.0 s"), None)
    (found,) = trade(*find_sides("latest", ""))
    assert energy_lines(found) == [
        "Energy of a: not valid: only 3 samples within 2.0 s.",
        "Energy of b: unknown, its board has no power meter.",
    ]
    mixed = evaluated(fails=False)
    _sourced(mixed, _energy(), _energy())
    second = AnswerSource(run="run-2", part=0, board="y", doubts=(), energy=_energy(sees="board"))
    mixed.add(0, [answer("1", "again")], second)
    (found,) = trade(*find_sides(mixed.evaluation.id, ""))
    assert energy_lines(found)[0] == (
        "Energy of a: not valid: its runs were not all measured in the same way."
    )


def test_without_a_power_meter_nothing_is_said_of_energy() -> None:
    evaluated(fails=False)
    (found,) = trade(*find_sides("latest", ""))
    assert found.energy is None
    assert energy_lines(found) == []


def test_runs_that_give_the_times_give_the_energy_too() -> None:
    evaluated(fails=False)
    a, b = find_sides("latest", "")
    known = _energy(joules_per_prompt_token=0.5, joules_per_token=2.0)
    runs = (
        _run_of(a).model_copy(update={"energy": known}),
        _run_of(b).model_copy(update={"energy": _energy(problem="the run has no steps")}),
    )
    (found,) = trade(a, b, runs=runs)
    assert found.energy is not None
    assert found.energy.a is not None
    # Twelve prompt tokens; the first of four, or ten, tokens comes out of the prompt.
    assert found.energy.a.joules == pytest.approx((6.0 + 2.0 * 3, 6.0 + 2.0 * 9))
    assert energy_lines(found)[1] == ("Energy of b: not valid: run-b.gguf: the run has no steps.")
