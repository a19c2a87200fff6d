"""Which measurements of two sides are of the same work, and what differs where none are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from armload.analysis.comparison_findings import (
    DifferenceRole,
    SideDifference,
    SideLabel,
    differing,
)
from armload.analysis.figures import DECODE, MEASURES, Measure
from armload.core.errors import UsageError
from armload.engines.measurement import Measurement, Work
from armload.engines.plan import short_prompt

OUTPUT_TOKENS = "output tokens (n_predict)"
_DEPTH = "context depth (tokens)"

WorkGroup = list[Measurement]
"""Repeats of one plan, at least one."""


@dataclass(frozen=True, kw_only=True)
class MatchedWork:
    """What is compared.

    Attributes:
        a, b: a group of each side.
        only: the side that alone has the plan, beside the nearest of the other; none where both do.
    """

    a: WorkGroup
    b: WorkGroup
    only: SideLabel | None = None


def pairs_of(a: Sequence[Measurement], b: Sequence[Measurement]) -> list[MatchedWork]:
    """Return the groups of the same plan; else those that differ in their subject alone.

    Where there are none of these either, it is the two nearest.

    After them come the plans of one side alone.

    Args:
        a: measurements, at least one.
    """
    names_a, names_b = [each.name for each in a], [each.name for each in b]
    both = [name for name in names_a if name in set(names_b)]
    if both:
        raise UsageError(
            f"{both[0]} is on both sides.",
            "Compare different runs; 'armload show' lists them.",
        )
    for side, names in (("A", names_a), ("B", names_b)):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"{side} lists {twice} twice.", "List each run once.")
    groups_a, groups_b = _groups(a, "A"), _groups(b, "B")
    pairs = [MatchedWork(a=one, b=other) for one, other in _matching(groups_a, groups_b)]
    known = {id(group) for pair in pairs for group in (pair.a, pair.b)}
    pairs += [
        MatchedWork(a=one, b=min(groups_b, key=lambda other: _distance(one, other)), only="A")
        for one in groups_a
        if id(one) not in known and _decodes(one)
    ]
    pairs += [
        MatchedWork(a=min(groups_a, key=lambda one: _distance(one, other)), b=other, only="B")
        for other in groups_b
        if id(other) not in known and _decodes(other)
    ]
    return pairs


def shared_measures(one: WorkGroup, other: WorkGroup) -> list[Measure]:
    """Return what all measurements of both groups have, decode first."""
    return [
        measure
        for measure in MEASURES
        if all(measure.of(each) is not None for each in (*one, *other))
    ]


def differences(one: Measurement, other: Measurement, measure: Measure) -> list[SideDifference]:
    """Return what makes the two workloads differ; a value that one side lacks is not compared.

    Two models or boards that do the same work compare; different work, such as a longer text, does
    not, whoever does it.
    """
    a, b = one.work, other.work
    found: list[SideDifference] = []
    if can_be_checked(a, b) and a.model_sha256 != b.model_sha256:
        names = a.model, b.model
        if a.model == b.model:
            names = f"{a.model} {a.model_sha256[:12]}", b.model_sha256[:12]
        found.append(SideDifference(name="model", role="subject", a=names[0], b=names[1]))
    is_same_board = bool(called_equal(one, other))
    fields: list[tuple[str, DifferenceRole, int | str | None, int | str | None]] = [
        ("board", "subject", a.board, a.board if is_same_board else b.board),
        ("prompt", "obstacle", prompt_words(a), prompt_words(b)),
        ("image or sound", "subject", a.media or "none", b.media or "none"),
        ("context", "subject", a.context_tokens, b.context_tokens),
        ("KV cache type", "subject", a.kv_type, b.kv_type),
        ("sampling", "obstacle", a.sampling, b.sampling),
    ]
    if measure is DECODE:
        fields += [
            (OUTPUT_TOKENS, "obstacle", a.output_tokens, b.output_tokens),
            (_DEPTH, "obstacle", a.depth_tokens, b.depth_tokens),
            (_DEPTH, "obstacle", a.filled_tokens, b.filled_tokens),
        ]
    else:
        fields += [
            ("prompt tokens", "obstacle", a.prompt_tokens, b.prompt_tokens),
            (_DEPTH, "obstacle", _prompt_depth(a), _prompt_depth(b)),
        ]
    return found + differing(each for each in fields if None not in each)


def depth_differences(a: Work, b: Work) -> list[SideDifference]:
    """Return the depths at which a run and a benchmark's test decode, if they differ.

    A run decodes after its prompt, a test usually in an empty context. They are compared all the
    same, and a reader should know.
    """
    depth_a, depth_b = _decode_depth(a), _decode_depth(b)
    are_of_a_kind = (a.depth_tokens is None) == (b.depth_tokens is None)
    if are_of_a_kind or depth_a is None or depth_b is None:
        return []
    return differing([(_DEPTH, "setting", depth_a, depth_b)])


def _prompt_depth(work: Work) -> int:
    return work.depth_tokens or work.filled_tokens or 0


def _decode_depth(work: Work) -> int | None:
    if work.depth_tokens is not None or work.prompt_tokens is None:
        return work.depth_tokens
    return (work.filled_tokens or 0) + work.prompt_tokens


def called_equal(one: Measurement, other: Measurement) -> str:
    """Return what calls two different boards equal; empty if nothing does."""
    if one.work.board == other.work.board:
        return ""
    return next((each for each in one.equalities if each in other.equalities), "")


def can_be_checked(a: Work, b: Work) -> bool:
    """Return whether the sums say if the model is the same: not those of files of two formats."""
    return bool(a.model_sha256 and b.model_sha256) and a.model_format == b.model_format


def _groups(side: Sequence[Measurement], label: str) -> list[WorkGroup]:
    groups: dict[str, WorkGroup] = {}
    for each in side:
        groups.setdefault(_plan_key(each), []).append(each)
    for group in groups.values():
        engines = sorted({each.method.engine for each in group})
        if len(engines) > 1:
            raise UsageError(
                f"{label} mixes runs of different programs: {' and '.join(engines)}.",
                "Give runs of a single program on each side.",
            )
    return list(groups.values())


def _plan_key(each: Measurement) -> str:
    # What is measured tells a prefill test of a benchmark from its decode test.
    measures = [str(bool(rate)) for rate in (each.decode_tps, each.prefill_tps)]
    return "\0".join(
        [
            each.work.model_dump_json(),
            str(each.method.threads),
            str(each.method.repacked),
            each.method.options,
            *measures,
        ]
    )


def _matching(a: list[WorkGroup], b: list[WorkGroup]) -> list[tuple[WorkGroup, WorkGroup]]:
    by_key = {_plan_key(group[0]): group for group in b}
    exact = [(group, by_key[_plan_key(group[0])]) for group in a if _plan_key(group[0]) in by_key]
    taken = {_plan_key(group[0]) for group, _ in exact}
    alike = [
        (one, other)
        for one in a
        for other in b
        if not {_plan_key(one[0]), _plan_key(other[0])} & taken
        and shared_measures(one, other)
        and not differences(one[0], other[0], shared_measures(one, other)[0])
    ]
    if exact or alike:
        return exact + alike
    ranked = sorted(
        ((_distance(one, other), one, other) for one in a for other in b), key=itemgetter(0)
    )
    found: list[tuple[WorkGroup, WorkGroup]] = []
    for (lacks_figure, obstacles, *_), one, other in ranked:
        is_taken = any(one is first or other is second for first, second in found)
        if not (lacks_figure or obstacles or is_taken):
            found.append((one, other))
    return found or [ranked[0][1:]]


def _distance(one: WorkGroup, other: WorkGroup) -> tuple[bool, int, int, int]:
    shared = shared_measures(one, other)
    found = differences(one[0], other[0], shared[0] if shared else DECODE)
    obstacles = sum(each.role == "obstacle" for each in found)
    a, b = one[0].method, other[0].method
    methods = (a.threads != b.threads) + (a.repacked != b.repacked) + (a.options != b.options)
    return not shared, obstacles, len(found) - obstacles, methods


def _decodes(group: WorkGroup) -> bool:
    # A benchmark's prefill tests beside its decode tests are no plans that the other side lacks.
    return DECODE.of(group[0]) is not None


def prompt_words(work: Work) -> str | None:
    """Return the beginning of a prompt; none where it is unknown."""
    return None if work.prompt is None else short_prompt(work.prompt)
