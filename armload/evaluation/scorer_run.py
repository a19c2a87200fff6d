"""Runs of the scorer: followed while they answer, and repeated for what one of them left.

The answers to a list of items stay in the folders of the runs that gave them.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from armload.analysis.run import Run
from armload.build.binary import Binary
from armload.core.errors import ArmloadError, DataError, RunError
from armload.core.files import write_whole
from armload.core.ids import fingerprint_of, time_of_id
from armload.core.journal import START_OVER
from armload.core.progress import Progress
from armload.core.values import ValueList, as_json, counted
from armload.core.workspace import runs_folder
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import JOB_FILE
from armload.engines.answers import Answer, parse_answers, read_answers
from armload.engines.engine import Engine
from armload.engines.job import SweepPoint
from armload.engines.scorer import ANSWERS, SCORER, Scoring, ScoringPlan, SeenImages
from armload.evaluation.items import write_items
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.model import Model
from armload.runs.assemble import read_job
from armload.runs.reach import CONNECTED, EngineBoard, Reach
from armload.runs.request import Request
from armload.runs.swept import earliest_run

EARLIER = "earlier-runs.json"
"""In a run's folder: the ids of the runs that answered what it was not asked any more."""

Item = dict[str, object]
Question = TypeVar("Question")
Note = Callable[[Sequence[Answer]], str]
"""Given the answers since the last time, says in a few words how all of them stand."""


class Deadline:
    """The end of a run in time.

    Args:
        max_time_s: from the first answer looked for; none for no limit.
    """

    def __init__(self, max_time_s: float | None) -> None:
        self._max_time_s = max_time_s
        self._began_s: float | None = None

    def is_over(self, now: ProgressUpdate) -> bool:
        """Say whether time is up; never before an answer, or repeating the run would add none."""
        if self._max_time_s is None or now.steps == 0:
            return False
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        return now.lines > 0 and now_s - self._began_s >= self._max_time_s


class EvaluationRun(Engine):
    """What an engine does otherwise in a run of an evaluation: it comes before it among the bases.

    Attributes:
        evaluation: its id; a run that another one has left on the board is none of its own.
        max_time_s: from the first answer looked for; none for no limit.
    """

    evaluation: str
    max_time_s: float | None

    def _is_for(self, evaluation: str, note: Note, max_time_s: float | None) -> None:
        """Take what ``__init__`` is given beside the engine's own."""
        self.evaluation = evaluation
        self.max_time_s = max_time_s
        self._note = note
        self._deadline = Deadline(max_time_s)

    @property
    def fingerprint(self) -> str:
        """A checksum over what is asked, and for which evaluation."""
        own = super().fingerprint  # type: ignore[safe-super]  # the next base has one
        return fingerprint_of((own, self.evaluation))

    @property
    def total(self) -> int | None:
        """The items; none where time decides how many are answered."""
        return super().total if self.max_time_s is None else None

    def is_done(self, now: ProgressUpdate) -> bool:
        """Say whether its time is up."""
        return self._deadline.is_over(now)


class TimedScoring(EvaluationRun, Scoring):
    """The scorer as an evaluation runs it: with its accuracy so far, and an end in time.

    Args:
        evaluation, max_time_s: as for ``EvaluationRun``.
        note: is given this run's answers; after a lost connection, some of them again.
        keeps_forecast, seen: as for ``Scoring``.
    """

    def __init__(
        self,
        plan: ScoringPlan,
        binary: Binary,
        model: Model,
        items: Path,
        *,
        evaluation: str,
        note: Note,
        max_time_s: float | None,
        keeps_forecast: bool,
        seen: SeenImages | None = None,
    ) -> None:
        super().__init__(plan, binary, model, items, seen)
        self._is_for(evaluation, note, max_time_s)
        self.keeps_forecast = keeps_forecast

    def note(self, now: ProgressUpdate) -> str:
        """Return the accuracy so far."""
        return self.noted(now.new_lines)

    def noted(self, lines: Sequence[str]) -> str:
        """Return the accuracy after further lines of its output."""
        return self._note(parse_answers(lines))


def ask_all(
    board: str,
    noun: str,
    missing: Callable[[], Sequence[Question]],
    ask: Callable[[Sequence[Question]], tuple[Run, bool]],
    progress: Progress,
) -> None:
    """Ask what is not answered, in one run or, where one ends early, in several.

    Args:
        noun: what is asked, such as ``item``.
        missing: returns what is not answered yet.
        ask: runs the scorer, keeps the answers, and returns the run, and whether its time is up.
    """
    asked = missing()
    while asked:
        run, time_is_up = ask(asked)
        left = missing()
        if len(left) == len(asked):
            raise RunError(
                f"{board}: none of {counted(len(asked), noun)} was answered: {run.exit.meaning}.",
                f"Its messages: armload show {run.id}",
            )
        if time_is_up:
            return
        if left:
            progress.say(
                f"{run.exit.meaning.capitalize()} after {len(asked) - len(left)} of {len(asked)} "
                "answers. Continuing with the rest."
            )
        asked = left


def _kept(folder: Path) -> tuple[str, int]:
    # A run's name says when it began, in seconds; two of one second were kept one after the other.
    try:
        kept_ns = (folder / JOB_FILE).stat().st_mtime_ns
    except OSError:
        kept_ns = 0
    return folder.name.partition("-")[0], kept_ns


