"""Two searches side by side: what won in each, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from armload.analysis.comparison_findings import (
    ComparisonFigures,
    ComparisonFinding,
    ConstraintsDiffer,
    Differs,
    Disturbed,
    NotInterleaved,
    Remark,
    SideLabel,
    SpacesDiffer,
    differing_facts,
    differing_settings,
    overall_finding,
)
from armload.analysis.statistics import Ratio, RatioFinding, ratio_of_runs
from armload.analysis.wording import comparisons as wording
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.tuning.record import Confirmation, Result, Tuning, TuningFolder
from armload.tuning.settings import differing, words_of
from armload.tuning.space import Choice, Setting
from armload.tuning.wanted import SERVED, Objective


class TunedSide(Value):
    """A search that has ended.

    Attributes:
        id: of the search.
        model: the file's name.
        winner: its choices, by the names of options.
        winner_words: what of it is not as in the defaults.
        speed: how many times as fast as the defaults the winner is; none where the defaults won,
            or do not run.
        trials: how many were run.
    """

    id: str
    board: str
    model: str
    engine: str
    objective: Objective
    winner: dict[str, Choice]
    winner_words: str
    speed: Ratio | None
    trials: int


class MeasuredSetting(Value):
    """What the winners, or the defaults, of both searches cost.

    Attributes:
        setting: whose cost it is.
        a_cost, b_cost: medians over runs, in the objective's unit: seconds per token for decode
            and prefill, joules per token for energy, seconds per request for rate, else seconds.
        a_runs, b_runs: how many each is the median of.
        ratio: B's over A's: above 1, B is slower, or takes more energy.
        finding: what the ratio's interval says.
    """

    setting: Literal["winner", "defaults"]
    a_cost: float
    b_cost: float
    a_runs: int
    b_runs: int
    ratio: Ratio
    finding: RatioFinding


class DifferentChoice(Value):
    """An option that the winners of both searches set differently.

    Attributes:
        option: its name in a plan file.
        a, b: what it is set to; none leaves it to the engine.
    """

    option: str
    a: Choice
    b: Choice


class TuningComparison(Value):
    """Two searches of the same kind.

    Attributes:
        finding: of the winners; ``not comparable`` if anything in ``differences`` stands against
            it; ``inconclusive`` if a run that it rests on is not valid.
        measured: the winners, then the defaults as far as they run on both sides.
        choices: what the winners set differently; empty where the same settings won.
        differences: what differs in the work.
        notes: what else a reader should know.
        doubts: what speaks against single figures.
    """

    a: TunedSide
    b: TunedSide
    finding: ComparisonFinding
    measured: tuple[MeasuredSetting, ...]
    choices: tuple[DifferentChoice, ...]
    differences: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()
    doubts: tuple[Remark, ...] = ()


def compare_tunings(a: TuningFolder, b: TuningFolder) -> TuningComparison:
    """Compare two searches by what won in each.

    A setting's cost is that of its runs in the comparison at the search's end, or of its longest
    trials where it took no part in one. The two searches did not run in turn, so whatever the
    board did differently meanwhile is part of the ratio.

    Raises:
        UsageError: one has not ended.
        DataError, DiskError: a file of one was changed, or cannot be read.
    """
    results = _result(a), _result(b)
    winners = [each.winner for each in results]
    defaults = [each.tuning.space.defaults for each in (a, b)]
    compared = [each.confirmation for each in results]
    measured = [
        found
        for found in (
            _measured("winner", *map(_costs, (a, b), compared, winners)),
            _measured("defaults", *map(_costs, (a, b), compared, defaults)),
        )
        if found is not None
    ]
    against = _differences(a.tuning, b.tuning)
    doubts = [*_doubts("A", results[0]), *_doubts("B", results[1])]
    return TuningComparison(
        a=_side(a.tuning, results[0]),
        b=_side(b.tuning, results[1]),
        finding=overall_finding(against, [each.finding for each in measured], is_valid=not doubts),
        measured=tuple(measured),
        choices=tuple(_choices(winners, defaults)),
        differences=wording.differences(against),
        notes=wording.remarks(
            [
                *_notes(a.tuning, b.tuning),
                *_not_interleaved("A", compared[0]),
                *_not_interleaved("B", compared[1]),
            ]
        ),
        doubts=wording.remarks(doubts),
    )


def _result(tuned: TuningFolder) -> Result:
    result = tuned.result()
    if result is None:
        raise UsageError(
            f"{tuned.tuning.id} has not finished, so it has no winner.",
            "Run its command again to resume it, then compare.",
        )
    return result


def _side(tuning: Tuning, result: Result) -> TunedSide:
    confirmed = result.confirmation
    return TunedSide(
        id=tuning.id,
        board=tuning.board,
        model=tuning.model,
        engine=tuning.engine,
        objective=tuning.objective,
        winner=result.winner.choices,
        winner_words=words_of(result.winner, tuning.space.defaults, {}),
        speed=confirmed.speed if confirmed and confirmed.is_faster else None,
        trials=result.trials,
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


def _measured(
    setting: Literal["winner", "defaults"], a: Sequence[float], b: Sequence[float]
) -> MeasuredSetting | None:
    if not (a and b):
        return None
    ratio = ratio_of_runs(a, b)
    return MeasuredSetting(
        setting=setting,
        a_cost=median(a),
        b_cost=median(b),
        a_runs=len(a),
        b_runs=len(b),
        ratio=ratio,
        finding=ratio.finding,
    )


def _choices(winners: Sequence[Setting], defaults: Sequence[Setting]) -> list[DifferentChoice]:
    one, other = (differing(setting, each) for setting, each in zip(winners, defaults, strict=True))
    return [
        DifferentChoice(option=name, a=one.get(name), b=other.get(name))
        for name in dict.fromkeys((*one, *other))
        if one.get(name) != other.get(name)
    ]


def _differences(a: Tuning, b: Tuning) -> list[ComparisonFigures]:
    found: list[ComparisonFigures] = [
        *differing_facts([("board", a.board, b.board), ("objective", a.objective, b.objective)])
    ]
    if a.model_sha256 != b.model_sha256:
        found.append(Differs(name="model", a=_named(a, b), b=_named(b, a)))
    if a.energy_basis and b.energy_basis and a.energy_basis != b.energy_basis:
        found.append(
            Differs(
                name="energy measurement",
                a=str(a.energy_basis),
                b=str(b.energy_basis),
            )
        )
    if a.objective == b.objective:
        found += differing_settings(a.work, b.work)
        if a.objective in SERVED:
            found += differing_facts([("seed of the load", a.seed, b.seed)])
    return found


def _named(tuning: Tuning, other: Tuning) -> str:
    same = tuning.model == other.model
    return f"{tuning.model} ({tuning.model_sha256[:12]})" if same else tuning.model


def _notes(a: Tuning, b: Tuning) -> list[ComparisonFigures]:
    found: list[ComparisonFigures] = [*differing_facts([("engines", a.engine, b.engine)])]
    if a.constraints != b.constraints:
        found.append(ConstraintsDiffer())
    if options := _searched_otherwise(_offered(a), _offered(b)):
        found.append(SpacesDiffer(options=options))
    return found


def _offered(tuning: Tuning) -> Mapping[str, tuple[Choice, ...]]:
    return {each.name: each.choices for each in tuning.space.parameters}


def _searched_otherwise(
    a: Mapping[str, tuple[Choice, ...]], b: Mapping[str, tuple[Choice, ...]]
) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys((*a, *b)) if a.get(name) != b.get(name))


def _doubts(side: SideLabel, result: Result) -> list[Disturbed]:
    disturbed = (
        result.confirmation.disturbances if result.confirmation and result.is_unconfirmed else ()
    )
    return [Disturbed(side=side, reason=each) for each in dict.fromkeys(disturbed)]
