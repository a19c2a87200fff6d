"""Runs as cells: repeats of the same plan, model, program and board, and which is the fastest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from typing import Literal

from armload.analysis.equal_boards import unequal_boards
from armload.analysis.figures import FIGURES
from armload.analysis.measurement import measurement_of
from armload.analysis.precision import MOST_MORE_RUNS, too_different
from armload.analysis.repeats import counts, known
from armload.analysis.run import Run
from armload.analysis.statistics import (
    FEWEST_RUNS,
    Interval,
    interval_of_few,
    ratio_of_runs,
    ratio_of_tokens,
    runs_for_precision,
)
from armload.core.columns import Column, Estimate
from armload.engines.llama_cpp import repacked
from armload.engines.measurement import Measurement
from armload.engines.plan import WITHOUT_EFFECT
from armload.engines.prediction import Bottleneck
from armload.report.settings import (
    BOARD,
    NONE,
    TEST,
    THREADS,
    Settings,
    labels,
    settings_of,
    subject,
)

State = Literal["valid", "partly valid", "not valid", "failed"]


KNOWN_WITHIN = 0.05
"""A rate that is not known better than this after several repeats asks for more of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """Repeats of one measurement.

    Attributes:
        runs: all of them, at least one, the oldest first.
        settings: every choice that they were made with.
        parts: the words that tell this cell from the others, by the name of the setting.
    """

    runs: tuple[Run, ...]
    settings: Settings
    parts: Mapping[str, str]

    @property
    def label(self) -> str:
        """What tells this cell from the others, in few words."""
        return self.label_without() or subject(self.runs[0])

    @property
    def series(self) -> str:
        """The same without the number of threads."""
        return self.label_without(THREADS) or subject(self.runs[0])

    @property
    def doubted_label(self) -> str:
        """The label, with a word of warning where no run is valid."""
        return self.label if self.is_valid else f"{self.label} (not valid)"

    def label_without(self, *names: str) -> str:
        """Return the label without some settings; empty where nothing is left."""
        return ", ".join(word for name, word in self.parts.items() if name not in names)

    @cached_property
    def valid(self) -> tuple[Run, ...]:
        """The runs whose figures may be believed."""
        return tuple(run for run in self.runs if run.verdict.valid)

    @cached_property
    def counted(self) -> tuple[Run, ...]:
        """The runs that the figures are from: the undisturbed, or where none is, all with any."""
        undisturbed = tuple(run for run in self.runs if run.verdict.valid or counts(run))
        return undisturbed or tuple(
            run for run in self.runs if run.summary.decode_tps or run.summary.texts
        )

    @property
    def is_valid(self) -> bool:
        """Whether there is a run to believe."""
        return bool(self.valid)

    @property
    def state(self) -> State:
        """How far the runs may be believed; failed, where none generated anything."""
        if not self.counted:
            return "failed"
        if not self.valid:
            return "not valid"
        return "valid" if len(self.valid) == len(self.runs) else "partly valid"

    @property
    def threads(self) -> int | None:
        """How many threads decoded, as far as it is known."""
        return _threads(_best_known(self.runs))

    @cached_property
    def figures(self) -> tuple[Measurement, ...]:
        """What was measured in the runs that count."""
        return tuple(measurement_of(run) for run in self.counted)

    @cached_property
    def decode_tps(self) -> Estimate | None:
        """Generated tokens per second."""
        return estimate((each.decode_tps for each in self.figures), self.rows_s)

    @cached_property
    def prefill_tps(self) -> Estimate | None:
        """Prompt tokens per second."""
        return estimate(each.prefill_tps for each in self.figures)

    @cached_property
    def per_token_s(self) -> Estimate | None:
        """Median time per output token.

        The interval is the one that ``show`` gives for the run, or for the repeats; of too few
        repeats it has no upper end.
        """
        if any(run.summary.texts for run in self.runs):
            return None
        if any(run.place is not None and run.place.precision is not None for run in self.runs):
            found = known(self.runs)
            if found is not None:
                within_s = found.interval_s or Interval(low=0.0, high=math.inf)
                return Estimate(value=found.median_s, low=within_s.low, high=within_s.high)
        return estimate((run.summary.median_s for run in self._timed), self.rows_s)

    @property
    def median_s(self) -> float | None:
        """The same without its interval."""
        return self.per_token_s.value if self.per_token_s else None

    @cached_property
    def rows_s(self) -> tuple[tuple[float, ...], ...]:
        """Seconds of every output token, a row for each run that has them."""
        return tuple(each.token_s for each in self.figures if each.token_s)

    def value(self, key: str) -> float | None:
        """Return a figure over the runs, without its interval, by the key of its column."""
        found = next(each.of(self) for each in CELL_FIGURES if each.key == key)
        return found.value if isinstance(found, Estimate) else found

    @cached_property
    def too_few(self) -> str:
        """Say how many more repeats it takes to know the decode rate; nothing where they do."""
        rates = [each.decode_tps for each in self.figures if each.decode_tps]
        if len(rates) < FEWEST_RUNS:
            return ""  # nobody asked for an interval
        more = runs_for_precision(rates, KNOWN_WITHIN) - len(rates)
        if more <= 0:
            return ""
        needed = f"{more} more repeats are needed."
        if more > MOST_MORE_RUNS:
            needed = too_different(self.runs[0].board.workstation)
        return (
            f"Imprecise: the median of the decode rate is not known within {KNOWN_WITHIN:.0%}. "
            f"{needed}"
        )

    @property
    def max_rss_bytes(self) -> int | None:
        """Most resident memory of any run, valid or not: each of them needed it."""
        return max((run.memory.max_rss_bytes for run in self.runs if run.memory), default=None)

    @cached_property
    def limit(self) -> Bottleneck:
        """What limited most of the runs that count."""
        causes = Counter(run.limit.cause for run in self.counted)
        return causes.most_common(1)[0][0] if causes else "unknown"

    @cached_property
    def typical(self) -> Run | None:
        """The run whose median time per token is nearest to the cell's; none without tokens."""
        middle_s = self.median_s
        if middle_s is None:
            return None
        return min(self._timed, key=lambda run: abs((run.summary.median_s or math.inf) - middle_s))

    @cached_property
    def _timed(self) -> tuple[Run, ...]:
        return tuple(run for run in self.counted if run.summary.token_s and run.trace)


