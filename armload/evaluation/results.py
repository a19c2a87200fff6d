"""From answers to figures: each answer at each budget, graded or compared by likelihood."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, PlainSerializer, computed_field

from armload.analysis.accuracy import Accuracy, accuracy_of
from armload.analysis.output_doubts import DegenerateText, TextDiffers
from armload.analysis.run import Run
from armload.core.values import Value, counted
from armload.engines.answers import (
    FailedAnswer,
    GeneratedAnswer,
    LikelihoodAnswer,
    PrintedAnswer,
    Stop,
    ThoughtTags,
)
from armload.evaluation.answer_energy import AnswerPower, power_of
from armload.evaluation.grading.registry import grade
from armload.evaluation.question import LETTERS, Question
from armload.evaluation.record import (
    AnswerSource,
    Evaluation,
    EvaluationFolder,
    Part,
    UsedProjector,
)

ABOUT_TEXT: tuple[str, ...] = (DegenerateText.name, TextDiffers.name)
"""Findings on what was written, which takes as long whatever it says."""


def doubts_about_answers(
    evaluation: Evaluation, sources: Sequence[AnswerSource]
) -> tuple[str, ...]:
    """Return what was found in the runs of a part, and in the way in which it was asked."""
    found = [doubt for source in sources for doubt in source.doubts or ()]
    if evaluation.parallel > 1:
        found.append(
            f"Questions were answered concurrently (--parallel {evaluation.parallel}), so each "
            "took longer than it would alone."
        )
    boards = boards_of(evaluation, sources)
    if len(boards) > 1:
        found.append(f"They come from several boards: {', '.join(boards)}.")
    return tuple(dict.fromkeys(found))


def boards_of(evaluation: Evaluation, sources: Sequence[AnswerSource]) -> tuple[str, ...]:
    """Return the boards that answered a part; where no run is known, those that were asked."""
    return tuple(sorted({source.board for source in sources} or set(evaluation.boards)))


def doubts_about_runs(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return what was found in runs that times are taken from."""
    return tuple(
        f"Do not rely on the times of {run.id}: {finding.sentence}"
        for run in runs
        for finding in run.verdict.findings
        if finding.name not in ABOUT_TEXT
    )


class GradedAttempt(Value):
    """One question's answer, as it stood at a budget.

    Attributes:
        question: its id.
        prompt_tokens: before it.
        tokens: generated until then.
        seconds: from the start of its prompt until the last of them.
        first_token_s: until the first of them; 0 without one.
        text: of the answer until then; of a choice, the choice.
        extracted: what the grader took for the answer; none where it found nothing.
        is_correct: whether that is right.
        failure: why the grader came to no result; then the answer counts as wrong.
        is_boxed: whether there was a closed box.
        stop: what ended it; none for choices.
        is_thinking: its reasoning section is not finished, so that nothing of it is graded.
        thought_tags: what encloses that section.
    """

    question: str
    prompt_tokens: int
    tokens: int
    seconds: float
    first_token_s: float = 0.0
    text: str
    extracted: str | None
    is_correct: bool
    failure: str = ""
    is_boxed: bool = False
    stop: Stop | None = None
    is_thinking: bool = False
    thought_tags: ThoughtTags = ThoughtTags()

    @property
    def is_finished(self) -> bool:
        """Whether the model ended it by itself."""
        return self.stop in ("end", "stop")

    @property
    def is_out_of_context(self) -> bool:
        """Whether it ended before the budget because the context was full."""
        return self.stop == "context"

    @property
    def graded_text(self) -> str:
        """What graders get of it."""
        return "" if self.is_thinking else self.text


AsCount = PlainSerializer(len, return_type=int)
"""In JSON only how many there are."""


