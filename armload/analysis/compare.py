"""Is B slower than A: runs of two sides, their times and how sure the ratio is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from statistics import median
from typing import NamedTuple

from pydantic import JsonValue

from armload.analysis.comparison import (
    ComparedFigure,
    Comparison,
    Subject,
    overall_finding,
)
from armload.analysis.comparison_findings import (
    Accuracies,
    ComparisonFinding,
    DegenerateOutput,
    DifferenceRole,
    DoubtfulRun,
    EnergyMixed,
    EnergyPerToken,
    EqualBoardsDiffer,
    Excluded,
    ModelUnverified,
    NothingInCommon,
    OnlyOneSide,
    OutputDiffers,
    PeakMemory,
    ProgramReports,
    SideDifference,
    SideLabel,
    TooFewRuns,
    UnequalConditions,
    differing,
)
from armload.analysis.figures import DECODE, Measure
from armload.analysis.pairing import (
    OUTPUT_TOKENS,
    MatchedWork,
    WorkGroup,
    called_equal,
    can_be_checked,
    depth_differences,
    differences,
    pairs_of,
    prompt_words,
    shared_measures,
)
from armload.analysis.precision import MOST_MORE_RUNS, less_varied
from armload.analysis.sanity import departure
from armload.analysis.statistics import (
    FEWEST_RUNS,
    ratio_of_runs,
    ratio_of_tokens,
    runs_to_detect,
    spread_of,
)
from armload.boards.power import EnergyBasis
from armload.core.values import counted, format_seconds
from armload.engines.measurement import Measurement, Method

_SEES_SHARE = 0.03
_OTHER_CLOCK = 1.05
_NOT_REPACKED = (
    ", so different kernels ran. armload repacks weights if memory allows; to disable it on both "
    "sides, use --engine-args --no-repack"
)


def compare(a: Sequence[Measurement], b: Sequence[Measurement]) -> list[Comparison]:
    """Compare two sides plan by plan; repeats of a plan are pooled.

    Where no plan of A is one of B, plans of the same work are compared, such as those of two
    models. A plan that only one side has is not comparable; it stands beside the nearest of the
    other.

    Args:
        a: measurements, at least one.
    """
    return [_alone(pair) if pair.only else _compared(pair.a, pair.b) for pair in pairs_of(a, b)]


def _alone(pair: MatchedWork) -> Comparison:
    shared = shared_measures(pair.a, pair.b)
    a, b = pair.a[0], pair.b[0]
    nearest = differences(a, b, shared[0] if shared else DECODE)
    nearest += _method_differences(a.method, b.method)
    return Comparison(
        kind="runs",
        a=_subject(pair.a),
        b=_subject(pair.b),
        finding="not comparable",
        figures=(),
        differences=tuple(each.model_copy(update={"role": "obstacle"}) for each in nearest),
        findings=(OnlyOneSide(side=pair.only or "A"),),
    )


def _compared(every_a: WorkGroup, every_b: WorkGroup) -> Comparison:
    one, other = _undisturbed(every_a), _undisturbed(every_b)
    shared = shared_measures(one, other)
    figures = tuple(_figure(one, other, measure) for measure in shared)
    differ = (*(differences(one[0], other[0], shared[0]) if shared else ()),)
    differ += (*_other_ways(one, other, figures),)
    found: list[ComparisonFinding] = [*_garbage("A", one), *_garbage("B", other)]
    if not figures:
        found.append(NothingInCommon(what="figure"))
    found += [*_excluded("A", every_a, one), *_excluded("B", every_b, other)]
    found += _notes(one, other, figures)
    found += [*_doubts("A", one), *_doubts("B", other)]
    groups: dict[SideLabel, WorkGroup] = {"A": one, "B": other}
    doubted = [
        label
        for label, group in groups.items()
        if not all(each.is_judged for each in group if not each.garbage)
    ]
    verdict = overall_finding(found, differ, figures, is_valid=not doubted)
    needed = _runs_needed(one, other, shared)
    return Comparison(
        kind="runs",
        a=_subject(one),
        b=_subject(other),
        finding=verdict,
        reason=_invalid(groups, doubted) if verdict == "inconclusive" else "",
        figures=figures,
        basis="medians",
        differences=differ,
        findings=tuple(found),
        advice=_advice(one, other, needed)
        if verdict == "not significant"
        else _equal_length(one[0], other[0], differ),
        runs_to_see_3_percent=needed,
    )


def _undisturbed(group: WorkGroup) -> WorkGroup:
    return [each for each in group if not each.is_disturbed] or group


def _excluded(side: SideLabel, every: WorkGroup, kept: WorkGroup) -> list[Excluded]:
    names = tuple(each.name for each in every if each not in kept)
    return [Excluded(side=side, names=names)] if names else []


_PREDICTED = {"predicted_token_s": "per token", "predicted_ttft_s": "to the first token"}


def _subject(group: WorkGroup) -> Subject:
    first = group[0]
    work, method = first.work, first.method
    expected = {
        "predicted_token_s": first.predicted_token_s,
        "predicted_ttft_s": first.predicted_ttft_s,
    }
    known = [
        work.model,
        work.board,
        method.engine,
        counted(method.threads, "thread") if method.threads else None,
        *(
            f"predicted {format_seconds(each_s)} {_PREDICTED[name]}"
            for name, each_s in expected.items()
            if each_s
        ),
    ]
    return Subject(
        names=tuple(each.name for each in group),
        model=work.model,
        board=work.board,
        engine=method.engine,
        settings={
            **work.model_dump(exclude={"model", "board"}, exclude_none=True),
            **method.model_dump(exclude={"engine"}, exclude_none=True),
            **{name: each_s for name, each_s in expected.items() if each_s},
        },
        about=", ".join(filter(None, known)),
    )


def _garbage(side: SideLabel, group: WorkGroup) -> list[DegenerateOutput]:
    broken: dict[str, list[str]] = {}
    for each in group:
        if each.garbage:
            broken.setdefault(each.garbage.rstrip("."), []).append(each.name)
    faults = "; ".join(f"{', '.join(names)}: {fault}" for fault, names in broken.items())
    return [DegenerateOutput(side=side, faults=faults)] if faults else []


def _doubts(side: SideLabel, group: WorkGroup) -> list[DoubtfulRun]:
    return [
        DoubtfulRun(side=side, name=each.name, reason=doubt, is_judged=each.is_judged)
        for each in group
        if not each.garbage
        for doubt in each.doubts
    ]


def _invalid(groups: dict[SideLabel, WorkGroup], doubted: Sequence[SideLabel]) -> str:
    """Say whose runs are not valid."""
    sides, labels = [groups[label] for label in doubted], " and ".join(doubted)
    if all(len(group) == 1 for group in sides):
        are = "run of {} is" if len(doubted) == 1 else "runs of {} are"
        return f"the {are.format(labels)} not valid"
    if all(each.doubts and not each.garbage for group in sides for each in group):
        return f"no run of {' or '.join(doubted)} is valid"
    return f"not all runs of {labels} are valid"


def _advice(one: WorkGroup, other: WorkGroup, needed: int | None) -> str:
    """Say how many repeats it takes to see a small difference; nothing where these would do."""
    if needed is None:
        return "Repeat both: with 4 or more runs per side, the variation between runs is measured."
    if needed <= min(len(one), len(other)):
        return ""
    if needed > MOST_MORE_RUNS:
        helps = less_varied(is_emulated=one[0].work.is_emulated or other[0].work.is_emulated)
        return (
            "At this spread, no practical number of runs would detect a difference of 3%: "
            f"{helps}, and repeat them."
        )
    return f"At this spread, {needed} runs per side are needed to detect a difference of 3%."


def _figure(one: WorkGroup, other: WorkGroup, measure: Measure) -> ComparedFigure:
    over, some = "median", ""
    if measure is DECODE and all(each.token_s for each in (*one, *other)):
        rows_a, rows_b = [each.token_s for each in one], [each.token_s for each in other]
        ratio = ratio_of_tokens(rows_a, rows_b)
        lengths = [len(row) for row in (*rows_a, *rows_b)]
        length = min(lengths)
        if max(lengths) > length:
            some = f" (first {length})"
            over = f"median of the first {counted(length, 'decoded token')} of every run"
        a_s, b_s = (median(median(row[:length]) for row in rows) for rows in (rows_a, rows_b))
    else:
        figures_a, figures_b = _figures(one, measure), _figures(other, measure)
        ratio = ratio_of_runs(figures_a, figures_b)
        a_s, b_s = median(figures_a), median(figures_b)
    return ComparedFigure(
        key=measure.key,
        heading=f"{measure.heading}{some}",
        phrase=f"{measure.phrase} ({over})",
        unit=measure.unit,
        a=a_s,
        b=b_s,
        a_runs=len(one),
        b_runs=len(other),
        ratio=ratio,
        finding=ratio.finding,
        less=measure.less,
        more=measure.more,
    )


def _figures(group: WorkGroup, measure: Measure) -> list[float]:
    return [figure for each in group if (figure := measure.of(each)) is not None]


def _notes(
    one: WorkGroup, other: WorkGroup, figures: tuple[ComparedFigure, ...]
) -> list[ComparisonFinding]:
    a, b = one[0], other[0]
    notes: list[ComparisonFinding] = []
    if not can_be_checked(a.work, b.work):
        notes.append(ModelUnverified(a=a.work.model, b=b.work.model))
    called, boards = called_equal(a, b), (a.work.board, b.work.board)
    if called and None not in boards and _is_sure(figures):
        notes.append(EqualBoardsDiffer(a=str(boards[0]), b=str(boards[1]), called=called))
    if figures and figures[0].ratio.unit != "runs":
        notes.append(TooFewRuns(needed_runs=FEWEST_RUNS))
    if a.is_watched != b.is_watched:
        notes += _across_programs(one, other)
    notes += [
        ProgramReports(side=side, figures=each.reported)
        for side, each in (("A", a), ("B", b))
        if each.reported
    ]
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


def _equal_length(a: Measurement, b: Measurement, differ: Sequence[SideDifference]) -> str:
    """Say how a run of armload's gets as many tokens as another program wrote by itself."""
    obstacles = [each.name for each in differ if each.role == "obstacle"]
    if a.is_watched == b.is_watched or obstacles != [OUTPUT_TOKENS]:
        return ""
    watched, ours = (a, "B") if a.is_watched else (b, "A")
    return f"To compare them, run {ours} with -n {watched.work.output_tokens}."


