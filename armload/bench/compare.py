"""Is B slower than A: the ratio of their times, how sure it is, and a plain verdict."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from armload.bench.figures import Figures, Way, Work
from armload.bench.plan import short_prompt
from armload.bench.sanity import departure, departure_line
from armload.bench.statistics import (
    FEWEST_RUNS,
    Ratio,
    ratio_of_runs,
    ratio_of_tokens,
    runs_to_see,
    spread_of,
)
from armload.core.errors import UsageError
from armload.core.values import Value

Measure = Literal["decode", "prefill", "first token"]
Finding = Literal["faster", "slower", "no difference", "not comparable"]

_MEASURES: tuple[Measure, ...] = ("decode", "prefill", "first token")
_SEES_SHARE = 0.03


class Side(Value):
    """Repeats of one thing.

    Attributes:
        names: of the measurements.
        work, way: what was done and how.
        doubts: reasons against single measurements, each with its name.
        garbage: why the speed counts for nothing; empty when it counts.
    """

    names: tuple[str, ...]
    work: Work
    way: Way
    doubts: tuple[str, ...] = ()
    garbage: str = ""


class Measured(Value):
    """One figure of both sides.

    Attributes:
        measure: ``decode`` and ``prefill`` are seconds per token, ``first token`` seconds from
            the program's start.
        a_s, b_s: the sides' medians.
        ratio: B's over A's: above 1, B is slower.
        finding: what the ratio's interval says.
    """

    measure: Measure
    a_s: float
    b_s: float
    ratio: Ratio
    finding: Literal["faster", "slower", "no difference"]


class Comparison(Value):
    """Two sides that did the same, or what they did not do the same.

    Attributes:
        finding: of the first figure that both have; ``not comparable`` if anything in
            ``differences`` stands against it.
        measured: every figure that both have, decode first.
        differences: what differs in the work, in words.
        notes: what else a reader should know.
        runs_to_see_3_percent: repeats a side that it would take, from the spread seen; none where
            there are too few to see a spread.
    """

    a: Side
    b: Side
    finding: Finding
    measured: tuple[Measured, ...]
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    runs_to_see_3_percent: int | None = None


def compare(a: Sequence[Figures], b: Sequence[Figures]) -> list[Comparison]:
    """Compare two sides plan by plan; repeats of a plan are pooled.

    Where no plan of A is one of B, the nearest two are compared, and are not comparable. So is
    a plan that only one side has, which stands beside the nearest of the other.

    Args:
        a: measurements, at least one.
        b: likewise.

    Raises:
        UsageError: a measurement is on both sides, or twice on one; or a side mixes programs.
    """
    _refuse_doubles(a, b)
    groups_a, groups_b = _groups(a, "A"), _groups(b, "B")
    pairs = _pairs(groups_a, groups_b)
    known_a = {id(one) for one, _ in pairs}
    known_b = {id(other) for _, other in pairs}
    alone = [
        *(
            _alone("A", one, min(groups_b, key=lambda other: _distance(one, other)))
            for one in groups_a
            if id(one) not in known_a and _decodes(one)
        ),
        *(
            _alone("B", min(groups_a, key=lambda one: _distance(one, other)), other)
            for other in groups_b
            if id(other) not in known_b and _decodes(other)
        ),
    ]
    return [*(_compared(one, other) for one, other in pairs), *alone]


def _refuse_doubles(a: Sequence[Figures], b: Sequence[Figures]) -> None:
    names_a, names_b = [each.name for each in a], [each.name for each in b]
    both = [name for name in names_a if name in set(names_b)]
    if both:
        raise UsageError(
            f"{both[0]} would be compared with itself.",
            "Name two different runs: armload show lists them.",
        )
    for side, names in (("A", names_a), ("B", names_b)):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(
                f"{side} names {twice} twice: one run is not its own repetition.", "Name it once."
            )


def _groups(side: Sequence[Figures], label: str) -> list[list[Figures]]:
    groups: dict[str, list[Figures]] = {}
    for each in side:
        groups.setdefault(_plan_key(each), []).append(each)
    for group in groups.values():
        engines = sorted({each.way.engine for each in group})
        if len(engines) > 1:
            raise UsageError(
                f"{label} mixes programs, so its runs are not repeats of one thing: "
                f"{' and '.join(engines)}.",
                "Put one program's runs on each side.",
            )
    return list(groups.values())


def _plan_key(each: Figures) -> str:
    # What is measured tells a prefill test of a benchmark from its decode test.
    measures = [str(_one_figure(each, measure) is not None) for measure in ("decode", "prefill")]
    return "\0".join(
        [each.work.model_dump_json(), str(each.way.threads), each.way.options, *measures]
    )


def _pairs(
    a: list[list[Figures]], b: list[list[Figures]]
) -> list[tuple[list[Figures], list[Figures]]]:
    by_key = {_plan_key(group[0]): group for group in b}
    exact = [(group, by_key[_plan_key(group[0])]) for group in a if _plan_key(group[0]) in by_key]
    taken = {_plan_key(group[0]) for group, _ in exact}
    alike = [
        (one, other)
        for one in a
        for other in b
        if not {_plan_key(one[0]), _plan_key(other[0])} & taken
        and _shared(one, other)
        and not _differences(one[0], other[0], _shared(one, other)[0])
    ]
    if exact or alike:
        return exact + alike
    every = [(one, other) for one in a for other in b]
    return [min(every, key=lambda pair: _distance(*pair))]


def _distance(one: list[Figures], other: list[Figures]) -> tuple[bool, int]:
    shared = _shared(one, other)
    return not shared, len(_differences(one[0], other[0], shared[0] if shared else "decode"))


def _shared(one: list[Figures], other: list[Figures]) -> list[Measure]:
    return [
        measure
        for measure in _MEASURES
        if all(_one_figure(each, measure) is not None for each in (*one, *other))
    ]


def _one_figure(each: Figures, measure: Measure) -> float | None:
    if measure == "first token":
        return each.ttft_s
    rate = each.decode_tps if measure == "decode" else each.prefill_tps
    return 1 / rate if rate else None


def _decodes(group: list[Figures]) -> bool:
    # A benchmark's prefill tests beside its decode tests are no plans that the other side lacks.
    return _one_figure(group[0], "decode") is not None


def _alone(label: str, one: list[Figures], other: list[Figures]) -> Comparison:
    return Comparison(
        a=_side(one),
        b=_side(other),
        finding="not comparable",
        measured=(),
        differences=(f"only {label} has runs of this plan",),
    )


def _compared(one: list[Figures], other: list[Figures]) -> Comparison:
    a, b = _side(one), _side(other)
    shared = _shared(one, other)
    measured = tuple(_measured(one, other, measure) for measure in shared)
    against = list(_differences(one[0], other[0], shared[0])) if shared else []
    against += [f"{label}: {side.garbage}" for label, side in (("A", a), ("B", b)) if side.garbage]
    if not measured:
        against.append("there is no figure that both sides have")
    return Comparison(
        a=a,
        b=b,
        finding="not comparable" if against else measured[0].finding,
        measured=measured,
        differences=tuple(against),
        notes=tuple(_notes(one, other, measured)),
        runs_to_see_3_percent=_runs_needed(one, other, shared),
    )


def _side(group: list[Figures]) -> Side:
    broken = [f"{each.name}: {each.garbage}" for each in group if each.garbage]
    return Side(
        names=tuple(each.name for each in group),
        work=group[0].work,
        way=group[0].way,
        doubts=tuple(
            f"{each.name}: {doubt}" for each in group if not each.garbage for doubt in each.doubts
        ),
        garbage=" ".join(broken),
    )


def _measured(one: list[Figures], other: list[Figures], measure: Measure) -> Measured:
    if measure == "decode" and all(each.token_s for each in (*one, *other)):
        rows_a, rows_b = [each.token_s for each in one], [each.token_s for each in other]
        ratio = ratio_of_tokens(rows_a, rows_b)
        length = min(len(row) for row in (*rows_a, *rows_b))
        a_s, b_s = (median(median(row[:length]) for row in rows) for rows in (rows_a, rows_b))
    else:
        figures_a, figures_b = _figures(one, measure), _figures(other, measure)
        ratio = ratio_of_runs(figures_a, figures_b)
        a_s, b_s = median(figures_a), median(figures_b)
    finding: Literal["faster", "slower", "no difference"] = "no difference"
    if ratio.low > 1:
        finding = "slower"
    elif ratio.high < 1:
        finding = "faster"
    return Measured(measure=measure, a_s=a_s, b_s=b_s, ratio=ratio, finding=finding)


def _figures(group: list[Figures], measure: Measure) -> list[float]:
    return [figure for each in group if (figure := _one_figure(each, measure)) is not None]


def _differences(one: Figures, other: Figures, measure: Measure) -> list[str]:
    """Return what makes it another work; what one side does not say stands against nothing."""
    a, b = one.work, other.work
    found = []
    if _can_be_checked(a, b) and a.model_sha256 != b.model_sha256:
        names = a.model, b.model
        if a.model == b.model:
            names = f"{a.model} {a.model_sha256[:12]}", b.model_sha256[:12]
        found.append(f"model: {names[0]} / {names[1]}")
    fields: list[tuple[str, object, object]] = [
        ("board", a.board, b.board),
        ("prompt", _prompt(a), _prompt(b)),
        ("context", a.context_tokens, b.context_tokens),
        ("KV cache type", a.kv_type, b.kv_type),
        ("sampling", a.sampling, b.sampling),
    ]
    if measure == "decode":
        fields.append(("output tokens (n_predict)", a.output_tokens, b.output_tokens))
    else:
        fields.append(("prompt tokens", a.prompt_tokens, b.prompt_tokens))
    found += [
        f"{name}: {left} / {right}"
        for name, left, right in fields
        if left is not None and right is not None and left != right
    ]
    return found


def _can_be_checked(a: Work, b: Work) -> bool:
    return bool(a.model_sha256 and b.model_sha256) and a.model_format == b.model_format


def _prompt(work: Work) -> str | None:
    return None if work.prompt is None else short_prompt(work.prompt)


def _notes(one: list[Figures], other: list[Figures], measured: tuple[Measured, ...]) -> list[str]:
    a, b = one[0], other[0]
    notes = []
    if not _can_be_checked(a.work, b.work):
        names = " / ".join(each.work.model or "not said" for each in (a, b))
        notes.append(f"Whether the model is the same cannot be checked: {names}.")
    if a.way.threads != b.way.threads:
        notes.append(f"Threads differ: {a.way.threads} / {b.way.threads}.")
    if a.way.options != b.way.options:
        notes.append(f"Options differ: {a.way.options or 'none'} / {b.way.options or 'none'}.")
    if a.way.engine != b.way.engine:
        notes.append(f"Programs: {a.way.engine} / {b.way.engine}.")
    if measured and measured[0].ratio.unit != "runs":
        notes.append(
            f"With fewer than {FEWEST_RUNS} runs a side, what differs from run to run is not "
            "seen: the interval allows for it."
        )
    if a.text is not None and b.text is not None:
        same_model = (a.work.model_sha256, a.work.prompt, a.work.sampling) == (
            b.work.model_sha256,
            b.work.prompt,
            b.work.sampling,
        )
        found = departure(b.text, a.text, name=a.name, same_model=same_model)
        if found.kind != "same":
            notes.append(departure_line(found))
    return notes


def _runs_needed(one: list[Figures], other: list[Figures], shared: list[Measure]) -> int | None:
    if not shared or min(len(one), len(other)) < FEWEST_RUNS:
        return None
    if shared[0] == "decode" and all(each.token_s for each in (*one, *other)):
        spreads = [spread_of([median(each.token_s) for each in side]) for side in (one, other)]
    else:
        spreads = [spread_of(_figures(side, shared[0])) for side in (one, other)]
    return runs_to_see(_SEES_SHARE, max(spreads))
