"""The kinds of recorded results: how one is recognised, shown, drawn and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from armload.analysis.comparison import Comparison
from armload.analysis.load.comparison import compare_loads
from armload.bench.run_names import folders_of
from armload.bench.sweep import SweepFolder, find_cell
from armload.core.errors import ArmloadError, NoSuchResultError, UsageError
from armload.core.journal import Journal
from armload.core.shell import join
from armload.core.values import with_article
from armload.evaluation.record import EvaluationFolder
from armload.fleet.bisect import BisectionFolder
from armload.report.bisected import BisectionResult
from armload.report.evaluation.result import EvaluationResult
from armload.report.load.loaded import LoadView
from armload.report.load.table import LoadResult
from armload.report.result import Result
from armload.report.sweep import SweepResult
from armload.report.table import RunResult
from armload.report.tuning.result import TuningResult
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
        has_page: it is drawn as such, not its runs.
        compare: of two; none where their runs are compared, or nothing is.
    """

    journal: type[Folder]
    read: Callable[[Folder], Result]
    has_page: bool = False
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


KINDS: tuple[ResultKind[Any], ...] = (
    ResultKind(journal=EvaluationFolder, read=EvaluationResult.of, has_page=True),
    ResultKind(
        journal=LoadFolder,
        read=LoadResult.of,
        has_page=True,
        compare=lambda a, b: compare_loads(*LoadView.of(a).compared, *LoadView.of(b).compared),
    ),
    ResultKind(
        journal=TuningFolder,
        read=lambda tuned: TuningResult(tuned=tuned),
        has_page=True,
        compare=lambda a, b: [compare_tunings(a, b)],
    ),
    ResultKind(journal=BisectionFolder, read=BisectionResult.of),
    ResultKind(journal=SweepFolder, read=lambda journal: SweepResult(journal=journal)),
)


_OTHER = {"compare": " OTHER"}
"""What a verb needs besides the reference."""


def kind_of(reference: str) -> ResultKind[Any] | None:
    """Return the kind of result that a reference is to; none where it may be to a run.

    Raises:
        UsageError: it is the last part of a run's id, and of another result's.
    """
    kind = next((kind for kind in KINDS if kind.is_meant(reference)), None)
    if kind:
        store.check_no_run(reference, kind.journal.kind.find(reference))
    return kind


def recorded(reference: str) -> Result:
    """Return the result that a person means, a single run among others."""
    if kind := kind_of(reference):
        return kind.read(kind.journal.find(reference))
    return RunResult(run=store.load(store.find(reference)))


def told_by_kind(error: NoSuchResultError) -> ArmloadError:
    """Say what a reference is where it names results of another kind; else what was said."""
    reference = error.reference
    try:
        what, verbs = _what_it_is(reference, error.noun)
    except NoSuchResultError as unknown:
        return error if unknown.reference == reference else told_by_kind(unknown)
    except ArmloadError as unusable:
        return unusable if error.noun == "run" else error
    lines = [f"{join(['armload', verb, reference])}{_OTHER.get(verb, '')}" for verb in verbs]
    return UsageError(
        f"{reference}: this is {what}, not {with_article(error.noun)}.",
        f"To use it: {'; '.join(lines)}",
    )


def _what_it_is(reference: str, wanted: str) -> tuple[str, list[str]]:
    """Return what is meant, and the verbs that take it.

    Raises:
        ArmloadError: nothing is.
    """
    if (kind := kind_of(reference)) and kind.noun != wanted:
        is_of_runs = kind.journal is SweepFolder
        takes = {"report": kind.has_page or is_of_runs, "compare": kind.compare or is_of_runs}
        return with_article(kind.noun), ["show", *(verb for verb, does in takes.items() if does)]
    if wanted != "run":
        store.find(reference)
        return "a run", ["show", "report", "compare"]
    folders = folders_of(reference)
    what = "a cell of a sweep" if find_cell(reference) else f"a list of {len(folders)} runs"
    return what, ["report", "compare"]
