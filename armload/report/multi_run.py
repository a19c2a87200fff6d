"""Several runs, or one, as a report: one page, and each of its figures as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from armload import __version__
from armload.analysis.run import Run
from armload.bench.suite import Suite
from armload.core.files import file_name_of
from armload.core.ids import time_of_id
from armload.core.workspace import reports_folder
from armload.report import formatting as words
from armload.report import run_words
from armload.report.cell_table import cell_table
from armload.report.cells import (
    Cell,
    are_a_suite,
    as_fast_as,
    boards_of,
    cells_of,
    fastest,
    unequal,
)
from armload.report.figures.distribution import distribution
from armload.report.figures.figure import Figure
from armload.report.figures.free_memory import free_memory
from armload.report.figures.memory import memory, memory_parts
from armload.report.figures.models import models
from armload.report.figures.over_time import over_time
from armload.report.figures.storage_wait import storage_wait
from armload.report.figures.threads import threads
from armload.report.pages import Page
from armload.report.run_facts import placed
from armload.report.settings import TEST, subject
from armload.report.speculation import gains
from armload.report.suite import SCORE_SENTENCE, suite_headline, suite_rows, suite_table

MOST_NAMED = 3
"""More models than that are counted."""


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Why some runs of a cell are not to be relied on, and what to do; ``remedy`` may be empty."""

    label: str
    reasons: str
    remedy: str
    runs: tuple[str, ...]


def new_folder(runs: Sequence[Run]) -> Path:
    """Return the folder for a new report, by time and what was run; it does not exist yet."""
    boards = list(dict.fromkeys(run.board.name for run in runs))
    subjects = list(dict.fromkeys(subject(run) for run in runs))
    kind_of_subject = "models" if all(run.model.name for run in runs) else "programs"
    what = "-".join(
        names[0] if len(names) == 1 else f"{len(names)}-{kind}"
        for names, kind in ((boards, "boards"), (subjects, kind_of_subject))
    )
    name = f"{time_of_id(datetime.now(UTC))}-{file_name_of(what)}"
    folder = reports_folder() / name
    number = 2
    while folder.exists():
        folder = reports_folder() / f"{name}-{number}"
        number += 1
    return folder


def runs_page(every: Sequence[Run], suite: Suite | None = None) -> Page:
    """Return the page of at least one run; warm-ups of other runs are left out.

    Args:
        suite: whose tests they are.
    """
    cells = cells_of(every)
    runs = sorted((run for cell in cells for run in cell.runs), key=lambda run: run.started_utc)
    warm_ups = len({run.id for run in every} - {run.id for run in runs})
    rows = suite_rows(runs, suite) if suite else []
    best = fastest(cells)
    limited = best.typical if best else None
    where = f"{best.label}: " if best and len(cells) > 1 else ""
    return Page(
        template="multi_run.html.j2",
        headline=suite_headline(suite, rows) if suite and rows else headline(cells),
        version=__version__,
        figures=figures_of(cells),
        table=cell_table(cells),
        shown={
            "remarks": (
                *(rivals(cells), *gains({cell.label: cell for cell in cells}), *unequal(cells)),
                counted(cells, warm_ups),
            ),
            "boards": dict.fromkeys(run_words.board_line(run) for run in runs),
            "times": " to ".join(
                dict.fromkeys(run_words.started(run) for run in (runs[0], runs[-1]))
            ),
            "verdict_line": verdict_line(cells),
            "is_valid": all(run.verdict.valid for run in runs),
            "limited": limited,
            "limit": f"{where}{limited.limit.sentence}" if limited else "",
            "advice": run_words.advice(limited) if limited else "",
            "table_sentence": table_sentence(cells),
            "suite": suite,
            "suite_sentence": SCORE_SENTENCE,
            "suite_table": suite_table(rows),
            "doubts": doubts(cells),
            "ran": _ran(runs),
            "ids": [(cell.label, ", ".join(run.id for run in cell.runs)) for cell in cells],
        },
    )


def figures_of(cells: Sequence[Cell]) -> list[Figure]:
    """Return the figures in the order in which a person reads them, results first."""
    drawn = (
        threads(cells, "decode"),
        threads(cells, "prefill"),
        models(cells),
        over_time(cells),
        storage_wait(cells),
        distribution(cells),
        memory_parts(cells) or memory(cells),
        free_memory(cells),
    )
    return [figure for figure in drawn if figure]


def headline(cells: Sequence[Cell]) -> str:
    """Say the best result in one sentence."""
    best = fastest(cells)
    if best is None or best.decode_tps is None:
        if are_a_suite(cells):
            tests = len({cell.settings[TEST] for cell in cells})
            return f"{tests} tests of a suite on {', '.join(boards_of(cells))}"
        if any(cell.is_valid for cell in cells):
            return _without_a_rate(cells)
        tried = (
            "No run" if any(cell.counted for cell in cells) else "No token was generated: no run"
        )
        return f"{tried} is valid, so there are no reliable figures"
    speed = run_words.speed(best.median_s, best.decode_tps.value)
    if len(cells) == 1:
        return f"{speed} on {best.runs[0].board.name}"
    board = "" if len(boards_of(cells)) > 1 else f" on {best.runs[0].board.name}"
    return f"{speed} at best{board}: {best.label}"


