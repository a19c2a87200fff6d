"""An evaluation: what is asked of which models, and the answers that are there so far.

It lies in ``evaluations/<id>/``: ``evaluation.json`` says what is asked, ``questions.jsonl`` holds
the questions, and ``answers-<part>.jsonl`` one line for each answer. The answers came from runs
like any other, and stay when those are deleted; ``sources.jsonl`` says which runs, and why their
times are not reliable.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import date
from functools import cached_property
from pathlib import Path, PurePath
from typing import Literal, Self

from armload.analysis.energy import Energy
from armload.core.errors import DataError
from armload.core.files import write_whole
from armload.core.ids import begins_now, fingerprint_of
from armload.core.journal import CommandHeader, CommandJournal, JournalKind
from armload.core.json_lines import append_lines, write_lines
from armload.core.values import Value
from armload.core.workspace import evaluations_folder
from armload.engines.answers import Answer, AnswerLine
from armload.engines.job import PutFile
from armload.engines.watched.reader import Reader, program_word
from armload.evaluation.question import Question

Template = Literal["model", "chatml", "none"]
"""A chat template: the one in the model's file, ChatML's, or none at all."""

QUESTIONS_FILE, SOURCES_FILE, SHOWN_FILE = "questions.jsonl", "sources.jsonl", ".shown"


class AnsweringProgram(Value):
    """A program that armload did not build, as it was asked.

    Attributes:
        words: the program and its arguments, as a person gave them.
        reader: of its output.
        files: that were copied for it.
        limit_s: after which it was ended.
    """

    words: tuple[str, ...]
    reader: Reader
    files: tuple[PutFile, ...]
    limit_s: int

    @property
    def name(self) -> str:
        """Of the program."""
        return PurePath(program_word(self.words)).name


class UsedProjector(Value):
    """By which projector a model saw a task's images.

    Attributes:
        file, sha256: its name, and its checksum.
        image_max_tokens: of one image; none for the projector's own limit.
    """

    file: str
    sha256: str
    image_max_tokens: int | None = None

    def __str__(self) -> str:
        limit = f", at most {self.image_max_tokens} tokens an image"
        return f"{self.file}{limit if self.image_max_tokens else ''}, SHA-256 {self.sha256}"


class Part(Value):
    """What one model is asked in one way; each of its answers gives a point for each budget.

    Attributes:
        model, model_sha256: the file's name, and its checksum.
        model_reference: as it was named, such as ``hf:ORG/REPO/FILE.gguf``.
        prompt: the name of the task's prompt.
        budgets: tokens after which the answer counts as it is then; none for choices.
        is_told: whether the prompt states the budget.
        concludes: whether the model is made to commit to an answer at the end of the budget.
        template: how messages become text, as in the scorer's items.
        system_in_user: whether the task's system message stands at the beginning of the user's,
            because the model's template rejects one.
        projector, projector_sha256: by which it sees the task's images, its file's name and
            checksum; empty where there are none.
        image_max_tokens: of one image; none for the projector's own limit.
        program: that answers; none for armload's scorer.
    """

    model: str
    model_sha256: str
    model_reference: str
    prompt: str
    budgets: tuple[int, ...] = ()
    is_told: bool = False
    concludes: bool = False
    template: Template = "model"
    system_in_user: bool = False
    projector: str = ""
    projector_sha256: str = ""
    image_max_tokens: int | None = None
    program: AnsweringProgram | None = None

    @property
    def used_projector(self) -> UsedProjector | None:
        """By which it sees the task's images; none where there are none."""
        if not self.projector:
            return None
        return UsedProjector(
            file=self.projector,
            sha256=self.projector_sha256,
            image_max_tokens=self.image_max_tokens,
        )

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """Name and checksum of the model's file, and of the projector's where it sees images."""
        projector = ((self.projector, self.projector_sha256),) if self.projector else ()
        return ((self.model, self.model_sha256), *projector)

    @property
    def max_tokens(self) -> int:
        """The longest answer."""
        return max(self.budgets, default=0)


