"""Two searches side by side: what won in each, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from armload.analysis.comparison import (
    ComparedFigure,
    Comparison,
    Subject,
    overall_finding,
)
from armload.analysis.comparison_findings import (
    ComparisonFinding,
    ConstraintsDiffer,
    Disturbed,
    NotInterleaved,
    SideDifference,
    SideLabel,
    SpacesDiffer,
    differing,
    differing_settings,
)
from armload.analysis.statistics import ratio_of_runs
from armload.core.errors import UsageError
from armload.core.values import counted
from armload.tuning.outcome_words import gain_words
from armload.tuning.record import Confirmation, SearchResult, Tuning, TuningFolder
from armload.tuning.settings import differing as differing_choices
from armload.tuning.settings import words_of
from armload.tuning.space import Choice, Setting
from armload.tuning.wanted import AIMS, SERVED, Objective


def compare_tunings(a: TuningFolder, b: TuningFolder) -> Comparison:
    """Compare two searches by what won in each.

    A setting's cost is that of its runs in the comparison at the search's end, or of its longest
    trials where it took no part in one. The two searches did not run in turn, so whatever the
    board did differently meanwhile is part of the ratio.
    """
    results = _result(a), _result(b)
    winners = [each.winner for each in results]
    defaults = [each.tuning.space.defaults for each in (a, b)]
    compared = [each.confirmation for each in results]
    obstacles = _obstacles(a.tuning, b.tuning)
    figures = (
        *_figure("winner", a.tuning.objective, *map(_costs, (a, b), compared, winners)),
        *_figure("defaults", a.tuning.objective, *map(_costs, (a, b), compared, defaults)),
    )
    if a.tuning.objective != b.tuning.objective or _bases_differ(a.tuning, b.tuning):
        figures = ()  # a ratio of different quantities says nothing
    doubts = [*_doubts("A", results[0]), *_doubts("B", results[1])]
    one, other = (
        differing_choices(setting, each) for setting, each in zip(winners, defaults, strict=True)
    )
    choices = [
        each.model_copy(update={"name": f"winner's {each.name}"})
        for each in differing_settings("setting", one, other)
    ]
    verdict = overall_finding((), obstacles, figures, is_valid=not doubts)
    found: list[ComparisonFinding] = []
    if a.tuning.constraints != b.tuning.constraints:
        found.append(ConstraintsDiffer())
    if options := _searched_otherwise(_offered(a.tuning), _offered(b.tuning)):
        found.append(SpacesDiffer(options=options))
    return Comparison(
        kind="tuning",
        a=_subject(a.tuning, results[0]),
        b=_subject(b.tuning, results[1]),
        finding=verdict,
        reason="not all runs are valid" if verdict == "inconclusive" else "",
        figures=figures,
        differences=(
            *obstacles,
            *choices,
            *differing([("engines", "setting", a.tuning.engine, b.tuning.engine)]),
        ),
        findings=(
            *found,
            *_not_interleaved("A", compared[0]),
            *_not_interleaved("B", compared[1]),
            *doubts,
        ),
        lead="Different configurations won." if choices else "The same configuration won.",
        who="B's winner",
    )


def _result(tuned: TuningFolder) -> SearchResult:
    result = tuned.result()
    if result is None:
        raise UsageError(
            f"{tuned.tuning.id} has not finished, so it has no winner.",
            "Run its command again to resume it, then compare.",
        )
    return result


def _subject(tuning: Tuning, result: SearchResult) -> Subject:
    confirmed, objective = result.confirmation, tuning.objective
    speed = confirmed.speed if confirmed is not None and confirmed.is_faster else None
    gain = f"; {gain_words(objective, speed)}" if speed else ""
    return Subject(
        names=(tuning.id,),
        model=tuning.model,
        board=tuning.board,
        engine=tuning.engine,
        settings={**result.winner.choices},
        about=(
            f"{tuning.model} on {tuning.board}, for {objective}. Winner: "
            f"{words_of(result.winner, tuning.space.defaults, {})}{gain}"
        ),
    )


def _costs(tuned: TuningFolder, compared: Confirmation | None, setting: Setting) -> Sequence[float]:
    if compared is not None and compared.speed is not None:
        if setting.key == tuned.tuning.space.defaults.key:
            return compared.defaults_costs
        if setting.key == compared.leader.key:
            return compared.leader_costs
    trials = [
        (each.trial.rung, each.outcome.cost)
        for each in tuned.entries
        if each.trial.setting.key == setting.key
        and each.outcome.status == "measured"
        and each.outcome.cost is not None
    ]
    longest = max((rung for rung, _ in trials), default=0)
    return [cost for rung, cost in trials if rung == longest]


def _not_interleaved(side: SideLabel, compared: Confirmation | None) -> list[NotInterleaved]:
    if compared is not None and compared.speed is not None:
        return []
    return [NotInterleaved(side=side, was_disturbed=compared is not None)]


def _figure(
    setting: Literal["winner", "defaults"],
    objective: Objective,
    a: Sequence[float],
    b: Sequence[float],
) -> list[ComparedFigure]:
    if not (a and b):
        return []
    ratio, aim = ratio_of_runs(a, b), AIMS[objective]
    runs = counted(len(b), "run")
    return [
        ComparedFigure(
            key=setting,
            heading=f"{setting} ({runs if len(a) == len(b) else f'{len(a)} and {runs}'})",
            unit=aim.unit,
            rate_unit=aim.rate_unit,
            a=median(a),
            b=median(b),
            a_runs=len(a),
            b_runs=len(b),
            ratio=ratio,
            finding=ratio.finding,
            less=aim.less,
            more=aim.more,
        )
    ]


def _obstacles(a: Tuning, b: Tuning) -> list[SideDifference]:
    found = differing(
        [
            ("board", "obstacle", a.board, b.board),
            ("objective", "obstacle", a.objective, b.objective),
        ]
    )
    if a.model_sha256 != b.model_sha256:
        found += differing([("model", "obstacle", _named(a, b), _named(b, a))])
    if a.energy_basis and b.energy_basis and _bases_differ(a, b):
        bases = str(a.energy_basis), str(b.energy_basis)
        found += differing([("energy measurement", "obstacle", *bases)])
    if a.objective == b.objective:
        found += differing_settings("obstacle", a.work, b.work)
        if a.objective in SERVED:
            found += differing([("seed of the load", "obstacle", a.seed, b.seed)])
    return found


def _bases_differ(a: Tuning, b: Tuning) -> bool:
    return None not in (a.energy_basis, b.energy_basis) and a.energy_basis != b.energy_basis


def _named(tuning: Tuning, other: Tuning) -> str:
    same = tuning.model == other.model
    return f"{tuning.model} ({tuning.model_sha256[:12]})" if same else tuning.model


def _offered(tuning: Tuning) -> Mapping[str, tuple[Choice, ...]]:
    return {each.name: each.choices for each in tuning.space.parameters}


def _searched_otherwise(
    a: Mapping[str, tuple[Choice, ...]], b: Mapping[str, tuple[Choice, ...]]
) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys((*a, *b)) if a.get(name) != b.get(name))


def _doubts(side: SideLabel, result: SearchResult) -> list[Disturbed]:
    disturbed = (
        result.confirmation.disturbances if result.confirmation and result.is_unconfirmed else ()
    )
    return [Disturbed(side=side, reason=each) for each in dict.fromkeys(disturbed)]
