"""The kinds of recorded results: how one is recognised, shown, drawn and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from armload.analysis.comparison import Comparison
from armload.analysis.load.comparison import compare_loads
from armload.bench.sweep import SweepFolder
from armload.core.errors import UsageError
from armload.core.journal import Journal
from armload.core.progress import Progress
from armload.evaluation.record import EvaluationFolder
from armload.fleet.bisect import BisectionFolder
from armload.report.bisected import BisectionResult
from armload.report.evaluation.result import EvaluationResult
from armload.report.load.loaded import LoadView
from armload.report.load.table import LoadResult
from armload.report.pages import Report
from armload.report.result import Result
from armload.report.sweep import SweepResult
from armload.report.table import RunResult
from armload.report.tuning.result import TuningResult
from armload.report.tuning.view import TuningView
from armload.runs import store
from armload.serving.loads import LoadFolder
from armload.tuning.comparison import compare_tunings
from armload.tuning.record import TuningFolder

Folder = TypeVar("Folder", bound=Journal[Any, Any])


@dataclass(frozen=True, kw_only=True)
class ResultKind(Generic[Folder]):
    """Results that are journals of one kind.

    Attributes:
        read: returns one as it is shown.
        report: writes a page on one; none where its runs are drawn.
        compare: of two; none where their runs are compared, or nothing is.
    """

    journal: type[Folder]
    read: Callable[[Folder], Result]
    report: Callable[[Folder, Path | None, Progress], Report] | None = None
    compare: Callable[[Folder, Folder], Sequence[Comparison]] | None = None

    @property
    def noun(self) -> str:
        """What one is called."""
        return self.journal.kind.noun

    def is_meant(self, reference: str) -> bool:
        """Say whether a reference that a person typed is to one of these."""
        return self.journal.kind.is_meant(reference)

    def check_both(self, a: str, b: str) -> None:
        """Check that both sides of a comparison are of this kind.

        Raises:
            UsageError: one is of another kind.
        """
        if self.is_meant(a) != self.is_meant(b):
            raise UsageError(
                f"{a} and {b}: a {self.noun} can only be compared with another {self.noun}."
            )


def _report_evaluation(evaluated: EvaluationFolder, place: Path | None, told: Progress) -> Report:
    from armload.report.evaluation.page import write_evaluation_report

    return write_evaluation_report(evaluated, place, told)


def _report_load(kept: LoadFolder, place: Path | None, told: Progress) -> Report:
    from armload.report.load.page import write_load_report

    return write_load_report(LoadView.of(kept), place, told)


def _report_tuning(tuned: TuningFolder, place: Path | None, told: Progress) -> Report:
    from armload.report.tuning.page import write_tuning_report

    return write_tuning_report(TuningView.of(tuned), place, told)


KINDS: tuple[ResultKind[Any], ...] = (
    ResultKind(journal=EvaluationFolder, read=EvaluationResult.of, report=_report_evaluation),
    ResultKind(
        journal=LoadFolder,
        read=LoadResult.of,
        report=_report_load,
        compare=lambda a, b: compare_loads(*LoadView.of(a).compared, *LoadView.of(b).compared),
    ),
    ResultKind(
        journal=TuningFolder,
        read=lambda tuned: TuningResult(tuned=tuned),
        report=_report_tuning,
        compare=lambda a, b: [compare_tunings(a, b)],
    ),
    ResultKind(journal=BisectionFolder, read=BisectionResult.of),
    ResultKind(journal=SweepFolder, read=lambda journal: SweepResult(journal=journal)),
)


def kind_of(reference: str) -> ResultKind[Any] | None:
    """Return the kind of result that a reference is to; none where it may be to a run."""
    return next((kind for kind in KINDS if kind.is_meant(reference)), None)


def recorded(reference: str) -> Result:
    """Return the result that a person means, a single run among others."""
    if kind := kind_of(reference):
        return kind.read(kind.journal.find(reference))
    return RunResult(run=store.load(store.find(reference)))
