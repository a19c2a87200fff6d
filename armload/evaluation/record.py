"""An evaluation: what is asked of which models, and the answers that are there so far.

It lies in ``evaluations/<id>/``: ``evaluation.json`` says what is asked, ``questions.jsonl`` holds
the questions, and ``answers-<part>.jsonl`` one line for each answer. The answers came from runs
like any other, and stay when those are deleted; ``sources.jsonl`` says which runs, and why their
times are not reliable.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

from armload import __version__
from armload.core.errors import DataError
from armload.core.files import content, unreadable, write_whole
from armload.core.ids import fingerprint_of, new_id
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.results import Results
from armload.core.values import Value
from armload.core.workspace import evaluations_folder
from armload.engines.answers import Answer, read_answers
from armload.evaluation.question import Question
from armload.evaluation.sources import Source

Template = Literal["model", "chatml", "none"]
"""A chat template: the one in the model's file, ChatML's, or none at all."""

EVALUATION_FILE, QUESTIONS_FILE, SHOWN_FILE = "evaluation.json", "questions.jsonl", ".shown"
SOURCES_FILE = "sources.jsonl"

EVALUATIONS = Results(
    noun="evaluation",
    word="eval",
    file=EVALUATION_FILE,
    newest_format=1,
    root=evaluations_folder,
    make="armload eval",
    repair="Use --new to start the evaluation again.",
)


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
    """

    model: str
    model_sha256: str
    model_reference: str
    prompt: str
    budgets: tuple[int, ...] = ()
    is_told: bool = False
    concludes: bool = False
    template: Template = "model"

    @property
    def max_tokens(self) -> int:
        """The longest answer."""
        return max(self.budgets, default=0)


class Evaluation(Value):
    """What is asked.

    Attributes:
        id: the folder's name.
        fingerprint: a checksum over all that decides the answers; two evaluations of the same one
            have the same answers, however they are graded.
        boards: their names.
        task: its name.
        kind: answers are generated, or the likelihoods of choices are compared.
        grader: that judges generated answers; it may be changed later.
        parallel: items per pass over the weights.
        questions: how many.
        template_date: that chat templates were given; none where no answers are generated.
    """

    format: Literal[1] = 1
    id: str
    fingerprint: str
    started_utc: str
    armload: str
    boards: tuple[str, ...]
    task: str
    kind: Literal["generate", "multiple-choice"]
    grader: str
    parallel: int
    questions: int
    template_date: date | None
    parts: tuple[Part, ...]


