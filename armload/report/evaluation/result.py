"""An evaluation and computed logits as results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from armload.analysis.accuracy import accuracy_of
from armload.core.errors import ArmloadError, DifferentError, RunError, UsageError
from armload.core.values import counted
from armload.engines.answers import Answer
from armload.evaluation.disagreements import Disagreement, disagreements
from armload.evaluation.evaluating import Note
from armload.evaluation.grading.registry import check_grader
from armload.evaluation.logits.agreement import Agreement
from armload.evaluation.logits.rows import TOO_LONG, Logits
from armload.evaluation.program import how_asked
from armload.evaluation.record import EvaluationFolder
from armload.evaluation.record import Part as EvaluatedPart
from armload.evaluation.results import AccuracyPoint, is_answer_correct, points_of
from armload.report.evaluation.document import (
    EvaluationDocument,
    LogitsDocument,
    agreement_view,
    sentence,
)
from armload.report.evaluation.series import EvaluationView, variant_words
from armload.report.evaluation.table import between, evaluation_view
from armload.report.layout import whole
from armload.report.result import Part, Result, labelled

if TYPE_CHECKING:
    from armload.report.pages import Page


@dataclass(frozen=True, kw_only=True)
class EvaluationResult(Result):
    """An evaluation as far as it is answered, graded.

    Attributes:
        graders: the one that judges the answers; with a second one, they are compared.
        differing: what the two judge differently.
    """

    evaluated: EvaluationFolder
    points: Sequence[AccuracyPoint]
    graders: tuple[str, ...]
    differing: tuple[Disagreement, ...] = ()

    @classmethod
    def of(cls, evaluated: EvaluationFolder, *graders: str) -> EvaluationResult:
        """Grade the answers; without a grader, by the evaluation's own."""
        graders = graders or (evaluated.evaluation.grader,)
        points = points_of(evaluated, graders[0])
        differing: tuple[Disagreement, ...] = ()
        if len(graders) > 1:
            other = points_of(evaluated, graders[1])
            differing = disagreements(evaluated.questions, points, other)
        return cls(evaluated=evaluated, points=points, graders=graders, differing=differing)

    @cached_property
    def _view(self) -> EvaluationView:
        return EvaluationView.of(self.points)

    @property
    def home(self) -> Path | None:
        return self.evaluated.folder if any(point.attempts for point in self.points) else None

    def page(self, _folder: Path) -> Page:
        from armload.report.evaluation.page import evaluation_page

        if self.home is None:
            raise UsageError(
                f"{self.evaluated.evaluation.id} has no answers.",
                "Repeat its armload eval command.",
            )
        return evaluation_page(self.evaluated, self._view, self.graders[0])

    def document(self) -> EvaluationDocument:
        return EvaluationDocument.of(self.evaluated, self.points, self.graders[0], self.differing)

    def view(self) -> Iterator[Part]:
        yield evaluation_view(self._view)
        yield from how_asked(self.evaluated.evaluation.parts)
        yield from _seen_by(self.evaluated.evaluation.parts)
        yield ""
        yield from (each for group in self._view.groups for each in group.statements)
        yield from labelled(12, [("evaluation", self.evaluated.folder), *self.files.items()])
        if len(self.graders) > 1:
            yield ""
            names = " and ".join(self.graders)
            yield f"{names} disagree on {counted(len(self.differing), 'answer')}."
            yield from (self._disagreement(each) for each in self.differing)

    def _disagreement(self, each: Disagreement) -> str:
        found = [
            f"{name}: {'correct' if grade.correct else 'wrong'} "
            f"({grade.failure or grade.extracted or 'nothing found'})"
            for name, grade in zip(self.graders, (each.a, each.b), strict=True)
        ]
        end = " ".join(each.text.split())[-60:]
        variant = variant_words(each.prompt, is_told=each.is_told, concludes=each.concludes)
        budgets = ", ".join(map(str, each.budgets))
        return (
            f"question {each.question.id} to {each.model.removesuffix('.gguf')}, {variant}, budget "
            f"{budgets}, expected {each.question.expected}: {'; '.join(found)}: …{end}"
        )

    def check_answered(self) -> None:
        """Check that not every question failed.

        Raises:
            RunError: each did; says why, once.
        """
        reasons = [reason for point in self.points for reason in point.failed.values()]
        if reasons and not any(point.attempts for point in self.points):
            remedy = "See armload eval --help for the options that change it."
            if any(part.program for part in self.evaluated.evaluation.parts):
                runs = [source.run for source in self.evaluated.sources(0)]
                remedy = (
                    f"All that it wrote: armload show {runs[-1] if runs else 'RUN'}. To ask again: "
                    "--new."
                )
            raise RunError(f"No question was answered. The first one failed: {reasons[0]}.", remedy)


