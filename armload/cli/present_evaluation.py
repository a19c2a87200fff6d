"""Evaluations: carried out, and laid before a person or a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from armload.analysis.accuracy import accuracy_of
from armload.cli import terminal
from armload.cli.error_output import end_if_failed
from armload.cli.streams import show_document
from armload.core.errors import DifferentError, RunError, UsageError
from armload.core.progress import Progress
from armload.core.values import counted
from armload.engines.answers import Answer
from armload.evaluation.disagreements import Disagreement, disagreements
from armload.evaluation.evaluating import Note, evaluate_on
from armload.evaluation.grading.registry import check_grader
from armload.evaluation.harness.evaluating import PREFIX, evaluate_with_harness
from armload.evaluation.logits.agreement import Agreement, agreement
from armload.evaluation.logits.binding import BINDING, logits_by_binding
from armload.evaluation.logits.computing import compute_logits, read_prompts
from armload.evaluation.logits.rows import TOO_LONG, logits_called, logits_of_run
from armload.evaluation.preparing import EvaluationRequest, prepare
from armload.evaluation.record import EvaluationFolder
from armload.evaluation.results import AccuracyPoint, is_answer_correct, points_of
from armload.evaluation.scorer_settings import ScorerSettings
from armload.fleet.threads import BoardTask, serve
from armload.models.find import model_called
from armload.report.evaluation.document import (
    EvaluationDocument,
    LogitsDocument,
    agreement_view,
    harness_view,
    sentence,
)
from armload.report.evaluation.page import evaluation_page
from armload.report.evaluation.series import EvaluationView, variant_words
from armload.report.evaluation.table import between, evaluation_view
from armload.report.layout import whole
from armload.report.pages import write_page
from armload.runs.reach import Reach
from armload.runs.request import Request


def evaluate_and_present(
    request: Request,
    asked: EvaluationRequest,
    settings: ScorerSettings,
    reach: Reach,
    *,
    as_json: bool,
) -> None:
    """Ask what is not answered yet, and show accuracy, intervals and times.

    Each of several boards has its own part of the questions; another one asks what it leaves.

    Raises:
        ArmloadError: any of its kinds; answers that are there are kept.
    """
    progress = terminal.progress()
    prepared = prepare(asked, progress, new=request.new)
    evaluated, boards = prepared.evaluated, asked.boards
    note = _note(evaluated)

    @contextmanager
    def opened(board: str, own: Progress) -> Iterator[Callable[[int], None]]:
        theirs = request.model_copy(update={"board": board})
        yield lambda number: evaluate_on(
            *(theirs, prepared, settings, own),
            share=(number, len(boards)),
            note=note,
            reach=reach,
        )

    tasks = [BoardTask(item=n, boards=boards, home=board) for n, board in enumerate(boards)]
    with evaluated.locked(progress):
        served = serve(tasks, opened, progress)
    failed = {one.board: one.error for one in served.results if one.error} | {**served.errors}
    points = points_of(evaluated)
    if not failed:
        _need_an_answer(points)
    _present_accuracy(evaluated, points, evaluated.evaluation.grader, as_json=as_json)
    evaluated.note_shown()
    if not evaluated.is_complete:
        parts = range(len(evaluated.evaluation.parts))
        missing = sum(len(evaluated.missing(part)) for part in parts)
        progress.say(
            f"{missing} of {len(parts) * len(evaluated.questions)} questions were not asked. Run "
            "the command again to continue."
        )
    end_if_failed({board: failed.get(board) for board in boards})


def regrade_and_present(reference: str, graders: Sequence[str], *, as_json: bool) -> None:
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
    grader = graders[0] if graders else evaluated.evaluation.grader
    points = points_of(evaluated, grader)
    if len(graders) < 2:
        evaluated.grade_by(grader)
        _present_accuracy(evaluated, points, grader, as_json=as_json)
        return
    differing = disagreements(evaluated.questions, points, points_of(evaluated, graders[1]))
    _present_accuracy(evaluated, points, grader, as_json=as_json, differing=differing)
    if not as_json:
        _show_disagreements(differing, graders)


def _note(evaluated: EvaluationFolder) -> Note:
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


def _need_an_answer(points: Sequence[AccuracyPoint]) -> None:
    """Refuse to show accuracies where each question failed.

    Raises:
        RunError: it did; says why, once.
    """
    reasons = [reason for point in points for reason in point.failed.values()]
    if reasons and not any(point.attempts for point in points):
        raise RunError(
            f"No question was answered. The first one failed: {reasons[0]}.",
            "See armload eval --help for the options that change it.",
        )


def _present_accuracy(
    evaluated: EvaluationFolder,
    points: Sequence[AccuracyPoint],
    grader: str,
    *,
    as_json: bool,
    differing: tuple[Disagreement, ...] = (),
) -> None:
    view = EvaluationView.of(points)
    page = write_page(evaluation_page(evaluated, view, grader), evaluated.folder)
    if as_json:
        show_document(EvaluationDocument.of(evaluated, points, grader, differing))
        return
    terminal.show(evaluation_view(view))
    terminal.show("")
    for statement in (each for group in view.groups for each in group.statements):
        terminal.show(statement)
    terminal.show(whole(f"evaluation  {evaluated.folder}"))
    terminal.show(whole(f"page        {page}"))


def _show_disagreements(differing: Sequence[Disagreement], graders: Sequence[str]) -> None:
    terminal.show("")
    terminal.show(f"{' and '.join(graders)} disagree on {counted(len(differing), 'answer')}.")
    for each in differing:
        found = [
            f"{name}: {'correct' if grade.correct else 'wrong'} "
            f"({grade.failure or grade.extracted or 'nothing found'})"
            for name, grade in zip(graders, (each.a, each.b), strict=True)
        ]
        end = " ".join(each.text.split())[-60:]
        variant = variant_words(each.prompt, is_told=each.is_told, concludes=each.concludes)
        budgets = ", ".join(map(str, each.budgets))
        terminal.show(
            f"question {each.question.id} to {each.model.removesuffix('.gguf')}, {variant}, budget "
            f"{budgets}, expected {each.question.expected}: {'; '.join(found)}: …{end}"
        )


def logits_and_present(
    request: Request,
    asked: EvaluationRequest,
    settings: ScorerSettings,
    reach: Reach,
    *,
    reference: str,
    must_be_close: bool,
    as_json: bool,
) -> None:
    """Compute the logits of one model's prompts, and compare them where there is a reference.

    Raises:
        DifferentError: they must be close, and are not.
        ArmloadError: they could not be computed, or not be compared.
    """
    if not asked.data:
        raise UsageError(
            "--task logits needs prompts.", "Give a file with a prompt on each line: --data FILE."
        )
    if len(asked.models) != 1 or len(asked.boards) != 1:
        raise UsageError("--task logits takes one model and one board.", "Name one of each.")
    prompts = read_prompts(Path(asked.data), asked.limit)
    progress = terminal.progress()
    model = model_called(asked.models[0], progress)
    with ExitStack() as stack:
        known = None
        if reference == BINDING:
            known = stack.enter_context(logits_by_binding(model, prompts, settings, progress))
        elif reference:
            known = logits_called(reference)
        folder = compute_logits(request, model, prompts, settings, progress, reach=reach)
        logits = logits_of_run(folder)
        found = agreement(logits, known) if known else None
    document = LogitsDocument(
        run=folder.name, prompts=len(logits.rows), failed=logits.failed, agreement=found
    )
    if as_json:
        show_document(document)
    else:
        if found:
            terminal.show(agreement_view(found))
        for number, error in logits.failed.items():
            terminal.show(f"Prompt {number} has no logits: {error}. {TOO_LONG}")
        terminal.show(whole(f"run  {folder}"))
    if must_be_close and found:
        _require_close(found, len(prompts), folder.name)


def _require_close(found: Agreement, prompts: int, run_id: str) -> None:
    # A prompt that failed on both sides is missing on neither.
    if found.close < prompts or found.missing:
        raise DifferentError(
            f"--fail-unless-close: not all of {counted(prompts, 'prompt')} are close. "
            f"{sentence(found)}",
            f"Look at the run: armload show {run_id}",
        )


def harness_and_present(
    request: Request,
    asked: EvaluationRequest,
    settings: ScorerSettings,
    reach: Reach,
    *,
    as_json: bool,
) -> None:
    """Evaluate one model on one board with tasks that ``asked.task`` names: ``lm-eval:a,b``.

    Raises:
        ArmloadError: as for ``evaluate_with_harness``.
    """
    names = [name for name in asked.task.removeprefix(PREFIX).split(",") if name]
    if not names:
        raise UsageError(
            f"--task {asked.task}: the name of the task is missing.", "Write --task lm-eval:piqa."
        )
    if len(asked.models) != 1 or len(asked.boards) != 1:
        raise UsageError(f"--task {PREFIX}… takes one model and one board.", "Name one of each.")
    folder = Path(asked.data) if asked.data else None
    if folder and not folder.is_dir():
        raise UsageError(
            f"--data {folder}: this is not a folder.", "Give a folder with the task's YAML."
        )
    progress = terminal.progress()
    found = evaluate_with_harness(
        request,
        model_called(asked.models[0], progress),
        names,
        settings,
        progress,
        tasks_folder=folder,
        limit=asked.limit,
        reach=reach,
    )
    if as_json:
        show_document(found)
    else:
        terminal.show(harness_view(found))
