"""A sweep in words: a line for each run as it comes, and a table of its cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, get_args

from pydantic import BaseModel
from rich.console import Group
from rich.text import Text

from armload.analysis.figures import DECODE
from armload.analysis.pairing import differences
from armload.analysis.run import Run
from armload.analysis.statistics import FEWEST_RUNS
from armload.analysis.verdict import KeptFinding
from armload.bench.suite import Suite, SuiteScore
from armload.bench.sweep import Sweep, SweepFolder
from armload.core.columns import Column, Estimate, main_ones
from armload.core.errors import ArmloadError, RunError
from armload.core.progress import Progress
from armload.core.shell import program_name
from armload.core.values import Value
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.report import formatting as words
from armload.report.cell_table import VALID_RUNS
from armload.report.cells import CELL_FIGURES, Cell, cells_of, fastest, tps_of, unequal
from armload.report.comparison import each_once
from armload.report.layout import Prose, Table
from armload.report.multi_run import rivals
from armload.report.result import Part, Result, labelled
from armload.report.run_words import short_verdict
from armload.report.settings import (
    BOARD,
    MODEL,
    NONE,
    REPACKED,
    TEST,
    THREADS,
    Settings,
    choices_of,
    differing,
)
from armload.report.speculation import SpeculationOfCell, gains, speculation_of
from armload.report.suite import suite_rows, suite_table


def names_of_cells(sweep: Sweep) -> list[Settings]:
    """Return what tells each cell from the others, by what it is; of one cell, its model."""
    each = [
        {MODEL: cell.model, TEST: sweep.test_of(number) or NONE, **choices_of(cell.plan)}
        for number, cell in enumerate(sweep.cells)
    ]
    names = differing(each) or [MODEL]
    return [{name: settings[name] for name in names} for settings in each]


class SweepProgress:
    """Says a line for each run of a sweep, under a head; what may be long comes last."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begin(self, journal: SweepFolder) -> None:
        """Say what is there already."""
        journal.say_resumed(self._progress, "run")
        sweep = journal.sweep
        self._names = [_in_a_line(name) for name in names_of_cells(sweep)]
        self._total = len(sweep.cells) * (sweep.repeats + sweep.warmups)
        self._done = len(journal.entries)
        self._has_begun = False

    def report(
        self, place: SweepPoint, ended: Run | ArmloadError, progress: Progress | None = None
    ) -> None:
        """Say how a run ended, or why it could not be started; before the first, the columns."""
        for line in self.lines(place, ended):
            (progress or self._progress).say(line)

    def lines(self, place: SweepPoint, ended: Run | ArmloadError) -> Iterator[str]:
        """Yield the line of a run, or of one that could not be started; first the head, once."""
        if not self._has_begun:
            self._has_begun = True
            is_of_texts = not isinstance(ended, ArmloadError) and ended.summary.texts
            per = "per text" if is_of_texts else "per token"
            head = f"{'run'.rjust(self._number_width)}  {per:>9}"
            yield f"{head}  {'prefill':>7}  {'decode':>7} (tok/s)"
        self._done += 1
        number = f"{self._done}/{self._total}".rjust(self._number_width)
        if isinstance(ended, ArmloadError):
            per_token = prefill = decode = words.UNKNOWN
            verdict = ended.message
        else:
            per_token = words.seconds(ended.summary.median_s)
            prefill = words.rate(ended.summary.prefill_tps)
            decode = words.rate(ended.summary.decode_tps)
            verdict = _short_verdict(place, ended)
        figures = f"{per_token:>9}  {prefill:>7}  {decode:>7}"
        yield f"{number}  {figures}  {self._names[place.cell]}: {verdict}"

    @property
    def _number_width(self) -> int:
        return 2 * len(str(self._total)) + 1


def _short_verdict(place: SweepPoint, run: Run) -> str:
    if run.exit.status != 0:
        return run.exit.meaning
    return "warm-up" if place.warm_up else short_verdict(run)


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """The result of one of a sweep's cells.

    Attributes:
        number: of the cell in the sweep.
        name: what tells it from the others.
        cell: its runs without the warm-ups; none where there is none.
        error: why it could not be started; empty where it could.
    """

    number: int
    name: Mapping[str, str]
    cell: Cell | None
    error: str

    @property
    def doubt(self) -> str:
        """The first reason to doubt its figures; empty if there is none."""
        if self.error:
            return self.error
        if self.cell is None:
            return ""
        return next((each.sentence for each in self._findings), self.cell.too_few)

    @property
    def name_of_doubt(self) -> str:
        return next((each.name for each in self._findings), "imprecise")

    @property
    def _findings(self) -> list[KeptFinding]:
        return (
            [each for run in self.cell.runs for each in run.verdict.findings] if self.cell else []
        )