def files_of(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return names and checksums of all models and projectors, each once."""
    return list(dict.fromkeys(file for part in parts for file in part.files))


class Evaluation(CommandHeader):
    """What is asked.

    Attributes:
        fingerprint: a checksum over all that decides the answers, however they are graded.
        boards: their names.
        task: its name.
        kind: answers are generated, or the likelihoods of choices are compared.
        grader: that judges generated answers; it may be changed later.
        parallel: items per pass over the weights.
        questions: how many.
        template_date: that chat templates were given; none where no answers are generated.
    """

    format: Literal[1] = 1
    boards: tuple[str, ...]
    task: str
    kind: Literal["generate", "multiple-choice"]
    grader: str
    parallel: int
    questions: int
    template_date: date | None
    parts: tuple[Part, ...]


class AnswerSource(Value):
    """A run that answered questions.

    Attributes:
        run: its id.
        part: of the evaluation.
        board: its name.
        doubts: why its times are not reliable; none while it has no verdict.
        energy: what it took, without the single samples; none without a power meter.
    """

    run: str
    part: int
    board: str
    doubts: tuple[str, ...] | None = None
    energy: Energy | None = None


class EvaluationFolder(CommandJournal[Evaluation, AnswerLine]):
    """An evaluation with its answers, in a file for each part."""

    kind = JournalKind(
        noun="evaluation",
        words=("eval",),
        header=Evaluation,
        entry=AnswerLine,
        entries_file="answers-{}.jsonl",
        root=evaluations_folder,
        make="armload eval",
        repair="Use --new to start the evaluation again.",
    )

    def __init__(self, folder: Path, header: Evaluation) -> None:
        super().__init__(folder, header)
        self._writing = threading.Lock()

    @classmethod
    def begin_with(cls, evaluation: Evaluation, questions: Sequence[Question]) -> Self:
        write_lines(evaluations_folder() / evaluation.id / QUESTIONS_FILE, questions)
        return cls.begin(evaluation)

    @property
    def evaluation(self) -> Evaluation:
        return self.header

    @property
    def is_finished(self) -> bool:
        """Whether it is complete, and a command has come to its end with it."""
        return self.is_complete and (self.folder / SHOWN_FILE).exists()

    @property
    def is_complete(self) -> bool:
        """Whether every question of every part is answered."""
        return not any(self.missing(part) for part in range(len(self.header.parts)))

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The questions, in their order."""
        path = self.folder / QUESTIONS_FILE
        questions = tuple(self.kind.read_lines(path, Question))
        if len(questions) != self.header.questions:
            raise DataError(
                f"{path}: there are {len(questions)} of {self.header.questions} questions.",
                f"The file was modified. {self.kind.repair}",
            )
        return questions

    def answers(self, part: int) -> list[Answer]:
        """Return a part's answers, in the order of the questions."""
        known = self._answers(part)
        return [known[each.id] for each in self.questions if each.id in known]

    def missing(self, part: int) -> list[Question]:
        """Return the questions of a part that have no answer yet."""
        known = self._answers(part)
        return [each for each in self.questions if each.id not in known]

    def sources(self, part: int) -> list[AnswerSource]:
        """Return the runs that answered a part, as far as that was noted."""
        return [source for source in self._sources.values() if source.part == part]

    def source(self, run: str) -> AnswerSource | None:
        """Return what is noted of a run; none where nothing is."""
        return self._sources.get(run)

    def add(self, part: int, answers: Sequence[Answer], source: AnswerSource | None = None) -> None:
        """Keep answers durably; one that is there already stays.

        Args:
            source: the run that they came from.
        """
        with self._writing:
            if source is not None and answers and self._sources.get(source.run) != source:
                append_lines(self.folder / SOURCES_FILE, [source])
                self._sources[source.run] = source
            unanswered = {question.id for question in self.missing(part)}
            new = {answer.id: answer for answer in answers if answer.id in unanswered}
            if new:
                self.append(*map(AnswerLine, new.values()), number=part)

    def grade_by(self, grader: str) -> None:
        """Have the answers graded by this grader from now on."""
        if grader != self.header.grader:
            self.rewrite_header(self.header.model_copy(update={"grader": grader}))

    def note_shown(self) -> None:
        """Note that a command has come to its end with it."""
        write_whole(self.folder / SHOWN_FILE, b"")

    def _answers(self, part: int) -> dict[str, Answer]:
        return {line.root.id: line.root for line in self.entries_of(part)}

    @cached_property
    def _sources(self) -> dict[str, AnswerSource]:
        # What is found later about a run follows what was known before.
        lines = self.kind.read_lines(self.folder / SOURCES_FILE, AnswerSource)
        return {source.run: source for source in lines}


def new_evaluation(
    *,
    boards: Sequence[str],
    task: str,
    kind: Literal["generate", "multiple-choice"],
    grader: str,
    parallel: int,
    questions: Sequence[Question],
    parts: Sequence[Part],
    template_date: date | None,
    decisive: Sequence[str],
) -> Evaluation:
    """Describe an evaluation that starts now.

    Args:
        decisive: further texts that decide the answers: rendered prompts, options.
    """
    given = (each.model_dump_json() for each in (*questions, *parts))
    words = (task, kind, *given, *decisive)
    return Evaluation(
        **begins_now("eval", task),
        fingerprint=fingerprint_of(words),
        boards=tuple(boards),
        task=task,
        kind=kind,
        grader=grader,
        parallel=parallel,
        questions=len(questions),
        template_date=template_date,
        parts=tuple(parts),
    )
