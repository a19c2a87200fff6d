"""One combination of what is listed: a single run, or one repeated until its median is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from armload.analysis.repeats import Precision, Stop, judged_together
from armload.analysis.run import Run
from armload.bench.sweep import SweepEntry, SweepFolder, new_sweep, resume_or_begin
from armload.boards.naming import boards_called
from armload.build.binary import Binary
from armload.core.progress import Progress
from armload.engines.completion import PROGRAM, Completion, settings_of
from armload.engines.job import SweepPoint
from armload.engines.llama_cpp import whole_plan
from armload.engines.plan import MTP, Plan
from armload.engines.speculation import SPECULATING_PROGRAM, Speculation, check_predicts
from armload.models.find import model_called
from armload.models.model import Model
from armload.models.tokens import check_draft
from armload.runs.baseline import find_plain
from armload.runs.pipeline import Heard, execute
from armload.runs.predicting import foresight
from armload.runs.request import Request
from armload.runs.session import Session, session


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A plan with its models, checked.

    Attributes:
        model: that is measured.
        draft: that guesses tokens for it; none where the plan has none.
        plan: with its prompt.
    """

    model: Model
    draft: Model | None
    plan: Plan

    @property
    def program(self) -> str:
        """The program that runs it."""
        return PROGRAM if self.plan.speculate is None else SPECULATING_PROGRAM

    def engine(self, binaries: Mapping[str, Binary]) -> Completion:
        """Return what runs it.

        Raises:
            UsageError: a program does not know a model, or lacks an option.
        """
        binary = binaries[self.program]
        if self.plan.speculate is None:
            return Completion(self.plan, binary, self.model)
        return Speculation(self.plan, binary, self.model, self.draft)


def combination(model: Model, plan: Plan, progress: Progress) -> Combination:
    """Return a plan with its models; a draft model is made or downloaded when it is missing.

    Raises:
        UsageError: the plan does not suit the model, the draft model has another vocabulary, or
            the model has no layers that predict further tokens.
        ArmloadError: as for ``model_called``.
    """
    draft = None
    if plan.speculate == MTP:
        check_predicts(model)
    if plan.draft_model is not None:
        draft = model_called(plan.draft_model, progress)
        check_draft(draft, model)
    return Combination(model=model, draft=draft, plan=whole_plan(plan, model))


def programs_of(combinations: Iterable[Combination]) -> tuple[str, ...]:
    """Return the programs that they take, each once, sorted."""
    return tuple(sorted({each.program for each in combinations}))


Report = Callable[[Sequence[Run]], None]
"""Called with the runs so far after each of them."""


def bench(
    request: Request,
    model_name: str,
    plan: Plan,
    progress: Progress,
    *,
    reference: Run | None = None,
) -> tuple[Run, Path]:
    """Run a plan on a board and keep what comes back; return it with its folder.

    Args:
        request: where, and with which source.
        model_name: a GGUF file, ``hf:ORG/REPO/FILE.gguf``, ``like:SHAPE:TYPE``,
            ``word-problems:TYPE``, ``smollm2``, ``random`` or ``demo``.
        reference: a run with the expected output.

    Raises:
        ArmloadError: as for ``execute``, or the board does not meet the requirements.
        KeyboardInterrupt: after what is there was kept.
    """
    one = _checked(request, model_name, plan, progress)
    with session(
        request, (one.program,), progress, settings=[settings_of(one.plan)], takes_groups=True
    ) as where:
        engine = one.engine(where.binaries)
        return execute(
            *(where, engine, progress),
            new=request.new,
            reference=reference,
            plain=_plain(engine, where),
            foresee=foresight(where, engine, progress),
        )


def bench_until_known(
    request: Request,
    model_name: str,
    plan: Plan,
    wanted: Precision,
    progress: Progress,
    *,
    reference: Run | None = None,
    begun: Callable[[SweepFolder], None] = lambda _: None,
    report: Report,
    heard: Heard | None = None,
) -> tuple[SweepFolder, list[Run], Stop]:
    """Run a plan again and again until its median time per token is known exactly enough.

    The runs are a sweep of one cell that grows; what an interrupted command has done of it is not
    done again. Return it with its runs, judged together, and why it has ended.

    Args:
        wanted: how exactly, and in how long.
        begun: is shown the sweep before its first run.
        report: called with the runs after each of them.
        heard: called with the text of the first run, whenever it has grown.

    Raises:
        ArmloadError, KeyboardInterrupt: as for ``bench``; repeating the command resumes from there.
    """
    one = _checked(request, model_name, plan, progress)
    with session(
        request, (one.program,), progress, settings=[settings_of(one.plan)], takes_groups=True
    ) as where:
        engine = one.engine(where.binaries)
        name = where.board.name
        plain = _plain(engine, where)
        sweep = new_sweep([name], [engine], repeats=1, warmups=0, precision=wanted)
        journal = resume_or_begin(sweep, progress, new=request.new)
        with journal.locked(progress):
            begun(journal)
            runs = journal.results()[0].get(0, [])
            # Only the first can be one that an interrupted command has left on the board.
            new = request.new
            while (stop := journal.stop(wanted, runs)) is None:
                number = len(journal.entries)
                place = SweepPoint(
                    sweep=journal.sweep.id, cell=0, round=number, precision=wanted.share
                )
                began_s = time.monotonic()
                run, _ = execute(
                    *(where, engine, progress),
                    new=new,
                    place=place,
                    reference=reference,
                    plain=plain,
                    foresee=foresight(where, engine, progress),
                    heard=None if runs else heard,
                )
                took_s = time.monotonic() - began_s
                journal.append(SweepEntry(cell=0, round=number, run=run.id, took_s=took_s))
                runs.append(run)
                report(runs)
                new = True
    return journal, judged_together(runs), stop


def _checked(request: Request, model_name: str, plan: Plan, progress: Progress) -> Combination:
    boards_called([request.board])  # a wrong name is reported before a model is made or downloaded
    return combination(model_called(model_name, progress), plan, progress)


def _plain(engine: Completion, where: Session) -> list[Run]:
    if engine.plan.speculate is None:
        return []
    return find_plain(engine.subject, where.board.name)
