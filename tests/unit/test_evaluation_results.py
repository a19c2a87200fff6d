"""Answers become figures: at each budget, graded, with their times; and are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from armload.core.errors import DataError
from armload.core.files import write_whole
from armload.core.progress import Silent
from armload.core.workspace import runs_folder
from armload.engines.answers import ThoughtTags
from armload.engines.job import Job, SweepPoint
from armload.evaluation.evaluating import harvest
from armload.evaluation.grading import grade
from armload.evaluation.grading.registry import GRADERS
from armload.evaluation.question import Question
from armload.evaluation.record import AnswerSource, EvaluationFolder
from armload.evaluation.results import points_of
from armload.report.evaluation.page import evaluation_page
from armload.report.evaluation.series import EvaluationView
from armload.report.evaluation.table import notes
from armload.report.pages import render
from armload.runs import store
from tests.unit.evaluations import BUDGETS, QUESTIONS, answer, evaluated
from tests.unit.findings import verdict_of
from tests.unit.runs import quick_run


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)


def test_an_answer_counts_as_it_is_at_each_budget() -> None:
    points = points_of(evaluated())
    found = [(point.model, point.budget, point.correct, len(point.attempts)) for point in points]
    assert found == [
        ("a.gguf", 4, 0, 4),
        ("a.gguf", 10, 4, 4),
        ("b.gguf", 4, 0, 3),
        ("b.gguf", 10, 1, 3),
    ]


def test_time_and_tokens_end_with_the_budget() -> None:
    short, whole, *_ = points_of(evaluated())
    assert short.mean_s == pytest.approx(0.4)
    assert whole.mean_s == pytest.approx(1.0)
    assert [short.mean_tokens, whole.mean_tokens] == list(BUDGETS)
    assert not any(each.is_finished for each in short.attempts)
    assert all(each.is_finished for each in whole.attempts)


def test_a_question_without_an_answer_is_named_and_counts_nowhere() -> None:
    last = points_of(evaluated())[-1]
    assert last.failed == {"4": "the prompt is too long"}
    assert last.boxed_share == pytest.approx(2 / 3)
    assert last.accuracy is not None
    assert last.accuracy.share == pytest.approx(1 / 3)
    assert last.accuracy.interval.low < 1 / 3 < last.accuracy.interval.high


def test_an_answer_that_the_context_ended_is_told_apart() -> None:
    made = evaluated()
    (made.folder / "answers-1.jsonl").unlink()
    again = EvaluationFolder.read(made.folder)
    again.add(1, [answer("1", "It is", tokens=7).model_copy(update={"stop": "context"})])
    points = points_of(again)
    assert [len(point.out_of_context) for point in points] == [0, 0, 0, 1]
    assert [point.attempts[0].stop for point in points[2:]] == ["budget", "context"]
    assert points[3].model_dump()["out_of_context"] == 1
    (said,) = notes(points)
    assert (
        "context was full: 1 answer, for example the one to question 1 after 7 of 10 tokens" in said
    )
    text = render(evaluation_page(again, EvaluationView.of(points), "boxed"))
    assert said in text
    assert ", ended because the context was full</p>" in text


def test_answers_that_the_grader_could_not_judge_are_counted_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reason = "math-verify did not finish within 10 s and was ended"

    def fails(text: str, question: Question) -> grade.GraderFinding:
        return grade.GraderFinding(
            correct=False, extracted=None, failure=reason if "know" in text else ""
        )

    monkeypatch.setattr(
        "armload.evaluation.grading.registry.GRADERS",
        {**GRADERS, "math_verify": replace(GRADERS["math_verify"], grade=fails)},
    )
    made = evaluated(fails=False)
    points = points_of(made, "math_verify")
    assert [point.model_dump()["ungraded"] for point in points] == [0, 0, 0, 1]
    (said,) = notes(points)
    assert f"1 answer could not be graded, for example the one to question 3: {reason}." in said
    text = render(evaluation_page(made, EvaluationView.of(points), "math_verify"))
    assert said in text
    assert f"math_verify: wrong ({reason}), qwen: wrong (nothing found)" in text


def test_another_grader_needs_no_board() -> None:
    last = points_of(evaluated(), "number")[-1]
    assert last.correct == 1


def test_it_is_noted_which_runs_answered_and_what_was_found_about_their_times() -> None:
    made = evaluated(fails=False)
    run = quick_run()
    folder = runs_folder() / f"{made.evaluation.id.partition('-')[0]}-run"
    place = SweepPoint(sweep=made.evaluation.id, cell=1, round=0)
    job = Job(**{name: getattr(run, name) for name in Job.model_fields if name != "place"})
    write_whole(
        folder / "job.json", job.model_copy(update={"place": place}).model_dump_json().encode()
    )
    write_whole(folder / "stdout", f"{answer('1', 'again').model_dump_json()}\n".encode())
    harvest(made, Silent())
    assert made.sources(1) == [AnswerSource(run=folder.name, part=1, board=run.board.name)]
    found = verdict_of(output_missing="Cut.", throttled="Hot.")
    store.save(run.model_copy(update={"verdict": found}), folder)
    harvest(made, Silent())
    again = EvaluationFolder.read(made.folder)
    assert [source.doubts for source in again.sources(1)] == [("Hot.",)]
    assert (again.sources(0), again.source("another")) == ([], None)
    assert points_of(again)[-1].doubts == ("Hot.",)
    assert points_of(again)[-1].doubts == ("Hot.",)


def test_answers_are_kept_once_and_in_the_order_of_the_questions() -> None:
    made = evaluated()
    first = made.answers(1)
    made.add(1, [answer("1", "another")])
    again = EvaluationFolder.read(made.folder)
    assert again.answers(1) == first
    assert [each.id for each in again.answers(1)] == [question.id for question in QUESTIONS]
    assert again.answers(0) == made.answers(0)
    assert again.is_complete


def test_an_incomplete_evaluation_of_the_same_command_is_resumed() -> None:
    made = evaluated()
    killed = EvaluationFolder.resume(made.evaluation, Silent())
    assert killed is not None, "its command was killed before it showed the result"
    made.note_shown()
    assert EvaluationFolder.resume(made.evaluation, Silent()) is None
    (made.folder / "answers-1.jsonl").unlink()
    found = EvaluationFolder.resume(made.evaluation, Silent())
    assert found is not None
    assert [question.id for question in found.missing(1)] == ["1", "2", "3", "4"]


def test_questions_that_are_missing_or_changed_are_named() -> None:
    path = evaluated().folder / "questions.jsonl"
    whole = path.read_text()
    for content, said in {
        whole[:-20]: "there are 3 of 4 questions",
        "": "there are 0 of 4 questions",
        "{}\n" + whole: "line 1: this is not a valid record of an evaluation: id: this",
    }.items():
        path.write_text(content)
        with pytest.raises(DataError, match=rf"questions\.jsonl.*{said}"):
            EvaluationFolder.find("latest").missing(0)


def test_what_is_thought_before_the_answer_is_not_graded() -> None:
    made = evaluated()
    text = "so \\boxed{9}</think> It is \\boxed{8}"
    thinking = answer("4", text).model_copy(
        update={"think_tokens": 10, "text_bytes": (*(14 for _ in range(9)), len(text))}
    )
    (made.folder / "answers-1.jsonl").unlink()
    again = EvaluationFolder.read(made.folder)
    again.add(1, [thinking])
    short, whole = points_of(again)[2:]
    assert short.attempts[0].text == "so \\boxed{9}</"
    assert (short.attempts[0].extracted, whole.attempts[0].extracted) == (None, "8")


def test_a_thought_of_another_family_that_the_budget_cut_is_not_graded() -> None:
    made = evaluated()
    (made.folder / "answers-1.jsonl").unlink()
    again = EvaluationFolder.read(made.folder)
    tags = ThoughtTags(begin="[THINK]", end="[/THINK]")
    cut = answer("4", "[THINK] so \\boxed{8}").model_copy(update={"thought_tags": tags})
    again.add(1, [cut])
    assert points_of(again)[3].attempts[0].extracted is None


@pytest.mark.parametrize(("opened", "extracted"), [(False, "8"), (True, None)])
def test_a_thought_that_the_chat_template_opened_is_not_graded(
    *, opened: bool, extracted: str | None
) -> None:
    made = evaluated()
    (made.folder / "answers-1.jsonl").unlink()
    again = EvaluationFolder.read(made.folder)
    text = "so \\boxed{8}"
    again.add(1, [answer("4", text).model_copy(update={"thinks_from_start": opened})])
    assert [each.extracted for each in points_of(again)[3].attempts] == [extracted]