class Evaluated:
    """An evaluation's folder.

    Attributes:
        folder: where it lies.
        evaluation: what is asked.
        questions: in their order.
    """

    def __init__(self, folder: Path, evaluation: Evaluation, questions: Sequence[Question]) -> None:
        self.folder = folder
        self.evaluation = evaluation
        self.questions = tuple(questions)
        self._writing = threading.Lock()
        self._answers = [
            {answer.id: answer for answer in _read_answers(self._answers_file(number))}
            for number in range(len(evaluation.parts))
        ]
        self._sources = {source.run: source for source in _read_sources(folder)}

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Hold the evaluation's lock within the block."""
        words = f"{self.evaluation.id} is running in another terminal. Waiting for it."
        with locked(self.folder / ".lock", progress, waiting=words):
            yield

    def answers(self, part: int) -> list[Answer]:
        """Return a part's answers, in the order of the questions."""
        known = self._answers[part]
        return [known[each.id] for each in self.questions if each.id in known]

    def missing(self, part: int) -> list[Question]:
        """Return the questions of a part that have no answer yet."""
        return [each for each in self.questions if each.id not in self._answers[part]]

    def sources(self, part: int) -> list[Source]:
        """Return the runs that answered a part, as far as that was noted."""
        return [source for source in self._sources.values() if source.part == part]

    def source(self, run: str) -> Source | None:
        """Return what is noted of a run; none where nothing is."""
        return self._sources.get(run)

    def add(self, part: int, answers: Sequence[Answer], source: Source | None = None) -> int:
        """Keep answers durably; one that is there already stays. Return how many are new.

        Args:
            source: the run that they came from.
        """
        with self._writing:
            if source is not None and answers and self._sources.get(source.run) != source:
                self._sources[source.run] = source
                noted = "".join(f"{each.model_dump_json()}\n" for each in self._sources.values())
                write_whole(self.folder / SOURCES_FILE, noted.encode())
            known = self._answers[part]
            asked = {question.id for question in self.questions}
            new = {
                answer.id: answer
                for answer in answers
                if answer.id not in known and answer.id in asked
            }
            if new:
                known.update(new)
                lines = "".join(f"{answer.model_dump_json()}\n" for answer in known.values())
                write_whole(self._answers_file(part), lines.encode())
            return len(new)

    def grade_by(self, grader: str) -> None:
        """Have the answers graded by this grader from now on."""
        if grader != self.evaluation.grader:
            self.evaluation = self.evaluation.model_copy(update={"grader": grader})
            _write_evaluation(self.folder, self.evaluation)

    @property
    def was_shown(self) -> bool:
        """Whether a command has come to its end with it."""
        return (self.folder / SHOWN_FILE).exists()

    def note_shown(self) -> None:
        """Note that a command has come to its end with it."""
        write_whole(self.folder / SHOWN_FILE, b"")

    @property
    def is_complete(self) -> bool:
        """Whether every question of every part is answered."""
        return not any(self.missing(part) for part in range(len(self.evaluation.parts)))

    def _answers_file(self, part: int) -> Path:
        return self.folder / f"answers-{part}.jsonl"


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
    asked = [question.model_dump_json() for question in questions]
    words = (task, kind, *asked, *(part.model_dump_json() for part in parts), *decisive)
    now = datetime.now(UTC)
    return Evaluation(
        id=new_id(now, "eval", task),
        fingerprint=fingerprint_of(words),
        started_utc=now.isoformat(timespec="seconds"),
        armload=__version__,
        boards=tuple(boards),
        task=task,
        kind=kind,
        grader=grader,
        parallel=parallel,
        questions=len(questions),
        template_date=template_date,
        parts=tuple(parts),
    )


def begin(evaluation: Evaluation, questions: Sequence[Question]) -> Evaluated:
    """Make the folder of an evaluation."""
    folder = evaluations_folder() / evaluation.id
    lines = "".join(f"{question.model_dump_json()}\n" for question in questions)
    write_whole(folder / QUESTIONS_FILE, lines.encode())
    _write_evaluation(folder, evaluation)
    return Evaluated(folder, evaluation, questions)


def unfinished(evaluation: Evaluation, progress: Progress) -> Evaluated | None:
    """Return the latest evaluation of the same command, unless it is complete and was shown."""
    for folder in reversed(EVALUATIONS.folders()):
        try:
            earlier = EVALUATIONS.read(folder / EVALUATION_FILE, Evaluation)
            if earlier.fingerprint != evaluation.fingerprint:
                continue
            found = load_evaluation(folder)
        except DataError as error:
            progress.say(f"skipped: {error.message}")
        else:
            return None if found.is_complete and found.was_shown else found
    return None


def find_evaluation(reference: str) -> Evaluated:
    """Return the evaluation that a person means.

    Raises:
        UsageError, DataError, DiskError: as for ``Results.find`` and ``load_evaluation``.
    """
    return load_evaluation(EVALUATIONS.find(reference))


def load_evaluation(folder: Path) -> Evaluated:
    """Read an evaluation's folder.

    Raises:
        DataError: a file in it was changed, or is of a newer format.
        DiskError: one cannot be read.
    """
    evaluation = EVALUATIONS.read(folder / EVALUATION_FILE, Evaluation)
    path = folder / QUESTIONS_FILE
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise unreadable(path, error) from error
    questions = [EVALUATIONS.parse(path, line, Question) for line in lines]
    return Evaluated(folder, evaluation, questions)


def _write_evaluation(folder: Path, evaluation: Evaluation) -> None:
    write_whole(folder / EVALUATION_FILE, (evaluation.model_dump_json(indent=1) + "\n").encode())


def _read_sources(folder: Path) -> list[Source]:
    path = folder / SOURCES_FILE
    return [EVALUATIONS.parse(path, line, Source) for line in content(path).splitlines()]


def _read_answers(path: Path) -> tuple[Answer, ...]:
    return read_answers(path) if path.is_file() else ()