def _seen_by(parts: Sequence[EvaluatedPart]) -> list[str]:
    """Say by which projector each model saw the task's images."""
    found = (
        f"{part.model} saw images through {part.used_projector}."
        for part in parts
        if part.used_projector
    )
    return list(dict.fromkeys(found))


def missing_line(evaluated: EvaluationFolder) -> str:
    """Say how many questions a command did not ask; nothing where it asked all."""
    if evaluated.is_complete:
        return ""
    parts = range(len(evaluated.evaluation.parts))
    missing = sum(len(evaluated.missing(part)) for part in parts)
    return (
        f"{missing} of {len(parts) * len(evaluated.questions)} questions were not asked. Run "
        "the command again to continue."
    )


def regraded(reference: str, graders: Sequence[str]) -> EvaluationResult:
    """Grade an evaluation's answers again; with two graders, list where they disagree.

    One grader becomes the evaluation's own; with none, that one is asked.

    Raises:
        UsageError: no such evaluation or grader, or more than two graders.
    """
    evaluated = EvaluationFolder.find(reference)
    if len(graders) > 2:
        raise UsageError("--grader: more than two graders.", "Name one, or two to compare.")
    for name in graders:
        check_grader(name)
    result = EvaluationResult.of(evaluated, *graders)
    if len(graders) < 2:
        evaluated.grade_by(result.graders[0])
    return result


def accuracy_note(evaluated: EvaluationFolder) -> Note:
    """Return what says how many of the answers that came so far are correct."""
    questions = {question.id: question for question in evaluated.questions}
    evaluation = evaluated.evaluation
    graded: list[dict[str, bool]] = [{} for _ in evaluation.parts]

    def note(part: int, answers: Sequence[Answer]) -> str:
        known, asked = graded[part], evaluation.parts[part]
        for answer in answers:
            is_correct = is_answer_correct(answer, questions[answer.id], asked, evaluation.grader)
            if is_correct is not None:
                known[answer.id] = is_correct
        if not known:
            return ""
        accuracy = accuracy_of(list(known.values()))
        return f"{accuracy.share:.1%} correct ({between(accuracy.interval)})"

    return note


@dataclass(frozen=True, kw_only=True)
class LogitsResult(Result):
    """The logits of a model's prompts.

    Attributes:
        prompts: how many were given.
        found: how far they agree with the reference; none without one.
        must_be_close: it is an error where they are not.
    """

    folder: Path
    logits: Logits
    prompts: int
    found: Agreement | None
    must_be_close: bool

    @property
    def error(self) -> ArmloadError | None:
        # A prompt that failed on both sides is missing on neither.
        found = self.found
        if not self.must_be_close or found is None:
            return None
        if found.close >= self.prompts and not found.missing:
            return None
        return DifferentError(
            f"--fail-unless-close: not all of {counted(self.prompts, 'prompt')} are close. "
            f"{sentence(found)}",
            f"Look at the run: armload show {self.folder.name}",
        )

    def document(self) -> BaseModel:
        return LogitsDocument(
            run=self.folder.name,
            prompts=len(self.logits.rows),
            failed=self.logits.failed,
            agreement=self.found,
        )

    def view(self) -> Iterator[Part]:
        if self.found:
            yield agreement_view(self.found)
        for number, error in self.logits.failed.items():
            yield f"Prompt {number} has no logits: {error}. {TOO_LONG}"
        yield whole(f"run  {self.folder}")