def cells_of(runs: Iterable[Run]) -> list[Cell]:
    """Group runs into cells, sorted by board, model and threads.

    A run that is named twice counts once. The warm-ups of a sweep are left out, unless there is
    nothing else.
    """
    every = list(runs)
    groups: dict[tuple[str, ...], dict[str, Run]] = {}
    for run in [run for run in every if not is_warm_up(run)] or every:
        groups.setdefault(_key(run), {})[run.id] = run
    sorted_groups = [
        tuple(sorted(group.values(), key=lambda run: run.started_utc)) for group in groups.values()
    ]
    sorted_groups.sort(key=_place)
    words = labels([_best_known(group) for group in sorted_groups])
    return [
        Cell(runs=group, settings=settings_of(_best_known(group)), parts=parts)
        for group, parts in zip(sorted_groups, words, strict=True)
    ]


def configurations_of(cells: Iterable[Cell]) -> list[list[Run]]:
    """Return the runs that count of each configuration, on whichever boards they were."""
    found: dict[tuple[str, ...], list[Run]] = {}
    for cell in cells:
        found.setdefault(_key(cell.runs[0])[1:], []).extend(cell.counted)
    return list(found.values())


def unequal(cells: Iterable[Cell]) -> list[str]:
    """Say which boards are declared identical but differ by more than their repeats."""
    return [each.sentence() for each in unequal_boards(configurations_of(cells))]


def is_warm_up(run: Run) -> bool:
    """Tell whether a run only prepared the board for others."""
    return run.place is not None and run.place.warm_up


def estimate(
    samples: Iterable[float | None], rows_s: Iterable[Sequence[float]] = ()
) -> Estimate | None:
    """Return the median of one figure per run with its interval; none without figures.

    Args:
        rows_s: as for ``interval_of_few``.
    """
    known = [sample for sample in samples if sample is not None and 0 < sample < math.inf]
    if not known:
        return None
    interval = interval_of_few(known, rows_s)
    return Estimate(value=median(known), low=interval.low, high=interval.high)


def _median(figure: Column[Run], cell: Cell) -> float | None:
    values = [value for run in cell.counted if (value := figure.of(run)) is not None]
    return median(values) if values else None


