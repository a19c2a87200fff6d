"""Questions to a program that armload did not build, one process for each, graded like any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from armload.build.inspection import Inspection
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.shell import join
from armload.core.values import Value
from armload.deploy.follow import ProgressUpdate
from armload.deploy.payload import Payload, read_payload
from armload.engines.watched.asked import (
    BUDGET,
    AskedProgram,
    QuestionPlan,
    check_askable,
    parse_texts,
    words_for,
    write_questions,
)
from armload.engines.watched.command import Script
from armload.engines.watched.engine import WatchedProgram, WatchRequest, look_at
from armload.evaluation.items import Message, render
from armload.evaluation.question import Question
from armload.evaluation.record import AnsweringProgram, Part, Template
from armload.evaluation.scorer_run import EvaluationRun, Note
from armload.evaluation.task import Task

if TYPE_CHECKING:
    from armload.evaluation.sides import TradeoffSide


class ProgramRequest(Value):
    """A program that is to answer.

    Attributes:
        watch: what is run, with places for question and budget in its words.
        limit_s: for one question.
    """

    watch: WatchRequest
    limit_s: int


@dataclass(frozen=True, kw_only=True)
class LoadedProgram:
    """A program with what it needs on a board, read."""

    request: ProgramRequest
    payload: tuple[Payload, ...]
    program: Inspection | Script | str

    @classmethod
    def of(cls, request: ProgramRequest, progress: Progress) -> LoadedProgram:
        """Look at the program, and read what is to be put on the board.

        Raises:
            UsageError, DataError: as for ``look_at`` and ``read_payload``.
        """
        program = look_at(request.watch)
        payload = tuple(read_payload(path, progress) for path in request.watch.put)
        return cls(request=request, payload=payload, program=program)

    def parts(
        self,
        task: Task,
        prompts: Sequence[str],
        budgets: Sequence[int],
        told: Sequence[bool],
        template: Template,
        *,
        is_said: bool,
    ) -> list[Part]:
        """Return what it is asked: in each way for each budget, as its answers cannot be cut.

        Args:
            is_said: a person named the one budget.

        Raises:
            UsageError: nobody says how long an answer may be.
        """
        words = self.request.watch.words
        if not is_said and not any(BUDGET in each for each in words):
            raise UsageError(
                f"Nothing says how many tokens {words[0]} may generate.",
                f"Put {BUDGET} into its arguments, such as -n {BUDGET}, or say with --budget N "
                "what its own arguments allow.",
            )
        subject = WatchedProgram(self.request.watch, self.payload, self.program).subject
        record = AnsweringProgram(
            words=words,
            reader=self.request.watch.reader,
            files=subject.watched.files if subject.watched else (),
            limit_s=self.request.limit_s,
        )
        program_and_file = filter(None, [record.name, subject.model.name])
        model = self.request.watch.name or "/".join(program_and_file)
        return [
            Part(
                model=model,
                model_sha256=subject.model.sha256,
                model_reference=model,
                prompt=name,
                budgets=(budget,),
                is_told=is_told,
                template=template,
                system_in_user=bool(task.prompt(name).system) and template != "chatml",
                program=record,
            )
            for name in prompts
            for is_told in told
            for budget in budgets
        ]

    def check(self, task: Task, parts: Sequence[Part], questions: Sequence[Question]) -> None:
        """Refuse what could not be asked, before anything is copied."""
        texts = (question_text(task, part, each) for part in parts for each in questions)
        watch = self.request.watch
        check_askable(watch.reader, watch.words, max(texts, key=lambda text: len(text.encode())))

    def engine(
        self,
        task: Task,
        part: Part,
        questions: Sequence[Question],
        path: Path,
        *,
        evaluation: str,
        note: Note,
        max_time_s: float | None,
    ) -> TimedProgram:
        """Return what asks questions.

        Args:
            path: of the file that they are written to.
            evaluation, note, max_time_s: as for ``TimedProgram``.
        """
        words = words_for(self.request.watch.words, part.max_tokens)
        texts = ((each.id, question_text(task, part, each)) for each in questions)
        return TimedProgram(
            self.request.watch.model_copy(update={"words": words, "n_predict": part.max_tokens}),
            self.payload,
            self.program,
            write_questions(texts, path),
            QuestionPlan(questions=len(questions), limit_s=self.request.limit_s, stop=task.stop),
            evaluation=evaluation,
            note=note,
            max_time_s=max_time_s,
        )


class TimedProgram(EvaluationRun, AskedProgram):
    """A program as an evaluation asks it: with its accuracy so far, and an end in time.

    Args:
        evaluation, max_time_s: as for ``EvaluationRun``.
        note: is given the answers so far, of which only the texts are known.
    """

    def __init__(
        self,
        request: WatchRequest,
        payload: Sequence[Payload],
        program: Inspection | Script | str,
        questions: Path,
        plan: QuestionPlan,
        *,
        evaluation: str,
        note: Note,
        max_time_s: float | None,
    ) -> None:
        super().__init__(request, payload, program, questions, plan)
        self._is_for(evaluation, note, max_time_s)

    def note(self, now: ProgressUpdate) -> str:
        """Return the accuracy so far."""
        return self._note(tuple(parse_texts(now.new_lines, self._request.reader)))


def question_text(task: Task, part: Part, question: Question) -> str:
    """Return what the program gets: the user's message, or a whole chat in ChatML."""
    messages = render(
        *(task.prompt(part.prompt), question, part.max_tokens),
        tell=part.is_told,
        system_in_user=part.system_in_user,
    )
    if part.template == "chatml":
        return _chatml(messages)
    return "\n".join(each.content for each in messages)


