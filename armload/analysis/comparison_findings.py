"""What a comparison of two sides found beside its figures, and in what the sides differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import JsonValue, computed_field

from armload.analysis.finding import ToldFinding, any_of
from armload.analysis.load.findings import AnyLoadFinding
from armload.analysis.ratios import times
from armload.analysis.sanity import Departure
from armload.boards.power import EnergyBasis
from armload.core.shell import join
from armload.core.values import Value, counted, format_bytes
from armload.engines.measurement import KnownAccuracy
from armload.engines.output import ReportedFigure

SideLabel = Literal["A", "B"]

DifferenceRole = Literal["subject", "setting", "obstacle"]
"""A subject is what is compared, a setting is how it was done; an obstacle makes it other work."""


class SideDifference(Value):
    """Something that the two sides do not share.

    Attributes:
        a, b: none where a side's is ``missing``: unknown, or left to the default.
        consequence: what follows from it; may be empty.
    """

    name: str
    role: DifferenceRole
    a: JsonValue
    b: JsonValue
    missing: Literal["unknown", "default"] = "unknown"
    consequence: str = ""

    @computed_field
    @property
    def phrase(self) -> str:
        """For people: a part of a sentence."""
        return f"{self.name}: A {self._words(self.a)}, B {self._words(self.b)}"

    @property
    def sentence(self) -> str:
        """The phrase as a sentence, with the consequence."""
        return f"{self.phrase[:1].upper()}{self.phrase[1:]}{self.consequence}."

    def _words(self, value: JsonValue) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return self.missing if value is None else str(value) or "none"


def differing(
    facts: Iterable[tuple[str, DifferenceRole, JsonValue, JsonValue]],
) -> list[SideDifference]:
    """Return those of some facts, each with its name and role, that the sides do not share."""
    return [SideDifference(name=name, role=role, a=a, b=b) for name, role, a, b in facts if a != b]


def differing_settings(
    role: DifferenceRole, a: Mapping[str, JsonValue], b: Mapping[str, JsonValue]
) -> list[SideDifference]:
    """Return the settings of two sides, by their names, that are not the same."""
    return [
        SideDifference(
            name=name.replace("_", " "), role=role, a=a.get(name), b=b.get(name), missing="default"
        )
        for name in dict.fromkeys((*a, *b))
        if a.get(name) != b.get(name)
    ]


class ComparisonFinding(ToldFinding):
    """What a comparison found.

    Attributes:
        role: an ``obstacle`` makes the sides incomparable; a ``doubt`` speaks against single
            figures; a ``note`` is what else a reader should know.
    """

    role: str


class ComparisonObstacle(ComparisonFinding):
    """What makes the sides incomparable; its fact is a part of a sentence."""

    role: Literal["obstacle"] = "obstacle"


class ComparisonDoubt(ComparisonFinding):
    """What speaks against figures of one side."""

    role: Literal["doubt"] = "doubt"
    side: SideLabel


class ComparisonNote(ComparisonFinding):
    """What else a reader should know."""

    role: Literal["note"] = "note"


class OnlyOneSide(ComparisonObstacle):
    """Only one side has runs of this plan."""

    kind: Literal["only one side"] = "only one side"
    side: SideLabel

    def fact(self) -> str:
        return f"only {self.side} has runs with this configuration"


class DegenerateOutput(ComparisonObstacle):
    """A side's output is degenerate; ``faults`` say of each of its runs in what way."""

    kind: Literal["degenerate output"] = "degenerate output"
    side: SideLabel
    faults: str

    def fact(self) -> str:
        return f"{self.side}: {self.faults}"


class NothingInCommon(ComparisonObstacle):
    """There is nothing to compare."""

    kind: Literal["nothing in common"] = "nothing in common"
    what: Literal["figure", "load level", "answered request"]

    def fact(self) -> str:
        return {
            "figure": "the two sides have no metric in common",
            "load level": "the loads have no rate or number of clients in common",
            "answered request": "no request was answered in both loads",
        }[self.what]


class RequestsDiffer(ComparisonObstacle):
    """Two files of requests have one name, and different content."""

    kind: Literal["requests differ"] = "requests differ"

    def fact(self) -> str:
        return "requests: the content of the file differs"


class DoubtfulRun(ComparisonDoubt):
    """A reason against one run; only of one that is not ``judged`` is it more than imprecise."""

    kind: Literal["doubtful run"] = "doubtful run"
    name: str
    reason: str
    is_judged: bool

    def fact(self) -> str:
        return f"{self.name}: {self.reason}"


class DoubtfulLoad(ComparisonDoubt):
    """A reason to doubt a side's figures under load."""

    kind: Literal["doubtful load"] = "doubtful load"
    found: AnyLoadFinding

    def fact(self) -> str:
        return f"{self.side}: {self.found.sentence}"


class FailedRequests(ComparisonDoubt):
    """Requests of a side failed."""

    kind: Literal["failed requests"] = "failed requests"
    failed: int
    requests: int

    def fact(self) -> str:
        return f"{self.side}: {self.failed} of {self.requests} requests failed."


class Disturbed(ComparisonDoubt):
    """Runs of a side were disturbed, in the words of their verdicts."""

    kind: Literal["disturbed"] = "disturbed"
    reason: str

    def fact(self) -> str:
        return f"{self.side}: {self.reason}"


class Excluded(ComparisonNote):
    """Disturbed runs of a side, which has others."""

    kind: Literal["excluded"] = "excluded"
    side: SideLabel
    names: tuple[str, ...]

    def fact(self) -> str:
        return f"Disturbed and excluded from {self.side}: {', '.join(self.names)}."