_OTHER_THAN_MEDIAN: Mapping[str, Callable[[Cell], Estimate | float | None]] = {
    "prefill_tps": lambda cell: cell.prefill_tps,
    "decode_tps": lambda cell: cell.decode_tps,
    "token_p50_s": lambda cell: cell.per_token_s,
    "token_max_s": lambda cell: max(
        (run.summary.token_s.max for run in cell.counted if run.summary.token_s), default=None
    ),
    "max_rss_bytes": lambda cell: cell.max_rss_bytes,
}
CELL_FIGURES: tuple[Column[Cell], ...] = tuple(
    figure.from_another(_OTHER_THAN_MEDIAN.get(figure.key) or partial(_median, figure))
    for figure in FIGURES
)
"""The figures of a run over the runs of a cell that count."""


def _key(run: Run) -> tuple[str, ...]:
    asked = run.plan or run.watched
    plan = asked.model_dump_json(exclude={*WITHOUT_EFFECT, "threads"}) if asked else ""
    plan += f" {_threads(run)}"
    if run.is_excerpt:  # its prompt may have been left out
        plan += f" {run.summary.prefill_tokens}"
    kernels = str(run.plan is None or repacked(run.command))
    return (run.board.name, run.model.sha256, run.binary.sha256, plan, kernels)


def _best_known(group: Sequence[Run]) -> Run:
    return next((run for run in group if run.trace), group[0])


def _place(group: Sequence[Run]) -> tuple[str, int, str, int, int, str]:
    run = _best_known(group)
    weights_bytes = run.model.bytes_per_token or 0
    test = run.place.cell if run.place is not None and run.place.test else 0
    return (run.board.name, weights_bytes, run.model.name, _threads(run) or 0, test, run.id)


def _threads(run: Run) -> int | None:
    if run.trace is not None:
        return run.trace.threads
    return run.plan.threads if run.plan else None


def grouped(cells: Iterable[Cell], key: Callable[[Cell], str]) -> dict[str, list[Cell]]:
    """Group cells by a word, in the order in which the words come."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return groups


def boards_of(cells: Iterable[Cell]) -> list[str]:
    """Return the names of the boards, each once."""
    return list(grouped(cells, lambda cell: cell.settings[BOARD]))


RatedPhase = Literal["decode", "prefill"]


def rate_of(cell: Cell, phase: RatedPhase = "decode") -> Estimate | None:
    """Return a cell's tokens per second."""
    return cell.decode_tps if phase == "decode" else cell.prefill_tps


def tps_of(cell: Cell, phase: RatedPhase = "decode") -> float:
    """Return a cell's median tokens per second, 0 where there is none."""
    rate = rate_of(cell, phase)
    return rate.value if rate else 0.0


def are_a_suite(cells: Iterable[Cell]) -> bool:
    """Tell whether cells are different tests of a suite."""
    return len({cell.settings[TEST] for cell in cells} - {NONE}) > 1


def fastest(cells: Iterable[Cell], phase: RatedPhase = "decode") -> Cell | None:
    """Return the valid cell with the highest rate; none where none is valid.

    Different tests of a suite have none: their rates tell about the tests.
    """
    cells = list(cells)
    if are_a_suite(cells):
        return None
    rated = [cell for cell in cells if cell.is_valid and rate_of(cell, phase)]
    return max(rated, key=lambda cell: tps_of(cell, phase), default=None)


def as_fast_as(best: Cell, cells: Iterable[Cell], phase: RatedPhase = "decode") -> list[Cell]:
    """Return the other valid cells that may be as fast, with 95% confidence."""
    return [
        cell
        for cell in cells
        if cell is not best
        and cell.is_valid
        and rate_of(cell, phase)
        and not _slower_for_sure(cell, best, phase)
    ]


def fastest_of_each(cells: Sequence[Cell], most: int) -> list[Cell]:
    """Return all cells, or of too many the fastest of each series, at most so many."""
    if len(cells) <= most:
        return list(cells)
    series = grouped(cells, lambda cell: cell.series).values()
    best = [fastest(group) or max(group, key=tps_of) for group in series]
    kept = sorted(best, key=tps_of, reverse=True)[:most]
    return [cell for cell in cells if cell in kept]


def _slower_for_sure(cell: Cell, best: Cell, phase: RatedPhase) -> bool:
    if phase == "decode" and cell.rows_s and best.rows_s:
        return ratio_of_tokens(best.rows_s, cell.rows_s).low > 1
    return ratio_of_runs(_rates(cell, phase), _rates(best, phase)).low > 1


def _rates(cell: Cell, phase: RatedPhase) -> list[float]:
    rates = [each.decode_tps if phase == "decode" else each.prefill_tps for each in cell.figures]
    return [rate for rate in rates if rate]
