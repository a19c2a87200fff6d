"""Why the times of answers, or those taken from other runs, are not to be relied on."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.run import Run
from armload.evaluation.record import AnswerSource, Evaluation

ABOUT_TEXT = ("text", "reference")
"""Findings on what was written, which takes as long whatever it says."""


def doubts_about_answers(
    evaluation: Evaluation, sources: Sequence[AnswerSource]
) -> tuple[str, ...]:
    """Return what was found in the runs of a part, and in the way in which it was asked."""
    found = [doubt for source in sources for doubt in source.doubts or ()]
    if evaluation.parallel > 1:
        found.append(
            f"Answers shared the board (--parallel {evaluation.parallel}), so that each took "
            "longer than it would alone."
        )
    boards = boards_of(evaluation, sources)
    if len(boards) > 1:
        found.append(f"They are from several boards: {', '.join(boards)}.")
    return tuple(dict.fromkeys(found))


def boards_of(evaluation: Evaluation, sources: Sequence[AnswerSource]) -> tuple[str, ...]:
    """Return the boards that answered a part; where no run is known, those that were asked."""
    return tuple(sorted({source.board for source in sources} or set(evaluation.boards)))


def doubts_about_runs(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return what was found in runs that times are taken from."""
    return tuple(
        f"Do not rely on the times of {run.id}: {finding.sentence}"
        for run in runs
        for finding in run.verdict.findings or ()
        if finding.name not in ABOUT_TEXT
    )
