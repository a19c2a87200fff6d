"""Tokens per second against threads, with the best marked."""

from __future__ import annotations

from collections.abc import Sequence

from armload.report import formatting as words
from armload.report.cells import (
    Cell,
    RatedPhase,
    as_fast_as,
    fastest,
    grouped,
    rate_of,
    tps_of,
)
from armload.report.chart import Plot, axis, lines_key
from armload.report.drawing import MOST_LINES, Rows, legend_line
from armload.report.figures.figure import Figure, drawn

NOT_VALID = "not valid: not counted"

MOST_NAMED = 2
"""More other lines would make the sentence a table."""

CLOSE = 0.07
"""Figures that are closer, as a share of the highest, would be written over one another."""

FAR_APART = 20.0
"""Rates that differ by so many times share no linear scale."""

LOGARITHMIC_FROM = 8
"""Thread counts that differ by so many times are laid out as their doublings."""


def threads(cells: Sequence[Cell], phase: RatedPhase) -> Figure | None:
    """Draw a line for each series with several thread counts; none without such a series."""
    lines = _lines(cells, phase)
    if not lines:
        return None
    title = f"{phase.capitalize()} rate against threads"
    sentence = _sentence(lines, phase)
    points, doubtful = _points(lines, phase), _doubtful(lines, phase)
    series = [legend_line(line) for line in lines] if points else []
    key = lines_key("kind", series, doubtful=NOT_VALID if doubtful else "")
    counts = sorted({row["threads"] for row in (*points, *doubtful)})
    is_wide = counts[-1] >= LOGARITHMIC_FROM * counts[0]
    x = axis(
        "threads",
        "threads",
        zero=False,
        nice=False,
        padding=24,
        is_log=is_wide,
        values=counts,
        form="d",
    )
    rates_shown = [row["tps"] for row in (*points, *doubtful)]
    is_far = max(rates_shown) > FAR_APART * min(rates_shown)
    y = axis(
        "tps",
        f"{phase} (tokens/s)",
        zero=True,
        padding=24 if is_far else None,
        is_log=is_far,
        ticks=6,
    )
    rates = Plot(rows="rates", x=x, y=y, key=key)
    said = (
        ("kind:N", "what"),
        ("threads:Q", "threads"),
        ("tps:Q", "tokens/s", ".3s"),
        ("runs:N", "runs"),
    )
    layers = []
    if points:
        layers += [
            rates.line(width=1.5),
            rates.spans(),
            rates.points(size=80, said=said),
            rates.rings(size=320, where="datum.best"),
            rates.texts({"dy": -20, "fontWeight": "bold"}, where="datum.best"),
        ]
    if doubtful:
        layers.append(Plot(rows="doubtful", x=x, y=y, key=key).points(size=130, said=said))
    return drawn(
        f"threads-{phase}",
        title,
        sentence,
        layers,
        {"rates": points, "doubtful": doubtful},
        note="Medians of the runs, with 95% confidence intervals; circled: best." if points else "",
        key=key,
    )


def _lines(cells: Sequence[Cell], phase: RatedPhase) -> dict[str, list[Cell]]:
    known = [cell for cell in cells if cell.threads is not None and rate_of(cell, phase)]
    several = {
        series: sorted(group, key=lambda cell: cell.threads or 0)
        for series, group in grouped(known, lambda cell: cell.series).items()
        if len({cell.threads for cell in group}) > 1
    }
    peaks = {
        series: max(tps_of(cell, phase) for cell in group) for series, group in several.items()
    }
    ranked = sorted(several, key=peaks.__getitem__, reverse=True)
    return {series: several[series] for series in several if series in ranked[:MOST_LINES]}


def _sentence(lines: dict[str, list[Cell]], phase: RatedPhase) -> str:
    bests = {series: fastest(cells, phase) for series, cells in lines.items()}
    known = {series: best for series, best in bests.items() if best}
    if not known:
        return f"No {phase} rate is valid, so the best number of threads is unknown."
    first = max(known, key=lambda series: tps_of(known[series], phase))
    clause = _clause(known[first], lines[first], phase)
    if len(lines) > 1:
        clause = f"{first} is {clause[0].lower()}{clause[1:]}"
    others = sorted(
        (series for series in known if series != first),
        key=lambda series: tps_of(known[series], phase),
        reverse=True,
    )
    if 0 < len(others) <= MOST_NAMED:
        named = (
            f"{series} with {_count(known[series])} ({words.rate(tps_of(known[series], phase))})"
            for series in others
        )
        clause += f"; {', '.join(named)}"
    return f"{clause}."


def _clause(best: Cell, cells: Sequence[Cell], phase: RatedPhase) -> str:
    is_last = best is cells[-1] and (best.threads or 0) < best.runs[0].board.cores
    tried = ", the most that were tried" if is_last else ""
    clause = f"Fastest with {_count(best)}{tried}: {words.UNKNOWN}"
    if rate := rate_of(best, phase):
        low, high = words.rate(rate.low), words.rate(rate.high)
        known = f"{words.rate(rate.value)} tokens/s (95% CI {low}–{high})"
        clause = f"Fastest with {_count(best)}{tried}: {known}"
    valid = [cell for cell in cells if cell.is_valid]
    alike = as_fast_as(best, valid, phase)
    fewest = valid[0]
    if fewest is not best and fewest not in alike:
        times = tps_of(best, phase) / tps_of(fewest, phase)
        clause += f", {times:.1f} times as fast as with {_count(fewest)}"
    if alike:
        counts = " and ".join(str(cell.threads) for cell in alike)
        clause += f", not significantly faster than with {counts}"
    return clause


def _points(lines: dict[str, list[Cell]], phase: RatedPhase) -> Rows:
    rows: Rows = []
    for series, cells in lines.items():
        best = fastest(cells, phase)
        for cell in cells:
            rate = rate_of(cell, phase)
            if rate and cell.is_valid:
                rows.append(
                    {
                        "kind": legend_line(series),
                        "threads": cell.threads,
                        "tps": rate.value,
                        "low": rate.low,
                        "high": rate.high,
                        "best": cell is best,
                        "text": words.rate(rate.value),
                        "runs": f"{len(cell.valid)} valid of {len(cell.runs)}",
                    }
                )
    return _without_overlaps(rows)


def _without_overlaps(rows: Rows) -> Rows:
    """Write no figure over another one: of two that are close the higher one stays."""
    near = CLOSE * max((row["tps"] for row in rows), default=0.0)
    written: Rows = []
    for row in sorted(rows, key=lambda row: -float(row["tps"])):
        covered = any(
            other["threads"] == row["threads"] and other["tps"] - row["tps"] < near
            for other in written
        )
        if row["best"] and not covered:
            written.append(row)
    return [row if row in written else {**row, "text": ""} for row in rows]


def _doubtful(lines: dict[str, list[Cell]], phase: RatedPhase) -> Rows:
    rows: Rows = []
    for series, cells in lines.items():
        for cell in cells:
            for run in cell.runs:
                tps = run.summary.decode_tps if phase == "decode" else run.summary.prefill_tps
                if tps and not run.verdict.valid:
                    rows.append(
                        {
                            "kind": NOT_VALID,
                            "threads": cell.threads,
                            "tps": tps,
                            "runs": f"{series}: {run.id[-4:]}",
                        }
                    )
    return rows


def _count(cell: Cell) -> str:
    return f"{cell.threads} thread{'' if cell.threads == 1 else 's'}"