class AccuracyPoint(Value):
    """What a model gets right in one way, within one budget; as JSON, without its answers.

    Attributes:
        model, prompt, is_told, concludes: as in the evaluation's part.
        budget: tokens; none for choices.
        projector: by which it saw the task's images; none without images.
        attempts: one for each answered question.
        failed: why questions have no answer, by their ids; in JSON, how many they are.
        accuracy: share of answers that are right, with Wilson's interval.
        normalised: for choices, the same by log-likelihood per character.
        boards: that answered.
        doubts: why the times are not reliable.
        power: what its answers took from the supply; none without a power meter.
    """

    model: str
    prompt: str
    is_told: bool = False
    concludes: bool = False
    budget: int | None = None
    projector: UsedProjector | None = None
    attempts: tuple[GradedAttempt, ...] = Field(exclude=True)
    failed: Annotated[Mapping[str, str], AsCount] = {}
    accuracy: Accuracy | None = None
    normalised: Accuracy | None = None
    boards: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    power: AnswerPower | None = None

    @computed_field
    @property
    def questions(self) -> int:
        """How many are answered."""
        return len(self.attempts)

    @computed_field
    @property
    def correct(self) -> int:
        """How many are right."""
        return sum(each.is_correct for each in self.attempts)

    @computed_field
    @property
    def ungraded(self) -> Annotated[tuple[GradedAttempt, ...], AsCount]:
        """Answers of which the grader made nothing; they count as wrong. In JSON, their number."""
        return tuple(each for each in self.attempts if each.failure)

    @computed_field
    @property
    def out_of_context(self) -> Annotated[tuple[GradedAttempt, ...], AsCount]:
        """Answers that the full context ended before the budget. In JSON, their number."""
        return tuple(each for each in self.attempts if each.is_out_of_context)

    @computed_field
    @property
    def boxed_share(self) -> float:
        """Share of answers with a closed box."""
        return sum(each.is_boxed for each in self.attempts) / max(1, len(self.attempts))

    @computed_field
    @property
    def mean_tokens(self) -> float:
        """Tokens of an answer."""
        return statistics.fmean(each.tokens for each in self.attempts) if self.attempts else 0.0

    @computed_field
    @property
    def mean_s(self) -> float:
        """Seconds of an answer."""
        return statistics.fmean(each.seconds for each in self.attempts) if self.attempts else 0.0


def points_of(evaluated: EvaluationFolder, grader: str = "") -> list[AccuracyPoint]:
    """Grade every answer at every budget.

    Args:
        grader: other than the evaluation's own.
    """
    grader = grader or evaluated.evaluation.grader
    return [
        point
        for number, part in enumerate(evaluated.evaluation.parts)
        for point in _points(evaluated, number, part, grader)
    ]


def doubts_in(points: Sequence[AccuracyPoint]) -> tuple[str, ...]:
    """Say of which models the times are not reliable, and why: each kind of reason once."""
    kinds: dict[str, dict[str, None]] = {}
    models: dict[str, dict[str, None]] = {}
    for point in points:
        for doubt in point.doubts:
            kind = re.sub(r"\d.*", "", doubt, flags=re.DOTALL)
            kinds.setdefault(kind, {})[doubt] = None
            models.setdefault(kind, {})[point.model.removesuffix(".gguf")] = None
    return tuple(
        f"Do not rely on the times of {' and '.join(models[kind])}: {next(iter(found))}"
        + (f" And {counted(len(found) - 1, 'similar finding')}." if len(found) > 1 else "")
        for kind, found in kinds.items()
    )


def is_answer_correct(answer: object, question: Question, part: Part, grader: str) -> bool | None:
    """Say whether an answer is right at the largest budget; none for one that failed."""
    if isinstance(answer, GeneratedAnswer):
        return _attempt(answer, question, part.max_tokens, part, grader).is_correct
    if isinstance(answer, PrintedAnswer):
        return _printed(answer, question, part.max_tokens, grader).is_correct
    if isinstance(answer, LikelihoodAnswer):
        return _choice(answer, question)[0].is_correct
    return None


def _points(
    evaluated: EvaluationFolder, number: int, part: Part, grader: str
) -> list[AccuracyPoint]:
    questions = {question.id: question for question in evaluated.questions}
    answers = evaluated.answers(number)
    budgets: Sequence[int | None] = part.budgets or (None,)
    points = [_point(questions, part, answers, budget, grader) for budget in budgets]
    about = evaluated.evaluation, evaluated.sources(number)
    answering_s = sum(each.seconds for each in points[-1].attempts)
    found = {
        "boards": boards_of(*about),
        "doubts": doubts_about_answers(*about),
        "power": power_of(about[1], answering_s),
    }
    return [point.model_copy(update=found) for point in points]


