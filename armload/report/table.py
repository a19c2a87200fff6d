"""Runs as tables for a terminal.

What came from a file or a board is printed as it is, never read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.figures import FIGURES
from armload.analysis.run import Run
from armload.core.columns import Column, main_ones
from armload.core.errors import ArmloadError, RunError
from armload.core.workspace import RUN_FILE
from armload.report import formatting as words
from armload.report import run_words
from armload.report.board_state import busy_devices, clock_use_line
from armload.report.layout import Details, Prose, Table, whole
from armload.report.result import Part, Result, labelled
from armload.report.run_facts import facts, stage_table
from armload.report.settings import suite_test_of
from armload.report.speculation import gain_lines, speculation_line

if TYPE_CHECKING:
    from armload.report.pages import Page

_IMPORTED = "measured by somebody else; names, prompt and text may have been left out"


@dataclass(frozen=True, kw_only=True)
class RunResult(Result):
    """A run."""

    run: Run

    def document(self) -> BaseModel:
        return self.run

    def view(self) -> Iterable[Part]:
        yield run_table(self.run)


@dataclass(frozen=True, kw_only=True)
class NewRun(RunResult):
    """A run that was made now, in its folder."""

    folder: Path

    @property
    def error(self) -> ArmloadError | None:
        run = self.run
        if run.exit.status == 0:
            return None
        remedy = f"{run.exit.remedy} What was fetched is in {self.folder}."
        return RunError(f"{run.board.name}: {run.exit.meaning}", remedy.strip())

    @property
    def home(self) -> Path:
        return self.folder

    def page(self, folder: Path) -> Page:
        from armload.report.run_page import run_page

        return run_page(self.run, folder)

    @cached_property
    def files(self) -> Mapping[str, Path]:
        from armload.report.run_page import write_picture

        picture = write_picture(self.run, self.folder)
        return {**super().files, **({"picture": picture} if picture else {})}

    def view(self) -> Iterable[Part]:
        yield from super().view()
        yield from labelled(9, [*self.files.items(), ("record", self.folder / RUN_FILE)])


def run_table(run: Run) -> Group:
    """Lay out one run: what ran where, its figures, and what limited it."""
    if not run.steps and run.summary.decode_tps is None:
        return Group(_details(run))
    lines: list[RenderableType] = [_details(run), Text(""), Table.of(FIGURES, [run])]
    if (stages := stage_table(run)) is not None:
        lines += [Text(""), stages]
    if sentence := run_words.limit_sentence(run):
        limit = Text.assemble(sentence, " ", (run_words.advice(run), "bold"))
        lines += [Text(""), Prose(limit)]
    return Group(*lines)


def list_table(runs: Sequence[Run]) -> Table:
    """Lay out several runs, one a line; a run is found again by the end of its id."""
    return Table.of(_LISTED, runs)


def _what_ran(run: Run) -> str:
    test = suite_test_of(run)
    return f"{run_words.what_ran(run)}{_threads(run)}{f', {test}' if test else ''}"


def _threads(run: Run) -> str:
    threads = run.trace.threads if run.trace else None
    if threads is None and run.plan is not None:
        threads = run.plan.threads
    return "" if threads is None else f", {words.counted(threads, 'thread')}"


def _details(run: Run) -> Details:
    rows: list[tuple[str, str | Text]] = [
        ("run", whole(run.id)),
        ("imported", _IMPORTED if run.is_excerpt else ""),
        *facts(run),
        ("result", run_words.result_line(run)),
        ("slow tokens", run_words.slow_tokens(run)),
        ("conditions set", run_words.setting_line(run)),
        ("device clocks", clock_use_line(busy_devices(run.device_clocks))),
        ("background processes", run_words.background_line(run)),
        ("speculation", "\n".join(filter(None, (speculation_line(run), *gain_lines(run))))),
        ("text", run_words.reference_line(run)),
        ("note", "\n".join(run.notes)),
    ]
    ended = Text(run.exit.meaning, style="" if run.exit.status == 0 else "red")
    if run.exit.remedy:
        ended = Text.assemble(ended, "\n", (run.exit.remedy, "bold"))
    rows += [("exit", ended), ("verdict", _verdict(run, run_words.verdict_line(run)))]
    return Details((label, value) for label, value in rows if value)


def _verdict(run: Run, said: str) -> Text:
    if run.exit.kind == "stopped":
        return Text(said, style="yellow")
    return Text(said, style="green" if run.verdict.valid else "red")


_LISTED: tuple[Column[Run], ...] = (
    Column(heading="id", of=lambda run: run.id[-4:], style="bold"),
    Column(heading="when (UTC)", of=lambda run: words.minute(run.started_utc)),
    Column(heading="board", of=lambda run: run.board.name, below=""),
    Column(heading="what ran", of=_what_ran, below=""),
    *main_ones(FIGURES),
    Column(heading="verdict", of=lambda run: _verdict(run, run_words.short_verdict(run)), below=""),
)