def cell_results(
    sweep: Sweep, runs: Mapping[int, Sequence[Run]], errors: Mapping[int, str]
) -> list[CellResult]:
    """Return the result of each cell, in the sweep's order.

    A cell is listed for each board of a divided sweep that ran it, and twice if free memory allowed
    only some of its runs to repack the weights.

    Args:
        runs: of each cell, without warm-ups.
        errors: why a cell could not be started.
    """
    cells: dict[int, Sequence[Cell | None]] = {
        number: cells_of(its_runs) for number, its_runs in runs.items() if its_runs
    }
    boards = {
        number: {cell.settings[BOARD] for cell in its if cell} for number, its in cells.items()
    }
    is_mixed = any(len(several) > len(boards[number]) for number, several in cells.items())

    def named(name: Settings, cell: Cell | None) -> Settings:
        named = dict(name)
        if len(sweep.boards) > 1:
            named[BOARD] = cell.settings[BOARD] if cell else NONE
        if is_mixed:
            named[REPACKED] = cell.settings[REPACKED] if cell else NONE
        return named

    return [
        CellResult(
            number=number,
            name=named(name, cell),
            cell=cell,
            error=errors.get(number, ""),
        )
        for number, name in enumerate(names_of_cells(sweep))
        for cell in cells.get(number, (None,))
    ]


def sweep_table(results: Sequence[CellResult]) -> Table:
    """Lay out a sweep, one cell a line, the fastest marked.

    Several cells have the numbers by which a command names them: ``SWEEP/2``.
    """
    cells = [each.cell for each in results if each.cell is not None]
    guesses = {id(cell): speculation_of(cell, cells) for cell in cells}
    best = fastest(cells) if len(cells) > 1 else None
    is_numbered = len({each.number for each in results}) > 1
    number = Column[CellResult](heading="cell", of=lambda each: each.number + 1, is_number=True)
    names = [*results[0].name, *([] if THREADS in results[0].name else [THREADS])]
    figures = (VALID_RUNS, *main_ones(CELL_FIGURES))
    columns = (
        *([number] if is_numbered else []),
        *(
            Column(heading=name, of=partial(_setting, name), below="" if name == MODEL else None)
            for name in names
        ),
        *(each.through(lambda result: result.cell) for each in figures),
        *(each.through(lambda result: guesses.get(id(result.cell))) for each in _GUESSES),
        Column(
            heading="",
            of=lambda each: _remark(each, is_best=bool(best) and each.cell is best),
            below="",
        ),
    )
    return Table.of(columns, results)


def _setting(name: str, result: CellResult) -> str:
    if name in result.name:
        return result.name[name]
    return result.cell.settings[name] if result.cell else NONE


_GUESSES: tuple[Column[SpeculationOfCell], ...] = (
    Column(
        heading="tokens\nper pass",
        of=lambda found: found.tokens_per_pass,
        write="{:.2f}".format,
        is_optional=True,
    ),
    Column(
        heading="drafts\naccepted",
        of=lambda found: found.acceptance_rate,
        write="{:.0%}".format,
        is_optional=True,
    ),
)


def notes(results: Sequence[CellResult]) -> list[str]:
    """Return the doubts about single cells, each once, and about the fastest; what guesses gave."""
    disturbed: list[tuple[str, str]] = []
    imprecise: list[tuple[str, str]] = []
    for each in results:
        # How many repeats a cell lacks is its own.
        of_cell = each.cell is not None and each.doubt == each.cell.too_few
        (imprecise if of_cell else disturbed).append((_in_a_line(each.name), each.doubt))
    doubts = [
        *each_once(each for each in disturbed if each[1]),
        *(f"{name}: {doubt}" for name, doubt in imprecise if doubt),
    ]
    by_name = {_in_a_line(each.name): each.cell for each in results if each.cell is not None}
    cells = list(by_name.values())
    return [*doubts, *filter(None, [rivals(cells)]), *gains(by_name), *unequal(cells)]