def _without_a_rate(cells: Sequence[Cell]) -> str:
    """Summarize valid runs without a rate, such as those of programs that report none."""
    valid = [run for cell in cells for run in cell.valid]
    if len(cells) == len(valid) == 1:
        return run_words.headline(valid[0])
    boards = boards_of(cells)
    where = f"on {boards[0]}" if len(boards) == 1 else f"on {len(boards)} boards"
    rates = {cell: per_s for cell in cells if cell.valid and (per_s := cell.value("texts_per_s"))}
    if rates:
        best = max(rates, key=rates.__getitem__)
        return f"{words.rate(rates[best])} texts per second at best {where}: {best.label}"
    return f"{words.counted(len(valid), 'valid run')} {where}, without tokens per second"


def rivals(cells: Sequence[Cell]) -> str:
    """Say how many others may be as fast as the best; nothing where none may."""
    best = fastest(cells)
    alike = as_fast_as(best, cells) if best else []
    if not alike:
        return ""
    others = "one other" if len(alike) == 1 else f"{len(alike)} others"
    return f"Not clearly the fastest: {others} may be as fast (95% confidence)."


def counted(cells: Sequence[Cell], warm_ups: int = 0) -> str:
    """Say how many runs of how many settings there are, and how many warm-ups."""
    models = {run.model.sha256 or subject(run): run for run in (cell.runs[0] for cell in cells)}
    if len(models) == 1:
        run = next(iter(models.values()))
        named = run_words.model_line(run) or run_words.binary_line(run)
    elif len(models) <= MOST_NAMED:
        named = ", ".join(map(subject, models.values()))
    else:
        named = f"{len(models)} models on {words.counted(len(boards_of(cells)), 'board')}"
    runs = words.counted(sum(len(cell.runs) for cell in cells), "run")
    settings = f" of {len(cells)} configurations" if len(cells) > 1 else ""
    aside = f", {words.counted(warm_ups, 'warm-up')} left out" if warm_ups else ""
    return f"{runs}{settings}{aside}: {named}"


def verdict_line(cells: Sequence[Cell]) -> str:
    """Say how many runs are valid, and how the others are treated."""
    runs = sum(len(cell.runs) for cell in cells)
    valid = sum(len(cell.valid) for cell in cells)
    if valid == runs:
        few = {1: "This run is valid.", 2: "Both runs are valid."}
        return few.get(runs, f"All {runs} runs are valid.")
    if valid == 0:
        return "Do not rely on these figures: no run is valid."
    sentence = f"{runs - valid} of {runs} runs {'is' if runs - valid == 1 else 'are'} not valid"
    return (
        f"{sentence}. Such runs are marked; disturbed ones are excluded if the same configuration "
        "also has undisturbed runs."
    )


def table_sentence(cells: Sequence[Cell]) -> str:
    """Say what the table's figures are."""
    if all(len(cell.runs) == 1 for cell in cells):
        return "Each row is one run; below a rate is its 95% confidence interval."
    doubtful = " (of all with figures, where all were disturbed)"
    without = any(cell.counted and not cell.is_valid for cell in cells)
    return (
        f"Each row is the median of its undisturbed runs{doubtful if without else ''}; below a "
        "rate is its 95% confidence interval. Maximum and peak memory are those of the worst run."
    )


def doubts(cells: Sequence[Cell]) -> list[Doubt]:
    """Return what stands against runs, each thing once, be it with other figures in other cells."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        for run in cell.runs:
            if not run.verdict.valid:
                row = (cell.label, " ".join(run.verdict.reasons), run.exit.remedy)
                found.setdefault(row, []).append(run.id)
    disturbed = [
        _together(group, found) for group in words.alike(found, lambda each: "\n".join(each[1:]))
    ]
    lacking = [
        Doubt(
            label=cell.label,
            reasons=cell.too_few,
            remedy="",
            runs=tuple(run.id for run in cell.counted),
        )
        for cell in cells
        if cell.too_few
    ]
    return [*disturbed, *lacking]


def _together(
    group: Sequence[tuple[str, str, str]], runs: Mapping[tuple[str, str, str], Sequence[str]]
) -> Doubt:
    labels, (first, *others) = [label for label, *_ in group], [each for _, each, _ in group]
    return Doubt(
        label="; ".join(dict.fromkeys(labels)),
        reasons=first if {*others} <= {first} else f"{first} {_FIRST}",
        remedy=group[0][2],
        runs=tuple(run for each in group for run in runs[each]),
    )


_FIRST = "Figures are those of the first run; the others have the same problem."


def _ran(runs: Sequence[Run]) -> list[tuple[str, str]]:
    kinds = (
        ("board", run_words.board_line),
        ("model", run_words.model_line),
        ("binary", run_words.binary_line),
        ("computed on", _computed_on),
    )
    return [
        (label, line)
        for label, describe in kinds
        for line in dict.fromkeys(describe(run) for run in runs)
        if line
    ]


def _computed_on(run: Run) -> str:
    """Say which GPU was meant, and what fell back to the CPU; nothing of other runs."""
    if run.plan is None or not run.plan.on_gpu:
        return ""
    return f"{run.plan.device}: {'; '.join(placed(run))}"