def _chatml(messages: Sequence[Message]) -> str:
    turns = (f"<|im_start|>{each.role}\n{each.content}<|im_end|>\n" for each in messages)
    return "".join((*turns, "<|im_start|>assistant\n"))


def how_asked(parts: Sequence[Part]) -> list[str]:
    """Say of each program that answered how it was asked, and how its answers were found."""
    found = {
        f"{part.model}: answered by {join(part.program.words)}, a process for each question, read "
        f"by the reader {part.program.reader.name}. {_own(part)} and context are the program's own."
        for part in parts
        if part.program
    }
    return sorted(found)


def _own(part: Part) -> str:
    return "Asked in ChatML; sampling" if part.template == "chatml" else "Template, sampling"


def unequal(a: TradeoffSide, b: TradeoffSide) -> tuple[str, ...]:
    """Say what is not equal, or not known to be, of two models that answered the same questions."""
    seen = _unequal_projectors(a, b)
    if a.program is None and b.program is None:
        return seen
    weights = "the same file" if a.model_sha256 == b.model_sha256 else "files that differ"
    return (
        *seen,
        f"Chat template: {a.model}: {_template(a)}; {b.model}: {_template(b)}.",
        f"Sampling: {a.model}: {_sampling(a)}; {b.model}: {_sampling(b)}.",
        f"Weights and their type: {weights}.",
        *(
            f"Context and KV cache of {each.model}: its own, unknown to armload."
            for each in (a, b)
            if each.program
        ),
        *(
            f"Times of {each.model}: as {each.program.name} prints them, without loading the model."
            for each in (a, b)
            if each.program
        ),
    )


def _unequal_projectors(a: TradeoffSide, b: TradeoffSide) -> tuple[str, ...]:
    """Say by which projectors one model saw images twice; of two models, what limits their tokens.

    Two models have a projector each.
    """
    limits = [side.projector and side.projector.image_max_tokens for side in (a, b)]
    if a.projector == b.projector or (a.model_sha256 != b.model_sha256 and limits[0] == limits[1]):
        return ()
    seen = (f"{side.evaluation}: {side.projector or 'none'}" for side in (a, b))
    return (f"Projector: {'; '.join(seen)}.",)


def _template(side: TradeoffSide) -> str:
    if side.template == "chatml":
        return "ChatML"
    if side.program is not None:
        return f"what {side.program.name} applies to the text"
    return "none" if side.template == "none" else "that of the model's file"


def _sampling(side: TradeoffSide) -> str:
    return "greedy" if side.program is None else f"as in {join(side.program.words)}"
