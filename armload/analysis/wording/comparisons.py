"""What a comparison found beside its figures."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import JsonValue

from armload.analysis.comparison_findings import (
    ComparisonFigures,
    ConstraintsDiffer,
    DegenerateOutput,
    Differs,
    Disturbed,
    DoubtfulLoad,
    EnergyMixed,
    EnergyPerToken,
    EqualBoardsDiffer,
    Excluded,
    FailedRequests,
    ModelUnverified,
    NothingInCommon,
    NotInterleaved,
    OnlyOneSide,
    OutputDiffers,
    Remark,
    RequestsDiffer,
    SettingDiffers,
    SpacesDiffer,
    TooFewRuns,
)
from armload.analysis.equal_boards import UnequalBoards
from armload.analysis.ratios import times
from armload.analysis.wording.loads import doubt


def differences(found: Iterable[ComparisonFigures]) -> tuple[Remark, ...]:
    """Put what makes two sides incomparable into words, each a part of a sentence."""
    return tuple(Remark(figures=each, sentence=_difference(each)) for each in found)


def remarks(found: Iterable[ComparisonFigures]) -> tuple[Remark, ...]:
    """Put what else a reader should know of two sides into sentences."""
    return tuple(Remark(figures=each, sentence=_sentence(each)) for each in found)


def unequal(found: UnequalBoards) -> str:
    """Say that boards which are declared identical differ."""
    return (
        f"{found.slowest} and {found.fastest} are declared identical ({found.called}), but "
        f"{found.slowest} takes {times(found.ratio)} as long per token. Repeats on one board "
        f"differ by {found.repeats_ratio - 1:.1%}."
    )


def not_comparable(differences: Iterable[Remark]) -> str:
    return f"Not comparable: {'; '.join(each.sentence for each in differences)}."


def _difference(found: ComparisonFigures) -> str:
    match found:
        case Differs():
            return f"{found.name}: {_values(found, 'unknown')}"
        case SettingDiffers():
            return f"{found.name}: {_values(found, 'default')}"
        case OnlyOneSide():
            return f"only {found.side} has runs with this configuration"
        case DegenerateOutput():
            return f"{found.side}: {found.faults}"
        case NothingInCommon():
            return {
                "figure": "the two sides have no metric in common",
                "load level": "the loads have no rate or number of clients in common",
                "answered request": "no request was answered in both loads",
            }[found.what]
        case RequestsDiffer():
            return "requests: the content of the file differs"
        case _:
            return _sentence(found).rstrip(".")


def _sentence(found: ComparisonFigures) -> str:
    match found:
        case Differs(name="weights repacked"):
            return (
                f"Weights repacked: {_values(found, 'unknown')}, so different kernels ran. "
                "armload repacks weights if memory allows; to disable it on both sides, use "
                "--engine-args --no-repack."
            )
        case Excluded():
            return f"Disturbed and excluded from {found.side}: {', '.join(found.names)}."
        case EqualBoardsDiffer():
            return (
                f"{found.a} and {found.b} are declared identical ({found.called}), but differ by "
                "more than their repeats."
            )
        case ModelUnverified():
            names = f"A {found.a or 'unknown'}, B {found.b or 'unknown'}"
            return f"Cannot verify that both sides ran the same model: {names}."
        case TooFewRuns():
            return (
                f"With fewer than {found.needed_runs} runs per side, run-to-run variation is "
                "unknown; the interval is widened to allow for it."
            )
        case EnergyPerToken():
            return _energy(found)
        case EnergyMixed():
            return (
                f"Energy of {found.side}: only runs measured {found.basis}, are "
                f"used; {found.left_out} measured differently were excluded."
            )
        case OutputDiffers():
            return found.departure.sentence
        case ConstraintsDiffer():
            return "The constraints differ."
        case SpacesDiffer():
            return f"The search spaces differ: {', '.join(found.options)}."
        case NotInterleaved():
            why = (
                "too many disturbed runs in its final comparison"
                if found.was_disturbed
                else "no final comparison"
            )
            return f"{found.side} had {why}: its figures are from its longest trials."
        case DoubtfulLoad():
            return f"{found.side}: {doubt(found.figures)}"
        case FailedRequests():
            return f"{found.side}: {found.failed} of {found.requests} requests failed."
        case Disturbed():
            return f"{found.side}: {found.reason}"
        case _:
            said = _difference(found)
            return f"{said[:1].upper()}{said[1:]}."


def _energy(found: EnergyPerToken) -> str:
    if found.a_basis == found.b_basis:
        change = f", B uses {times(found.b_j / found.a_j)} A's" if found.a_j else ""
        where = str(found.a_basis)
        return f"Energy {where}: A {found.a_j:.3g}, B {found.b_j:.3g} J per token{change}."
    return (
        f"Energy: A {found.a_j:.3g} J per token {found.a_basis}, B "
        f"{found.b_j:.3g} J per token {found.b_basis}. "
        f"{found.a_basis.not_comparable(found.b_basis)}"
    )


def _values(found: Differs | SettingDiffers, missing: str) -> str:
    return f"A {_value(found.a, missing)}, B {_value(found.b, missing)}"


def _value(value: JsonValue, missing: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return missing if value is None else str(value) or "none"
