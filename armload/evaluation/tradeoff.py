"""What ``tradeoff`` compares: the lines of two evaluations, as systems with points."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.latency import Latency, latency_of
from armload.analysis.run import Run
from armload.analysis.tradeoff import (
    Answers,
    AtDeadline,
    Crossover,
    at_deadline,
    crossover,
    on_one_axis,
)
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.evaluation.answer_energy import (
    EnergyTradeoff,
    SystemEnergy,
    answered_energy,
    energies_compared,
    expected_energy,
)
from armload.evaluation.program import unequal
from armload.evaluation.results import (
    AccuracyPoint,
    GradedAttempt,
    doubts_about_runs,
    doubts_in,
)
from armload.evaluation.sides import TradeoffSide


def answered(points: Sequence[AccuracyPoint]) -> list[str]:
    """Return the questions that have an answer at every budget."""
    columns = [{attempt.question for attempt in point.attempts} for point in points]
    return [
        attempt.question
        for attempt in points[0].attempts
        if all(attempt.question in column for column in columns)
    ]


def system_of(
    name: str, points: Sequence[AccuracyPoint], latency: Latency | None = None
) -> Answers:
    """Return one system: a model asked in one way, at several budgets.

    Args:
        name: that tells it from others.
        points: by budget, ascending; at least one question has an answer at all of them.
        latency: times of a board other than the one that answered; none for the answers' own.
    """
    questions = answered(points)
    columns = [{attempt.question: attempt for attempt in point.attempts} for point in points]
    rows = [[column[question] for column in columns] for question in questions]
    return Answers(
        name=name,
        questions=tuple(questions),
        budgets=tuple(point.budget or 0 for point in points),
        latency_s=tuple(
            tuple(
                latency.seconds(each.prompt_tokens, each.tokens) if latency else each.seconds
                for each in row
            )
            for row in rows
        ),
        correct=tuple(tuple(each.is_correct for each in row) for row in rows),
        boxed=tuple(tuple(each.is_boxed for each in row) for row in rows),
    )


def on_common_questions(systems: Sequence[Answers]) -> list[Answers]:
    """Return the systems with the questions alone that all of them answered, in one order."""
    first, *others = systems
    common = set(first.questions).intersection(*(other.questions for other in others))
    order = [question for question in first.questions if question in common]
    return [_only(system, order) for system in systems]


def _only(system: Answers, order: Sequence[str]) -> Answers:
    numbers = {question: number for number, question in enumerate(system.questions)}
    rows = {
        name: tuple(values[numbers[question]] for question in order) if values else ()
        for name, values in (
            ("latency_s", system.latency_s),
            ("correct", system.correct),
            ("boxed", system.boxed),
        )
    }
    return system.model_copy(update={"questions": tuple(order), **rows})


class SharedAxis(Value):
    """Both accuracies over the faster one's tokens, by one ratio of speeds.

    Attributes:
        faster: name of the model whose tokens they are.
        ratio: of the seconds per token, slower over faster.
        tokens, faster_accuracy: of the faster one's budgets.
        slower_tokens, slower_accuracy: of the slower one's, multiplied by the ratio.
    """

    faster: str
    ratio: float
    tokens: tuple[float, ...]
    faster_accuracy: tuple[float, ...]
    slower_tokens: tuple[float, ...]
    slower_accuracy: tuple[float, ...]


class Tradeoff(Value):
    """Two models asked in the same way.

    Attributes:
        prompt, is_told, concludes: the variant.
        a, b: their graded answers with times.
        left_out: questions that not both have answered at every budget; they count in no figure.
        times_of: runs that the times are taken from; empty for those of the answers themselves.
        doubts: why the times are not reliable.
        unequal: what is not equal of both besides their models, or not known to be.
        crossover: from when on the other one is right more often.
        sentence: which says it.
        deadlines: both compared at the deadlines that were asked for.
        axis: by one ratio of speeds, as it has been done elsewhere; none without tokens.
        energy: what the answers take from the supply; none without a power meter.
    """

    prompt: str
    is_told: bool
    concludes: bool
    a: Answers
    b: Answers
    left_out: int = 0
    times_of: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    unequal: tuple[str, ...] = ()
    crossover: Crossover
    sentence: str
    deadlines: tuple[AtDeadline, ...]
    axis: SharedAxis | None
    energy: EnergyTradeoff | None = None


def check_times(
    sides: tuple[TradeoffSide, TradeoffSide], runs: tuple[Run, Run]
) -> tuple[Latency, Latency]:
    """Return the times that a run of each model gives."""
    for side, run in zip(sides, runs, strict=True):
        if run.model.identity != side.model_sha256:
            raise UsageError(
                f"--times: {run.id} is a run of {run.model.name}, not of {side.model}.",
                "Name a run of the same model file.",
            )
    a, b = (run.board.name for run in runs)
    if a != b:
        raise UsageError(
            f"--times: {runs[0].id} ran on {a}, {runs[1].id} on {b}.",
            "Name two runs on the same board.",
        )
    return latency_of(runs[0]), latency_of(runs[1])


def trade(
    a: TradeoffSide,
    b: TradeoffSide,
    *,
    runs: tuple[Run, Run] | None = None,
    deadlines_s: Sequence[float] = (),
) -> list[Tradeoff]:
    """Compare two models in each way in which both were asked, on the questions of both.

    Args:
        runs: of another board, one of each model, to take times from; none for those of the
            answers themselves.
        deadlines_s: at which both are compared.
    """
    times: _Times = check_times((a, b), runs) if runs else (None, None)
    measured: _Runs = runs or (None, None)
    variants = [variant for variant in _variants(a) if variant in _variants(b)]
    if not variants:
        raise UsageError(
            f"{a.model} and {b.model} were not asked with the same prompts and budgets.",
            "Evaluate both with the same --prompt, --budget and --tell-budget.",
        )
    traded = [_trade(a, b, variant, times, measured, deadlines_s) for variant in variants]
    found = [each for each in traded if each is not None]
    if not found:
        raise UsageError(
            f"{a.model} and {b.model} have no answered question in common.",
            "Repeat the commands of both evaluations: they ask the remaining questions and show "
            "why any has no answer.",
        )
    if runs is None:
        return found
    about = {"times_of": tuple(run.id for run in runs), "doubts": doubts_about_runs(runs)}
    return [each.model_copy(update=about) for each in found]


_Variant = tuple[str, bool, bool]
_Times = tuple[Latency | None, Latency | None]
_Runs = tuple[Run | None, Run | None]


def _trade(
    a: TradeoffSide,
    b: TradeoffSide,
    variant: _Variant,
    times: _Times,
    runs: _Runs,
    deadlines_s: Sequence[float],
) -> Tradeoff | None:
    names = (a.model.removesuffix(".gguf"), b.model.removesuffix(".gguf"))
    if a.model == b.model:
        names = (f"{names[0]} ({a.evaluation})", f"{names[1]} ({b.evaluation})")
    points = _points(a, variant), _points(b, variant)
    if not set(answered(points[0])) & set(answered(points[1])):
        return None
    one, other = on_common_questions(
        [
            system_of(name, its, latency)
            for name, its, latency in zip(names, points, times, strict=True)
        ]
    )
    prompt, is_told, concludes = variant
    found = crossover(one, other)
    return Tradeoff(
        prompt=prompt,
        is_told=is_told,
        concludes=concludes,
        a=one,
        b=other,
        left_out=len(a.questions) - len(one.questions),
        doubts=(*doubts_in([*points[0], *points[1]]), *_doubts_about_boards(*points)),
        unequal=unequal(a, b),
        crossover=found,
        sentence=found.sentence,
        deadlines=tuple(at_deadline(one, other, deadline) for deadline in deadlines_s),
        axis=_shared_axis((one, other), points, times),
        energy=energies_compared(*map(_energy, (one, other), points, runs)),
    )


def _energy(
    system: Answers, points: Sequence[AccuracyPoint], run: Run | None
) -> SystemEnergy | None:
    questions = set(system.questions)
    columns = [[each for each in point.attempts if each.question in questions] for point in points]
    if run is not None:
        return expected_energy(system.name, columns, run)
    return answered_energy(system.name, columns, points[-1].power)


def _doubts_about_boards(a: Sequence[AccuracyPoint], b: Sequence[AccuracyPoint]) -> list[str]:
    boards = [sorted({board for point in points for board in point.boards}) for points in (a, b)]
    if boards[0] == boards[1]:
        return []
    found = [
        f"{points[0].model.removesuffix('.gguf')} was evaluated on {', '.join(names)}"
        for points, names in zip((a, b), boards, strict=True)
    ]
    return [f"The times come from different boards: {'; '.join(found)}."]


def _shared_axis(
    systems: tuple[Answers, Answers],
    points: tuple[Sequence[AccuracyPoint], Sequence[AccuracyPoint]],
    times: _Times,
) -> SharedAxis | None:
    tokens_s = [
        _token_s([each for each in its[-1].attempts if each.question in system.questions], latency)
        for system, its, latency in zip(systems, points, times, strict=True)
    ]
    if not all(tokens_s):
        return None
    (fast_s, faster), (slow_s, slower) = sorted(
        zip(tokens_s, systems, strict=True), key=lambda each: each[0]
    )
    ratio = slow_s / fast_s
    fast, slow = on_one_axis(faster, slower, ratio)
    return SharedAxis(
        faster=faster.name,
        ratio=ratio,
        tokens=tuple(point.tokens for point in fast),
        faster_accuracy=tuple(point.accuracy.share for point in fast),
        slower_tokens=tuple(point.tokens for point in slow),
        slower_accuracy=tuple(point.accuracy.share for point in slow),
    )


def _token_s(attempts: Sequence[GradedAttempt], latency: Latency | None) -> float:
    """Return the time of a token after the first, which the prompt's time ends with."""
    longer = [each for each in attempts if each.tokens > 1]
    decoding_s = sum(
        latency.seconds(each.prompt_tokens, each.tokens) - latency.seconds(each.prompt_tokens, 1)
        if latency
        else each.seconds - each.first_token_s
        for each in longer
    )
    tokens = sum(each.tokens - 1 for each in longer)
    return decoding_s / tokens if tokens else 0.0


def _variants(side: TradeoffSide) -> list[_Variant]:
    return list(dict.fromkeys(map(_variant, side.points)))


def _variant(point: AccuracyPoint) -> _Variant:
    return point.prompt, point.is_told, point.concludes


def _points(side: TradeoffSide, variant: _Variant) -> list[AccuracyPoint]:
    points = [point for point in side.points if _variant(point) == variant]
    return sorted(points, key=lambda point: point.budget or 0)