def runs_of(sweep: str) -> Iterator[tuple[Path, SweepPoint]]:
    """Return the folders of the runs of a sweep or an evaluation, by its id, the oldest first."""
    earliest = earliest_run(sweep)
    since = time_of_id(earliest) if earliest else ""
    try:
        folders = [path for path in runs_folder().iterdir() if path.name >= since]
    except OSError:
        return
    for folder in sorted(folders, key=_kept):
        try:
            # Most runs belong to something else, and a job takes long to read.
            if sweep.encode() not in (folder / JOB_FILE).read_bytes():
                continue
            place = read_job(folder).place
        except (OSError, ArmloadError):
            continue
        if place is not None and place.sweep == sweep:
            yield folder, place


def next_point(sweep: str, cell: int, board: str) -> SweepPoint:
    """Return a point that no run of this machine has: the next one of a board."""
    done = sum(
        place.cell == cell and read_job(folder).board.name == board
        for folder, place in runs_of(sweep)
    )
    return SweepPoint(sweep=sweep, cell=cell, round=done)


def answer_items(
    request: Request,
    model: Model,
    items: Sequence[Item],
    settings: ScorerSettings,
    progress: Progress,
    *,
    reach: Reach = CONNECTED,
) -> Path:
    """Let a model on a board answer items; return the run's folder, for ``answers_in``.

    What runs on this machine have answered already, on the same board with the same program,
    model and settings, is not asked again.
    """
    with reach.open(request, (SCORER,), progress, takes_groups=True) as board:
        return answer_items_there(board, model, items, settings, progress, new=request.new)


def answer_items_there(
    there: EngineBoard,
    model: Model,
    items: Sequence[Item],
    settings: ScorerSettings,
    progress: Progress,
    *,
    new: bool,
) -> Path:
    """Do what ``answer_items`` does, on a board that is reached already and with the scorer built.

    Args:
        new: ask everything again, and do not take up a run that an interrupted command left.
    """
    # The rest alone might need less, but is to be asked in the same way.
    settings = settings.model_copy(update={"context_tokens": settings.context_for(items, model)})
    board, scorer = there.where.board.name, there.where.binaries[SCORER]
    # Runs share it if their answers are to the same items, computed alike.
    alike = (board, scorer.sha256, model.identity, settings.model_dump_json(), json.dumps(items))
    name = f"items-{fingerprint_of(alike)}"
    former = {folder for folder, _ in runs_of(name)} if new else set()

    def found() -> ItemAnswers:
        folders = [folder for folder, _ in runs_of(name) if folder not in former]
        return _gathered(folders[::-1], progress)

    def missing() -> list[Item]:
        answered = found().answers
        return [item for item in items if str(item["id"]) not in answered]

    def ask(left: Sequence[Item]) -> tuple[Run, bool]:
        with tempfile.TemporaryDirectory() as scratch:
            path = write_items(left, Path(scratch) / "items.jsonl")
            plan = settings.plan(left, path, model)
            engine = Scoring(plan, scorer, model, path)
            run = there.run(engine, new=new, place=next_point(name, 0, board))
        return run, False

    earlier = found()
    if earlier.answers:
        progress.say(
            f"{len(earlier.answers)} of {counted(len(items), 'answer')} already exist, the latest "
            f"in {earlier.folders[0].name}. {START_OVER}"
        )
    ask_all(board, "item", missing, ask, progress)
    return note_earlier(found())


@dataclass(frozen=True, kw_only=True)
class ItemAnswers:
    """The answers to a list of items so far.

    Attributes:
        folders: of the runs that gave them, the latest first.
        answers: by the ids of the items; the latest of each.
    """

    folders: tuple[Path, ...]
    answers: Mapping[str, Answer]


def _gathered(folders: Sequence[Path], progress: Progress) -> ItemAnswers:
    taken, answers = [], dict[str, Answer]()
    for folder in folders:
        try:
            found = _by_id(folder)
        except DataError as error:
            progress.say(f"skipped: {error.message}")
            continue
        if found.keys() - answers.keys():
            taken.append(folder)
            answers = found | answers
    return ItemAnswers(folders=tuple(taken), answers=answers)


def note_earlier(found: ItemAnswers) -> Path:
    """Note in the folder of the latest run which others it continues; return the folder."""
    latest, *others = found.folders
    if others:
        names = ValueList[str](tuple(folder.name for folder in others))
        write_whole(latest / EARLIER, as_json(names).encode())
    return latest


def folders_of(folder: Path) -> tuple[Path, ...]:
    """Return a run's folder and those of the runs that it continues, the latest first."""
    path = folder / EARLIER
    if not path.is_file():
        return (folder,)
    try:
        names = ValueList[str].model_validate_json(path.read_bytes()).root
    except ValidationError as error:
        raise DataError(
            f"{path}: not a list of runs.", "The file was changed. Compute again with --new."
        ) from error
    return (folder, *(folder.parent / name for name in names))


def answers_in(folder: Path) -> dict[str, Answer]:
    """Return the answers of a run, and of those that it continues, by their ids."""
    answers: dict[str, Answer] = {}
    for each in folders_of(folder):
        answers = _by_id(each) | answers
    return answers


def _by_id(folder: Path) -> dict[str, Answer]:
    return {each.id: each for each in read_answers(folder / ANSWERS)}