def comparable(results: Sequence[CellResult]) -> tuple[CellResult, CellResult] | None:
    """Return the first cell that did the same work as another, and the fastest such other.

    None where no two cells can be compared.
    """
    timed = [(each, each.cell.figures[0]) for each in results if each.cell and each.cell.figures]
    for first, done in timed:
        others = [
            each
            for each, its in timed
            if each.number != first.number
            and each.name.get(TEST) == first.name.get(TEST)
            and not differences(done, its, DECODE)
        ]
        if others:
            return first, max(others, key=lambda each: tps_of(each.cell) if each.cell else 0.0)
    return None


def comparison_of(sweep: Sweep, results: Sequence[CellResult]) -> str:
    """Return the command that compares two of a sweep's cells, or how often to repeat them first.

    Empty where no two cells can be compared.
    """
    pair = comparable(results)
    if pair is None:
        return ""
    if sweep.repeats < FEWEST_RUNS:
        return (
            f"run the sweep with --repeats {FEWEST_RUNS} first: "
            f"{words.counted(sweep.repeats, 'run')} per cell cannot show how much runs differ"
        )
    a, b = (f"{sweep.id}/{each.number + 1}" for each in pair)
    return f"{program_name()} compare {a} {b}"


@dataclass(frozen=True, kw_only=True)
class SweepResult(Result):
    """What is done of a sweep."""

    journal: SweepFolder

    @cached_property
    def cells(self) -> Sequence[CellResult]:
        return cell_results(self.journal.sweep, *self.journal.results())

    def document(self) -> BaseModel:
        return swept_cells(self.journal.sweep, self.cells)

    def view(self) -> Iterable[Part]:
        sweep = self.journal.sweep
        yield sweep_view(self.cells)
        yield from suite_view([sweep], self.cells)
        rows: list[tuple[str, object]] = [
            ("sweep", self.journal.folder),
            ("charts", f"{program_name()} report {sweep.id}"),
        ]
        if command := comparison_of(sweep, self.cells):
            rows.append(("compare", command))
        yield from labelled(9, rows)


@dataclass(frozen=True, kw_only=True)
class NewSweep(SweepResult):
    """A sweep that ran now, on its board or divided between several.

    Attributes:
        failed: why boards failed at it.
    """

    failed: ArmloadError | None = None

    @property
    def error(self) -> ArmloadError | None:
        return self.failed or lacking_runs(self.cells, self.journal.sweep.boards)


def lacking_runs(results: Sequence[CellResult], boards: Sequence[str]) -> RunError | None:
    """Return what is wrong where every run of a sweep failed."""
    if any(run.exit.status == 0 for each in results if each.cell for run in each.cell.runs):
        return None
    return RunError(
        f"{', '.join(boards)}: no run of the sweep completed.",
        "The table shows why; the runs are kept.",
    )


def sweep_view(results: Sequence[CellResult]) -> Group:
    """Lay out a sweep with what there is to say of it."""
    return Group(sweep_table(results), *(Prose(note, style="dim") for note in notes(results)))


def suite_view(sweeps: Sequence[Sweep], results: Sequence[CellResult]) -> Iterator[Part]:
    """Yield the scores of the suite that sweeps ran, if they ran one."""
    suite = next((sweep.suite for sweep in sweeps if sweep.suite is not None), None)
    if suite is not None and (table := suite_table(suite_rows(_runs(results), suite))):
        yield Text(f"Suite {suite.title}")
        yield table


Quantile = Literal["p50", "p90", "p99", "max"]


class SweptCell(Value):
    """What the repeats of a cell say; raw samples stay in the runs.

    Attributes:
        model: the file's name.
        plan: what was run.
        board: that its runs are from; empty without a run.
        error: why it could not be started; empty where it could.
        runs: ids of its runs, without the warm-ups.
        ended: how many of them ended well.
        valid: how many of them are valid.
        prefill_tps, decode_tps: medians over runs; none without a run that counts.
        ttft_s, token_s: medians over runs, but for the largest of ``max``.
        max_rss_bytes: most of any run.
        speculation: what guessed tokens gave; none where none were to be guessed.
        weights_repacked: whether llama.cpp repacked them; none without a run.
        too_few: why the runs are too few, or what it takes to know the rate; else empty.
    """

    model: str
    plan: Plan
    board: str = ""
    error: str
    runs: tuple[str, ...] = ()
    ended: int = 0
    valid: int = 0
    prefill_tps: Estimate | None = None
    decode_tps: Estimate | None = None
    ttft_s: float | None = None
    token_s: dict[Quantile, float | None] | None = None
    max_rss_bytes: int | None = None
    speculation: SpeculationOfCell | None = None
    weights_repacked: bool | None = None
    too_few: str = ""