def _across_programs(one: WorkGroup, other: WorkGroup) -> list[ComparisonFinding]:
    """Return what a comparison of armload's program with another one cannot hold equal."""
    a, b = one[0], other[0]
    facts: list[tuple[str, DifferenceRole, JsonValue, JsonValue]] = [
        ("type of the weights", "setting", a.weight_type or None, b.weight_type or None),
        ("prompt", "setting", prompt_words(a.work), prompt_words(b.work)),
        ("prompt tokens", "setting", a.work.prompt_tokens, b.work.prompt_tokens),
        ("context depth", "setting", a.work.filled_tokens or 0, b.work.filled_tokens or 0),
        ("context", "setting", a.work.context_tokens, b.work.context_tokens),
        ("KV cache type", "setting", a.work.kv_type, b.work.kv_type),
        ("sampling", "setting", a.work.sampling, b.work.sampling),
    ]
    found: list[ComparisonFinding] = []
    if unequal := differing(facts):
        found.append(UnequalConditions(conditions=tuple(unequal)))
    peaks = [max((each.max_rss_bytes or 0 for each in side), default=0) for side in (one, other)]
    if all(peaks):
        found.append(PeakMemory(a_bytes=peaks[0], b_bytes=peaks[1]))
    alike = ((x, y) for x in a.accuracies for y in b.accuracies if x.asked == y.asked)
    found += [Accuracies(a=x, b=y) for x, y in islice(alike, 1)]
    return found