def _point(
    questions: Mapping[str, Question],
    part: Part,
    answers: Sequence[object],
    budget: int | None,
    grader: str,
) -> AccuracyPoint:
    attempts: list[GradedAttempt] = []
    normalised: list[bool] = []
    failed = {}
    for answer in answers:
        if isinstance(answer, FailedAnswer):
            failed[answer.id] = answer.error
        elif isinstance(answer, GeneratedAnswer) and budget is not None:
            attempts.append(_attempt(answer, questions[answer.id], budget, part, grader))
        elif isinstance(answer, PrintedAnswer) and budget is not None:
            attempts.append(_printed(answer, questions[answer.id], budget, grader))
        elif isinstance(answer, LikelihoodAnswer):
            attempt, is_normalised_right = _choice(answer, questions[answer.id])
            attempts.append(attempt)
            normalised.append(is_normalised_right)
    return AccuracyPoint(
        model=part.model,
        prompt=part.prompt,
        is_told=part.is_told,
        concludes=part.concludes,
        budget=budget,
        projector=part.used_projector,
        attempts=tuple(attempts),
        failed=failed,
        accuracy=accuracy_of([each.is_correct for each in attempts]) if attempts else None,
        normalised=accuracy_of(normalised) if normalised else None,
    )


def _attempt(
    answer: GeneratedAnswer, question: Question, budget: int, part: Part, grader: str
) -> GradedAttempt:
    # What a conclusion adds belongs to the budget that it ends.
    tokens = len(answer.tokens) if part.concludes else min(budget, len(answer.tokens))
    text = answer.text_after(tokens)
    # Where the chat template opens the reasoning section, its beginning is not in the text.
    is_thinking = tokens < answer.think_tokens or (
        answer.thinks_from_start and answer.think_tokens == 0
    )
    found = grade(grader, "" if is_thinking else text, question, answer.thought_tags)
    times_ns = answer.times_ns[:tokens] or (answer.start_ns,)
    return GradedAttempt(
        question=question.id,
        prompt_tokens=answer.prompt_tokens,
        tokens=tokens,
        seconds=(times_ns[-1] - answer.start_ns) / 1e9,
        first_token_s=(times_ns[0] - answer.start_ns) / 1e9,
        text=text,
        extracted=found.extracted,
        is_correct=found.correct,
        failure=found.failure,
        is_boxed=found.boxed,
        stop=answer.stop if tokens == len(answer.tokens) else "budget",
        is_thinking=is_thinking,
        thought_tags=answer.thought_tags,
    )


def _printed(answer: PrintedAnswer, question: Question, budget: int, grader: str) -> GradedAttempt:
    found = grade(grader, answer.text, question, ThoughtTags())
    return GradedAttempt(
        question=question.id,
        prompt_tokens=answer.prompt_tokens,
        tokens=answer.tokens,
        seconds=answer.seconds,
        first_token_s=answer.first_token_s,
        text=answer.text,
        extracted=found.extracted,
        is_correct=found.correct,
        failure=found.failure,
        is_boxed=found.boxed,
        stop="budget" if answer.tokens >= budget else "end",
    )


def _choice(answer: LikelihoodAnswer, question: Question) -> tuple[GradedAttempt, bool]:
    graded = grade_choices(question, [each.log_likelihood for each in answer.continuations])
    chosen = question.choices[LETTERS.index(graded.chosen)]
    attempt = GradedAttempt(
        question=question.id,
        prompt_tokens=answer.context_tokens,
        tokens=sum(len(each.tokens) for each in answer.continuations),
        seconds=(answer.end_ns - answer.start_ns) / 1e9,
        text=chosen,
        extracted=graded.chosen,
        is_correct=graded.acc,
    )
    return attempt, graded.acc_norm


class ChoiceGrade(Value):
    """What a model chose, by two measures.

    Attributes:
        chosen: letter of the choice with the largest log-likelihood.
        chosen_norm: of the one with the largest log-likelihood per character.
        acc, acc_norm: whether they are right.
    """

    chosen: str
    chosen_norm: str
    acc: bool
    acc_norm: bool


def grade_choices(question: Question, log_likelihoods: Sequence[float]) -> ChoiceGrade:
    """Grade a question from the log-likelihoods of its choices.

    They are those of task type ``multiple_choice`` in lm-evaluation-harness 0.4.13: the length of
    a choice is in characters (code points), without the delimiter before it, although the
    log-likelihood includes the delimiter. Of equal choices the first counts.

    Args:
        log_likelihoods: of each choice, the sum over its tokens.

    Raises:
        ValueError: there is not one for each choice.
    """
    pairs = list(zip(log_likelihoods, question.choices, strict=True))
    chosen = _first_largest([total for total, _ in pairs])
    chosen_norm = _first_largest([total / len(choice) for total, choice in pairs])
    return ChoiceGrade(
        chosen=chosen,
        chosen_norm=chosen_norm,
        acc=chosen == question.expected,
        acc_norm=chosen_norm == question.expected,
    )


def _first_largest(figures: Sequence[float]) -> str:
    return LETTERS[figures.index(max(figures))]
