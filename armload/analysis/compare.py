"""Is B slower than A: the ratio of their times, how sure it is, and a plain verdict."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from armload.analysis.comparison_findings import (
    ComparisonFigures,
    ComparisonFinding,
    DegenerateOutput,
    Differs,
    EnergyMixed,
    EnergyPerToken,
    EqualBoardsDiffer,
    Excluded,
    ModelUnverified,
    NothingInCommon,
    OnlyOneSide,
    OutputDiffers,
    Remark,
    SideLabel,
    TooFewRuns,
    differing_facts,
    overall_finding,
)
from armload.analysis.pairing import (
    MatchedWork,
    Measure,
    WorkGroup,
    called_equal,
    can_be_checked,
    depth_differences,
    differences,
    pairs_of,
    seconds_of,
    shared_measures,
    subjects_and_obstacles,
)
from armload.analysis.sanity import departure
from armload.analysis.statistics import (
    FEWEST_RUNS,
    Ratio,
    RatioFinding,
    ratio_of_runs,
    ratio_of_tokens,
    runs_to_detect,
    spread_of,
)
from armload.analysis.wording import comparisons as wording
from armload.boards.power import EnergyBasis
from armload.core.values import Value
from armload.engines.measurement import Measurement, Method, Work

_SEES_SHARE = 0.03


class Side(Value):
    """Repeats of one measurement.

    Attributes:
        names: of the measurements.
        work, method: what was done and how.
        doubts: reasons against single measurements, each with its name.
        is_judged: none of these is more than that one is imprecise.
        garbage: why the output is garbage and the speed meaningless; else empty.
        predicted_token_s: what was expected per output token of the first of them.
    """

    names: tuple[str, ...]
    work: Work
    method: Method
    doubts: tuple[str, ...] = ()
    is_judged: bool = True
    garbage: str = ""
    predicted_token_s: float | None = None


class Measured(Value):
    """One figure of both sides.

    Attributes:
        measure: ``decode`` and ``prefill`` are seconds per token, ``first token`` seconds from
            the program's start.
        a_s, b_s: the sides' medians.
        first_tokens: the medians are over so many tokens of each run, from the first decoded one,
            because some run has no more; none where they are over all of them.
        ratio: B's over A's: above 1, B is slower.
        finding: what the ratio's interval says.
    """

    measure: Measure
    a_s: float
    b_s: float
    ratio: Ratio
    finding: RatioFinding
    first_tokens: int | None = None


class Comparison(Value):
    """Two sides that did the same work, or what of it they did not do the same.

    Attributes:
        finding: of the first figure that both have; ``not comparable`` if anything in
            ``differences`` stands against it; ``inconclusive`` if a run is not valid.
        measured: every figure that both have, decode first.
        subjects: what the sides differ in while they did the same: model, board, context, cache.
        differences: what differs in the work.
        notes: what else a reader should know.
        runs_to_see_3_percent: repeats a side that it would take, from the spread seen; none where
            there are too few to see a spread.
    """

    a: Side
    b: Side
    finding: ComparisonFinding
    measured: tuple[Measured, ...]
    subjects: tuple[Remark, ...] = ()
    differences: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()
    runs_to_see_3_percent: int | None = None


def compare(a: Sequence[Measurement], b: Sequence[Measurement]) -> list[Comparison]:
    """Compare two sides plan by plan; repeats of a plan are pooled.

    Where no plan of A is one of B, plans of the same work are compared, such as those of two
    models. A plan that only one side has is not comparable; it stands beside the nearest of the
    other.

    Args:
        a: measurements, at least one.

    Raises:
        UsageError: a measurement is on both sides, or twice on one; or a side mixes programs.
    """
    return [_alone(pair) if pair.only else _compared(pair.a, pair.b) for pair in pairs_of(a, b)]


def _alone(pair: MatchedWork) -> Comparison:
    shared = shared_measures(pair.a, pair.b)
    a, b = pair.a[0], pair.b[0]
    nearest = differences(a, b, shared[0] if shared else "decode")
    nearest += _method_differences(a.method, b.method)
    return Comparison(
        a=_side(pair.a),
        b=_side(pair.b),
        finding="not comparable",
        measured=(),
        differences=wording.differences([OnlyOneSide(side=pair.only or "A"), *nearest]),
    )


def _compared(every_a: WorkGroup, every_b: WorkGroup) -> Comparison:
    one, other = _undisturbed(every_a), _undisturbed(every_b)
    a, b = _side(one), _side(other)
    shared = shared_measures(one, other)
    measured = tuple(_measured(one, other, measure) for measure in shared)
    found = differences(one[0], other[0], shared[0]) if shared else []
    subjects, obstacles = subjects_and_obstacles(found)
    against: list[ComparisonFigures] = [*obstacles]
    sides: tuple[tuple[SideLabel, Side], ...] = (("A", a), ("B", b))
    against += [
        DegenerateOutput(side=label, faults=side.garbage) for label, side in sides if side.garbage
    ]
    if not measured:
        against.append(NothingInCommon(what="figure"))
    is_valid = a.is_judged and b.is_judged
    return Comparison(
        a=a,
        b=b,
        finding=overall_finding(against, [each.finding for each in measured], is_valid=is_valid),
        measured=measured,
        subjects=wording.differences(subjects),
        differences=wording.differences(against),
        notes=wording.remarks(
            [
                *_excluded("A", every_a, one),
                *_excluded("B", every_b, other),
                *_notes(one, other, measured),
            ]
        ),
        runs_to_see_3_percent=_runs_needed(one, other, shared),
    )


def _undisturbed(group: WorkGroup) -> WorkGroup:
    return [each for each in group if not each.is_disturbed] or group


def _excluded(side: SideLabel, every: WorkGroup, kept: WorkGroup) -> list[Excluded]:
    names = tuple(each.name for each in every if each not in kept)
    return [Excluded(side=side, names=names)] if names else []


def _side(group: WorkGroup) -> Side:
    broken: dict[str, list[str]] = {}
    for each in group:
        if each.garbage:
            broken.setdefault(each.garbage.rstrip("."), []).append(each.name)
    return Side(
        names=tuple(each.name for each in group),
        work=group[0].work,
        method=group[0].method,
        doubts=tuple(
            f"{each.name}: {doubt}" for each in group if not each.garbage for doubt in each.doubts
        ),
        is_judged=all(each.is_judged for each in group if not each.garbage),
        garbage="; ".join(f"{', '.join(names)}: {fault}" for fault, names in broken.items()),
        predicted_token_s=group[0].predicted_token_s,
    )


def _measured(one: WorkGroup, other: WorkGroup, measure: Measure) -> Measured:
    first_tokens = None
    if measure == "decode" and all(each.token_s for each in (*one, *other)):
        rows_a, rows_b = [each.token_s for each in one], [each.token_s for each in other]
        ratio = ratio_of_tokens(rows_a, rows_b)
        lengths = [len(row) for row in (*rows_a, *rows_b)]
        length = min(lengths)
        first_tokens = length if max(lengths) > length else None
        a_s, b_s = (median(median(row[:length]) for row in rows) for rows in (rows_a, rows_b))
    else:
        figures_a, figures_b = _figures(one, measure), _figures(other, measure)
        ratio = ratio_of_runs(figures_a, figures_b)
        a_s, b_s = median(figures_a), median(figures_b)
    return Measured(
        measure=measure,
        a_s=a_s,
        b_s=b_s,
        ratio=ratio,
        finding=ratio.finding,
        first_tokens=first_tokens,
    )


def _figures(group: WorkGroup, measure: Measure) -> list[float]:
    return [figure for each in group if (figure := seconds_of(each, measure)) is not None]


def _notes(
    one: WorkGroup, other: WorkGroup, measured: tuple[Measured, ...]
) -> list[ComparisonFigures]:
    a, b = one[0], other[0]
    notes: list[ComparisonFigures] = []
    if not can_be_checked(a.work, b.work):
        notes.append(ModelUnverified(a=a.work.model, b=b.work.model))
    if measured and measured[0].measure == "decode":
        notes += depth_differences(a.work, b.work)
    notes += _boards(one, other, measured)
    notes += _method_differences(a.method, b.method)
    notes += differing_facts([("programs", a.method.engine, b.method.engine)])
    if measured and measured[0].ratio.unit != "runs":
        notes.append(TooFewRuns(needed_runs=FEWEST_RUNS))
    notes += _energies(one, other)
    if a.text is not None and b.text is not None and a.work.prompt == b.work.prompt:
        same_model = (a.work.model_sha256, a.work.sampling) == (
            b.work.model_sha256,
            b.work.sampling,
        )
        found = departure(b.text, a.text, name=a.name, same_model=same_model)
        if found.kind != "same":
            notes.append(OutputDiffers(departure=found))
    return notes


def _boards(
    one: WorkGroup, other: WorkGroup, measured: tuple[Measured, ...]
) -> list[ComparisonFigures]:
    a, b, called = one[0].work.board, other[0].work.board, called_equal(one[0], other[0])
    if not called or a is None or b is None:
        return []
    first = measured[0] if measured else None
    if first and first.finding != "not significant" and first.ratio.unit == "runs":
        return [EqualBoardsDiffer(a=a, b=b, called=called)]
    return [Differs(name="boards", a=a, b=b)]


def _energies(one: WorkGroup, other: WorkGroup) -> list[EnergyPerToken | EnergyMixed]:
    a, b = _energy(one), _energy(other)
    if a is None or b is None:
        return []
    sides: tuple[tuple[SideLabel, _SideEnergy], ...] = (("A", a), ("B", b))
    return [
        EnergyPerToken(a_j=a.joules, b_j=b.joules, a_basis=a.basis, b_basis=b.basis),
        *(
            EnergyMixed(side=label, basis=each.basis, left_out=each.left_out)
            for label, each in sides
            if each.left_out
        ),
    ]


class _SideEnergy(NamedTuple):
    """The median of joules per token, and how many runs have another basis."""

    joules: float
    basis: EnergyBasis
    left_out: int


def _energy(group: WorkGroup) -> _SideEnergy | None:
    known = [
        (each.joules_per_token, each.energy_basis)
        for each in group
        if each.joules_per_token is not None and each.energy_basis is not None
    ]
    if not known:
        return None
    _, basis = known[0]
    counted = [joules for joules, of in known if of == basis]
    return _SideEnergy(median(counted), basis, len(known) - len(counted))


def _method_differences(a: Method, b: Method) -> list[Differs]:
    return differing_facts(
        [
            ("threads", a.threads, b.threads),
            ("weights repacked", a.repacked, b.repacked),
            ("options", a.options, b.options),
        ]
    )


def _runs_needed(one: WorkGroup, other: WorkGroup, shared: list[Measure]) -> int | None:
    if not shared or min(len(one), len(other)) < FEWEST_RUNS:
        return None
    if shared[0] == "decode" and all(each.token_s for each in (*one, *other)):
        spreads = [spread_of([median(each.token_s) for each in side]) for side in (one, other)]
    else:
        spreads = [spread_of(_figures(side, shared[0])) for side in (one, other)]
    return runs_to_detect(_SEES_SHARE, max(spreads))