class ModelUnverified(ComparisonNote):
    """The files' sums do not tell whether the model is the same."""

    kind: Literal["model unverified"] = "model unverified"
    a: str | None
    b: str | None

    def fact(self) -> str:
        names = f"A {self.a or 'unknown'}, B {self.b or 'unknown'}"
        return f"Cannot verify that both sides ran the same model: {names}."


class UnequalConditions(ComparisonNote):
    """What is not equal, or not known to be, between a program of armload's and another one."""

    kind: Literal["unequal conditions"] = "unequal conditions"
    conditions: tuple[SideDifference, ...]

    def fact(self) -> str:
        said = "; ".join(each.phrase for each in self.conditions)
        return f"Not equal, or not known to be: {said}."


class PeakMemory(ComparisonNote):
    """The most resident memory of each side's runs, of which one is another program's."""

    kind: Literal["peak memory"] = "peak memory"
    a_bytes: int
    b_bytes: int

    def fact(self) -> str:
        return (
            f"Peak resident memory: A {format_bytes(self.a_bytes)}, "
            f"B {format_bytes(self.b_bytes)}, without what a GPU's or NPU's driver allocates."
        )


class Accuracies(ComparisonNote):
    """How often each side was right where both answered the same questions.

    Attributes:
        a, b: at the largest budget of each.
    """

    kind: Literal["accuracies"] = "accuracies"
    a: KnownAccuracy
    b: KnownAccuracy

    def fact(self) -> str:
        said = ", ".join(
            f"{side} {each.correct} of {counted(each.questions, 'question')} correct with "
            f"{each.budget} tokens"
            for side, each in (("A", self.a), ("B", self.b))
        )
        command = join(["armload", "tradeoff", self.a.side, self.b.side])
        return f"Accuracy on {self.a.task}: {said}. In full: {command}"


class EqualBoardsDiffer(ComparisonNote):
    """The sides ran on two boards that are declared identical, and differ by more than repeats do.

    Attributes:
        a, b: the boards.
        called: what calls them equal.
    """

    kind: Literal["equal boards differ"] = "equal boards differ"
    a: str
    b: str
    called: str

    def fact(self) -> str:
        return (
            f"{self.a} and {self.b} are declared identical ({self.called}), but differ by more "
            "than their repeats."
        )


class TooFewRuns(ComparisonNote):
    """The interval allows for a variation between runs that was not measured."""

    kind: Literal["too few runs"] = "too few runs"
    needed_runs: int

    def fact(self) -> str:
        return (
            f"With fewer than {self.needed_runs} runs per side, run-to-run variation is unknown; "
            "the interval is widened to allow for it."
        )


class ProgramReports(ComparisonNote):
    """What a side's program prints of itself beside the compared figures, from its first run."""

    kind: Literal["program reports"] = "program reports"
    side: SideLabel
    figures: tuple[ReportedFigure, ...]

    def fact(self) -> str:
        return f"{self.side}'s program reports: {', '.join(each.words for each in self.figures)}."


class EnergyPerToken(ComparisonNote):
    """The sides' medians of joules per token; only those of one basis can be compared."""

    kind: Literal["energy per token"] = "energy per token"
    a_j: float
    b_j: float
    a_basis: EnergyBasis
    b_basis: EnergyBasis

    def fact(self) -> str:
        one, other = str(self.a_basis), str(self.b_basis)
        if self.a_basis == self.b_basis:
            change = f", B uses {times(self.b_j / self.a_j)} A's" if self.a_j else ""
            return f"Energy {one}: A {self.a_j:.3g}, B {self.b_j:.3g} J per token{change}."
        return (
            f"Energy: A {self.a_j:.3g} J per token {one}, B {self.b_j:.3g} J per token {other}. "
            f"{self.a_basis.not_comparable(self.b_basis)}"
        )


class EnergyMixed(ComparisonNote):
    """Energies of a side have different bases; only those that have the first one's count."""

    kind: Literal["energy mixed"] = "energy mixed"
    side: SideLabel
    basis: EnergyBasis
    left_out: int

    def fact(self) -> str:
        return (
            f"Energy of {self.side}: only runs measured {self.basis!s}, are used; "
            f"{self.left_out} measured differently were excluded."
        )


class OutputDiffers(ComparisonNote):
    """B's text departs from A's."""

    kind: Literal["output differs"] = "output differs"
    departure: Departure

    def fact(self) -> str:
        return self.departure.sentence


class ConstraintsDiffer(ComparisonNote):
    """Two tunings had different constraints."""

    kind: Literal["constraints differ"] = "constraints differ"

    def fact(self) -> str:
        return "The constraints differ."


class SpacesDiffer(ComparisonNote):
    """Two tunings searched different values of these options."""

    kind: Literal["spaces differ"] = "spaces differ"
    options: tuple[str, ...]

    def fact(self) -> str:
        return f"The search spaces differ: {', '.join(self.options)}."


class NotInterleaved(ComparisonNote):
    """A tuning's figures are those of its trials, which did not alternate with the defaults."""

    kind: Literal["not interleaved"] = "not interleaved"
    side: SideLabel
    was_disturbed: bool

    def fact(self) -> str:
        why = (
            "too many disturbed runs in its final comparison"
            if self.was_disturbed
            else "no final comparison"
        )
        return f"{self.side} had {why}: its figures are from its longest trials."


if TYPE_CHECKING:
    AnyComparisonFinding = ComparisonFinding
else:
    AnyComparisonFinding = any_of(ComparisonFinding)
