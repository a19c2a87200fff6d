"""A search for the commit that made a model slower on a board, from where it stopped.

It lies in ``bisections/<id>/``: ``bisection.json`` says what is looked for and what was found, and
``journal.jsonl`` has one line for each sample. The runs themselves are runs like any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from armload.analysis.bisection import (
    BisectionGoal,
    FoundCommits,
    JudgedCommit,
    Sample,
    WrongEndpointsError,
    search,
)
from armload.analysis.run import Run
from armload.bench.combination import Combination, combination
from armload.boards.board import load_board
from armload.build.binary import Binary
from armload.build.commit import Commit
from armload.build.history import CommitHistory, CommitTitle
from armload.build.repository import GitFailedError, UnreachableError
from armload.build.source import choose
from armload.core.errors import BuildError, DataError, InconclusiveError, UsageError
from armload.core.ids import begins_now, fingerprint_of
from armload.core.journal import CommandHeader, CommandJournal, JournalKind
from armload.core.progress import Progress, ProgressStep
from armload.core.values import Value
from armload.core.workspace import bisections_folder, data_names
from armload.engines.completion import settings_of
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.models.find import model_called
from armload.runs.interruption import starts_anew
from armload.runs.reach import ConnectedBoard
from armload.runs.request import Request
from armload.runs.session import Session, built, session

Metric = Literal["decode", "prefill"]


class BisectionRequest(Value):
    """What is looked for, and with which runs.

    Attributes:
        good, bad: branches, tags or commits of the repository that is the request's source.
        model: as for ``model_called``.
        plan: of every run.
        metric: whose time per token is compared.
        slower: the smallest slowdown that counts, 0.05 for 5%.
        text_differs: look for another text instead.
    """

    good: str
    bad: str
    model: str
    plan: Plan
    metric: Metric
    slower: float
    text_differs: bool


class Bisection(CommandHeader):
    """A search that was begun.

    Attributes:
        fingerprint: a checksum over board, source, model, plan and what is looked for.
        board, model: their names.
        source: the repository's address for people.
        plan: of every run.
        is_ended: the same command begins another one.
        found: what it ended with; none where there was nothing to find.
        titles: of the commits that it tried or found.
    """

    format: Literal[1] = 1
    board: str
    model: str
    source: str
    metric: Metric
    wanted: BisectionGoal
    plan: Plan
    is_ended: bool = False
    found: FoundCommits | None = None
    titles: Mapping[str, CommitTitle] = {}

    @property
    def result(self) -> FoundCommits:
        """What it found; only of one that found something."""
        assert self.found is not None  # noqa: S101 - the others have ended with an error
        return self.found


class BisectionFolder(CommandJournal[Bisection, Sample]):
    """A search with its samples."""

    kind = JournalKind(
        noun="bisection",
        words=("bisect",),
        header=Bisection,
        entry=Sample,
        root=bisections_folder,
        make="armload bisect --good REF --bad REF",
        repair="Use --new to start the search again; its runs are kept.",
    )

    @property
    def is_finished(self) -> bool:
        return self.header.is_ended

    def end(
        self, found: FoundCommits | None = None, titles: Mapping[str, CommitTitle] = {}
    ) -> None:
        """Record that the search has ended, and with what."""
        update = {"is_ended": True, "found": found, "titles": dict(titles)}
        self.rewrite_header(self.header.model_copy(update=update))


def bisect(
    request: Request,
    bisection: BisectionRequest,
    progress: Progress,
    *,
    begun: Callable[[BisectionFolder], None],
    said: Callable[[JudgedCommit, CommitTitle], None],
) -> BisectionFolder:
    """Find the first bad commit, and record each sample as soon as it is there.

    What an interrupted command of the same kind has done is not done again, unless
    ``request.new`` says so.

    Args:
        request: where, from which repository, and how it is built.
        begun: is shown the search before its first run.
        said: is told what was found out about each commit.
    """
    load_board(request.board)  # a wrong name is reported before anything is downloaded
    if bisection.plan.device is not None:
        request = request.model_copy(update={"vulkan": True})
    good, bad = (_commit(request, ref, progress) for ref in (bisection.good, bisection.bad))
    history = CommitHistory(good.address)
    history.fetch(good.commit, bad.commit, progress)
    one = combination(model_called(bisection.model, progress), bisection.plan, progress)
    with session(request, (), progress, settings=[settings_of(one.plan)]) as where:
        header = _header(where, bisection, good, bad, one)
        journal = BisectionFolder.resume_or_begin(header, progress, new=request.new)
        with journal.locked(progress):
            begun(journal)
            try:
                with progress.step("Bisecting", unit="runs") as step:
                    found = search(
                        *(header.wanted, history, _Runner(journal, where, one, progress, step)),
                        seed=header.fingerprint,
                        said=lambda judged: said(judged, history.title(judged.commit)),
                    )
            except (WrongEndpointsError, InconclusiveError):
                journal.end()
                raise
            named = (*found.commits, *filter(None, [found.parent]))
            tried = (each.commit for each in found.judged)
            titles = {commit: history.title(commit) for commit in (*named, *tried)}
            journal.end(found, titles)
    return journal


def _commit(request: Request, ref: str, progress: Progress) -> Commit:
    source = None
    if request.source not in data_names("toolchains/sources"):
        source = choose(request.source, ref=ref, progress=progress)
    if not isinstance(source, Commit):
        raise UsageError(
            f"--source {request.source}: this is an archive of one release.",
            "Give the address or the folder of a llama.cpp repository.",
        )
    return source


def _header(
    where: Session, bisection: BisectionRequest, good: Commit, bad: Commit, one: Combination
) -> Bisection:
    board = where.connection.board.name
    request = where.request
    wanted = BisectionGoal(
        good=good.commit,
        bad=bad.commit,
        slower=bisection.slower,
        text_differs=bisection.text_differs,
    )
    return Bisection(
        **begins_now("bisect", board),
        fingerprint=fingerprint_of(
            [
                *(board, good.address.shown, one.model.sha256, one.plan.model_dump_json()),
                *(wanted.model_dump_json(), bisection.metric, request.compiler, request.on),
            ]
        ),
        board=board,
        model=one.model.name,
        source=good.address.shown,
        metric=bisection.metric,
        wanted=wanted,
        plan=one.plan,
    )


class _Runner:
    """Builds commits and runs them; what the journal has already is not run again."""

    def __init__(
        self,
        journal: BisectionFolder,
        where: Session,
        one: Combination,
        progress: Progress,
        step: ProgressStep,
    ) -> None:
        self._journal = journal
        self._where = where
        self._one = one
        self._progress = progress
        self._step = step
        self._recorded = list(journal.entries)
        self._asked = 0
        self._builds: dict[str, Mapping[str, Binary]] = {}
        self._new = starts_anew(new=where.request.new)

    def __call__(self, commit: str) -> Sample:
        number, self._asked = self._asked, self._asked + 1
        self._step.update(number, note=commit[:12])
        if number < len(self._recorded):
            recorded = self._recorded[number]
            if recorded.commit != commit:
                raise DataError(
                    f"{self._journal.folder}: another version of armload began this search, and "
                    "would continue it differently.",
                    "Use --new to start it again.",
                )
            return recorded
        made = self._made(commit, number)
        self._journal.append(made)
        return made

    def _made(self, commit: str, number: int) -> Sample:
        request = self._where.request.model_copy(update={"ref": commit})
        try:
            if commit not in self._builds:
                programs = self._one.programs
                self._builds[commit] = built(request, programs, self._progress)
            binaries = self._builds[commit]
            engine = self._one.engine(binaries)
        except (UnreachableError, GitFailedError):
            raise
        except (BuildError, UsageError) as error:
            return Sample(commit=commit, failure=error.message, is_built=False)
        where = replace(self._where, request=request, binaries=binaries)
        run = ConnectedBoard(where, self._progress).run(
            engine,
            new=next(self._new),
            place=SweepPoint(sweep=self._journal.header.id, cell=0, round=number),
        )
        return _sample(commit, run, self._journal.header.metric)


def _sample(commit: str, run: Run, metric: Metric) -> Sample:
    summary = run.summary
    cost_s: float | None = None
    if metric == "decode":
        cost_s = summary.median_s
    elif metric == "prefill" and summary.prefill_tps:
        cost_s = 1 / summary.prefill_tps
    failure = run.exit.meaning if run.exit.status != 0 else ""
    if not failure and cost_s is None:
        failure = f"nothing of its {metric} was timed"
    return Sample(
        commit=commit,
        run=run.id,
        cost_s=cost_s,
        text_sha256=hashlib.sha256(run.text.encode()).hexdigest(),
        failure=failure,
    )