def _is_sure(figures: tuple[ComparedFigure, ...]) -> bool:
    return (
        bool(figures)
        and figures[0].finding != "not significant"
        and figures[0].ratio.unit == "runs"
    )


def _other_ways(
    one: WorkGroup, other: WorkGroup, figures: tuple[ComparedFigure, ...]
) -> list[SideDifference]:
    """Return how the same work was done differently."""
    a, b = one[0], other[0]
    boards = (a.work.board, b.work.board)
    found: list[SideDifference] = []
    if figures and figures[0].key == DECODE.key:
        found += depth_differences(a.work, b.work)
    if called_equal(a, b) and None not in boards and not _is_sure(figures):
        found += differing([("boards", "setting", *boards)])
    found += _method_differences(a.method, b.method)
    return found + differing([("programs", "setting", a.method.engine, b.method.engine)])


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


def _method_differences(a: Method, b: Method) -> list[SideDifference]:
    found = differing([("threads", "setting", a.threads, b.threads)])
    if a.repacked != b.repacked:
        found.append(
            SideDifference(
                name="weights repacked",
                role="setting",
                a=a.repacked,
                b=b.repacked,
                consequence=_NOT_REPACKED,
            )
        )
    if a.memory_mhz and b.memory_mhz:
        clocks = sorted((a.memory_mhz, b.memory_mhz))
        if clocks[1] > _OTHER_CLOCK * clocks[0]:
            found += differing([("memory clock (MHz)", "setting", a.memory_mhz, b.memory_mhz)])
    return found + differing([("options", "setting", a.options, b.options)])


def _runs_needed(one: WorkGroup, other: WorkGroup, shared: list[Measure]) -> int | None:
    if not shared or min(len(one), len(other)) < FEWEST_RUNS:
        return None
    if shared[0] is DECODE and all(each.token_s for each in (*one, *other)):
        spreads = [spread_of([median(each.token_s) for each in side]) for side in (one, other)]
    else:
        spreads = [spread_of(_figures(side, shared[0])) for side in (one, other)]
    return runs_to_detect(_SEES_SHARE, max(spreads))