class SuiteScoreOf(Value):
    """What a suite gave with one model on one board by one method.

    Attributes:
        model: the file's name.
        threads: that decoded; none if no trace says so.
        runs: ids of the runs of its tests.
    """

    board: str
    model: str
    threads: int | None
    runs: tuple[str, ...]
    score: SuiteScore


class SuiteResult(Value):
    """The suite whose tests a sweep's cells are, and its scores.

    Attributes:
        name, version, checksum: results compare where all three are the same.
        scores: the best first, incomplete ones last.
    """

    name: str
    version: int
    checksum: str
    scores: tuple[SuiteScoreOf, ...]


class SweptCells(Value):
    """A sweep, and what became of its cells.

    Attributes:
        suite: none for a sweep of other cells.
    """

    sweep: str
    boards: tuple[str, ...]
    repeats: int
    suite: SuiteResult | None = None
    cells: tuple[SweptCell, ...]


def swept_cells(sweep: Sweep, results: Sequence[CellResult]) -> SweptCells:
    """Return what a sweep's results say, for programs."""
    cells = [each.cell for each in results if each.cell is not None]
    return SweptCells(
        sweep=sweep.id,
        boards=sweep.boards,
        repeats=sweep.repeats,
        suite=_suite_result(sweep.suite, results) if sweep.suite else None,
        cells=tuple(
            _swept(sweep.cells[each.number].model, sweep.cells[each.number].plan, each, cells)
            for each in results
        ),
    )


def _suite_result(suite: Suite, results: Sequence[CellResult]) -> SuiteResult:
    return SuiteResult(
        name=suite.name,
        version=suite.version,
        checksum=suite.checksum,
        scores=tuple(
            SuiteScoreOf(
                board=row.runs[0].board.name,
                model=row.runs[0].model.name,
                threads=row.threads,
                runs=tuple(run.id for run in row.runs),
                score=row.score,
            )
            for row in suite_rows(_runs(results), suite)
        ),
    )


def _runs(results: Sequence[CellResult]) -> list[Run]:
    return [run for each in results if each.cell is not None for run in each.cell.runs]


def _swept(model: str, plan: Plan, result: CellResult, cells: Sequence[Cell]) -> SweptCell:
    cell = result.cell
    if cell is None:
        return SweptCell(model=model, plan=plan, error=result.error)
    return SweptCell(
        model=model,
        plan=plan,
        board=cell.settings[BOARD],
        error=result.error,
        runs=tuple(run.id for run in cell.runs),
        ended=sum(run.exit.status == 0 for run in cell.runs),
        valid=len(cell.valid),
        prefill_tps=cell.prefill_tps,
        decode_tps=cell.decode_tps,
        ttft_s=cell.value("ttft_s"),
        token_s={name: cell.value(f"token_{name}_s") for name in get_args(Quantile)},
        max_rss_bytes=cell.max_rss_bytes,
        speculation=speculation_of(cell, cells),
        weights_repacked=cell.settings[REPACKED] == "yes",
        too_few=cell.too_few,
    )


def _remark(each: CellResult, *, is_best: bool) -> Text:
    cell = each.cell
    if each.error or (cell is not None and not cell.counted):
        return Text("failed", style="red")
    if each.doubt:
        remark = f"fastest, {each.name_of_doubt}" if is_best else each.name_of_doubt
        return Text(remark, style="yellow" if cell and cell.is_valid else "red")
    return Text("fastest", style="green") if is_best else Text("")


def _in_a_line(name: Mapping[str, str]) -> str:
    return ", ".join(_said(*each) for each in name.items())


def _said(name: str, value: str) -> str:
    if name == THREADS and value.isdecimal():
        return words.counted(int(value), "thread")
    return value if name in (MODEL, TEST) else f"{name} {value}"
